"""pass@k of samples; oracle@B, what a perfect choice among them solves."""

import dataclasses
import re

import numpy as np
import pytest

from promptrl_jax.evaluation import coverage
from promptrl_jax.evaluation.play import Entrant, LineUp, Plan
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.strategies.base import TextStrategy
from promptrl_jax.strategies.fewshot import best_of_n
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

TASKS = tiny.tasks(4, 'test')
ASK = AskConfig(template='chat')


def coder(request):
  """Greedy: passes the visible test alone. Sampled: right for even tasks."""
  user = request.messages[-1].content
  (number,) = re.findall(r'to add (\d+) to', user)
  (signature,) = re.findall(r'Begin with: (.*)', user)
  (value,) = re.findall(r'assert .*== (\S+)', user)
  is_right = request.temperature > 0 and int(number) % 2 == 0
  result = f'x + {number}' if is_right else value
  return f'```python\n{signature}\n  return {result}\n```'


@pytest.fixture
def cells(pool):
  models = {
    role: CachedBackend(ScriptedBackend(coder))
    for role in ('rewriter', 'coder')
  }
  line_up = LineUp(models, pool, ASK)
  plans = [Plan('visible1', budget, TASKS, (0, 1)) for budget in (1, 3)]
  entrant = Entrant.of(TextStrategy(best_of_n))
  played = [line_up.play_cell('greedy_first', entrant, p)[0] for p in plans]
  return [coverage.measure(line_up, p) for p in plans], played


def test_pass_at_k_takes_samples_and_refuses_a_search(cells):
  bounds, played = cells
  samples = dataclasses.replace(
    played[0],
    passed=np.array([[1, 0, 1, 0], [0, 0, 1, 0]], bool),
    soft=np.array([[1, 0, 1, 0], [0, 0, 1, 0]], float),
  )
  assert coverage.pass_at_k(samples, 1).tolist() == [0.5, 0, 1, 0]
  assert coverage.pass_at_k(samples, 2).tolist() == [1, 0, 1, 0]
  for cell in (played[1], bounds[1]):
    with pytest.raises(ValueError, match=r'at B=3: .*solved@B'):
      coverage.pass_at_k(cell, 1)


def test_it_goes_on_after_a_visible_pass_and_chooses_by_hidden_tests(cells):
  bounds, played = cells
  assert not any(cell.passed.any() for cell in played)
  assert played[1].calls.max() == 1  # A visible pass ended it.
  first, third = bounds
  assert not first.passed.any()
  numbers = [int(task.statement.split('add ')[1].split()[0]) for task in TASKS]
  expected = [number % 2 == 0 for number in numbers]
  np.testing.assert_array_equal(third.passed, [expected, expected])
  assert (third.calls == 3).all()
  assert third.soft[third.passed].min() == 1 > third.soft[~third.passed].max()


def test_the_share_of_the_gap_that_is_closed(cells):
  bounds, played = cells
  rows = coverage.compare(bounds, played, 'greedy_first')
  assert [row['closed'] for row in rows] == [None, 0.0]
  assert (rows[1]['oracle'], rows[1]['above_half']) == (0.5, -0.25)
  perfect = coverage.compare(
    bounds, [*played, *bounds], coverage.NAME, resamples=200
  )
  assert perfect[1]['closed'] == 1.0 and perfect[1]['above_half'] == 0.25
  assert '| 3 | 0.0 | 50.0 | 50.0 | 100 % |' in coverage.to_markdown(
    perfect, coverage.NAME
  )
