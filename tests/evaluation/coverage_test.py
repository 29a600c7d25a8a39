"""oracle@B, what a perfect choice among samples solves; pass@k of these."""

import dataclasses
import re

import numpy as np
import pytest

from promptrl_jax.evaluation import coverage, samples
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


@pytest.fixture(scope='module')
def measured(pool):
  models = {
    role: CachedBackend(ScriptedBackend(coder))
    for role in ('rewriter', 'coder')
  }
  line_up = LineUp(models, pool, ASK)
  plans = [Plan('visible1', budget, TASKS, (0, 1)) for budget in (1, 3)]
  entrant = Entrant.of(TextStrategy(best_of_n))
  played = [line_up.play_cell('greedy_first', entrant, p)[0] for p in plans]
  return [coverage.measure(line_up, p) for p in plans], played


@pytest.fixture
def cells(measured):
  """Cells of a perfect choice and of best-of-B, at B=1 and B=3."""
  return [bound for bound, _ in measured[0]], measured[1]


@pytest.fixture
def sampled(measured):
  return [drawn for _, drawn in measured[0]]


def test_pass_at_k_takes_samples_and_refuses_a_search(cells):
  bounds, played = cells
  four = dataclasses.replace(
    bounds[0],
    **{
      name: np.repeat(getattr(bounds[0], name), 2, axis=0)
      for name in ('calls', 'attempts', 'prompt_tokens', 'completion_tokens')
    },
    passed=np.array([[1, 0, 1, 0], [0, 0, 1, 0]] * 2, bool),
    soft=np.array([[1, 0, 1, 0], [0, 0, 1, 0]] * 2, float),
  )
  assert samples.pass_at_k(four, 1).tolist() == [0.5, 0, 1, 0]
  assert samples.pass_at_k(four, 2) == pytest.approx([5 / 6, 0, 1, 0])
  for k in (0, 3, 4):
    with pytest.raises(ValueError, match=f'pass@{k} of 4 samples: expected k'):
      samples.pass_at_k(four, k)
  with pytest.raises(ValueError, match=r'k in 1\.\.0, half .* at least 2'):
    samples.pass_at_k(dataclasses.replace(played[0], **first_seed(played)), 1)
  for cell in (played[1], bounds[1]):
    with pytest.raises(ValueError, match=r'at B=3: .*solved@B'):
      samples.pass_at_k(cell, 1)


def first_seed(played):
  names = ('calls', 'attempts', 'prompt_tokens', 'completion_tokens')
  return {
    name: getattr(played[0], name)[:1] for name in (*names, 'passed', 'soft')
  }


def test_samples_are_all_programs_but_the_first_of_each_run(cells, sampled):
  assert sampled[0] is None  # B=1: one greedy program.
  drawn = sampled[1]
  # Two runs with two programs after the greedy one, of four problems.
  assert drawn.passed.shape == (4, 4) and drawn.budget == 1
  np.testing.assert_array_equal(drawn.passed, cells[0][1].passed[[0, 0, 1, 1]])
  assert (drawn.calls == 1).all() and (drawn.attempts == 1).all()
  assert (drawn.prompt_tokens > 0).all()
  rows = samples.table(drawn, resamples=200)
  assert [(row['k'], row['mean'], row['samples']) for row in rows] == [
    (1, 0.5, 4),
    (2, 0.5, 4),
  ]
  assert rows[0]['low'] <= 0.5 <= rows[0]['high']
  text = samples.to_markdown(rows)
  assert 'pass@k of 4 independent' in text and '| k=1 | k=2 |' in text


def test_greedy_programs_and_prompts_that_do_not_fit_are_no_samples():
  def row(problem, temperature, code='x'):
    sent = [] if temperature is None else [{'temperature': temperature}]
    tokens = {'prompt_tokens': 3, 'completion_tokens': 2}
    return {
      **{'row': problem, 'code': code, 'sent': sent},
      'answers': [tokens for _ in sent],
    }

  greedy = [(row(0, 0.0), 1.0)] * 3
  assert samples.of_runs([greedy], TASKS, 'visible1', 3) is None
  mixed = [
    *((row(0, 0.0), 0.0), (row(0, 0.8), 1.0), (row(0, 0.8, ''), 0.0)),
    *[(row(1, None, ''), 0.0)] * 3,
  ]
  cell = samples.of_runs([mixed], TASKS, 'visible1', 3)
  assert cell is not None
  assert cell.passed.tolist() == [[True, False, False, False], [False] * 4]
  assert cell.calls.tolist() == [[1, 0, 0, 0]] * 2
  assert cell.attempts[:, 0].tolist() == [1, 0]


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
