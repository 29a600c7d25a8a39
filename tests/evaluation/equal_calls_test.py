"""Sampling, as often as a strategy asked, problem by problem."""

import dataclasses
import re

import numpy as np
import pytest

from promptrl_jax.evaluation import equal_calls
from promptrl_jax.evaluation.play import Entrant, LineUp, Plan
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.strategies.base import TextStrategy
from promptrl_jax.strategies.fewshot import best_of_n
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

TASKS = tiny.tasks(4, 'test')


def coder(request):
  """Task k is solved by the samples, and by no greedy program."""
  user = request.messages[-1].content
  (number,) = re.findall(r'to add (\d+) to', user)
  (signature,) = re.findall(r'Begin with: (.*)', user)
  shift = number if request.temperature > 0 else 'None'
  return f'```python\n{signature}\n  return x + {shift}\n```'


@pytest.fixture
def played(pool):
  """A line-up, a plan, and the cell of greedy-first sampling."""
  scripted = ScriptedBackend(coder)
  models = {role: CachedBackend(scripted) for role in ('rewriter', 'coder')}
  line_up = LineUp(models, pool, AskConfig(template='chat'))
  plan = Plan('visible1', 4, TASKS, (5, 6))
  cell, _ = line_up.play_cell('mine', Entrant.of(TextStrategy(best_of_n)), plan)
  assert cell.passed.all() and (cell.calls == 2).all()
  return line_up, plan, cell, scripted


def test_the_control_may_ask_as_often_as_the_strategy_on_each_problem(played):
  line_up, plan, cell, scripted = played
  calls = np.array([[1, 2, 4, 0], [2, 1, 3, 1]])
  mine = dataclasses.replace(cell, calls=calls)
  asked = len(scripted.batches)
  control = equal_calls.measure(line_up, plan, mine)
  assert control.passed.tolist() == [
    [False, True, True, False],
    [True, False, True, False],
  ]
  # The second program passes, and ends what the strategy's calls allow.
  used = np.minimum(calls, 2)
  np.testing.assert_array_equal(control.calls, used)
  np.testing.assert_array_equal(control.attempts, used)
  np.testing.assert_array_equal(control.completion_tokens > 0, used > 0)
  assert control.budget == 4 and control.optimisation_calls == 0
  assert len(scripted.batches) == asked  # greedy-first sampling asked for all
  (row,) = equal_calls.compare([control], [mine])
  assert (row['subject'], row['control'], row['gain']) == (1.0, 0.5, 0.5)
  assert (row['calls'], row['control_calls']) == (1.75, 1.375)
  assert 0.0 <= row['low'] <= 0.5 <= row['high'] <= 1.0
  text = equal_calls.to_markdown([row])
  assert '| 4 | 1.75 | 1.38 | 100.0 | 50.0 | +50.0 [' in text


def test_a_strategy_of_one_run_has_one_control(played):
  line_up, plan, cell, _ = played
  names = 'passed', 'soft', 'calls', 'attempts'
  names += 'prompt_tokens', 'completion_tokens'
  one = {name: getattr(cell, name)[:1] for name in names}
  single = dataclasses.replace(cell, **one, details=cell.details[:1])
  control = equal_calls.measure(line_up, plan, single)
  np.testing.assert_array_equal(control.passed, single.passed)
  assert equal_calls.to_markdown(equal_calls.compare([], [single])) == ''
