"""A score by which something was chosen, and what it is worth."""

import random

import pytest

from promptrl_jax.evaluation import selection
from promptrl_jax.evaluation.play import Entrant, LineUp, Plan
from promptrl_jax.evaluation.selection import Selected
from promptrl_jax.llm.ask import AskConfig, coder_prompt
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.strategies.base import TextStrategy
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

VALIDATION, TEST = tiny.tasks(8, 'validation'), tiny.tasks(8, 'test')


def lucky(skill):
  """Solves a problem by chance alone, a new one with each seed."""

  def play(attempt, tools):
    yield from tools.write_program(attempt, coder_prompt(attempt))
    text = f'{skill}/{attempt.seed}/{attempt.problem.task_id}'
    luck = random.Random(text).randrange(2)
    number = int(attempt.problem.statement.split('add ')[1].split()[0])
    name = attempt.problem.entry_point
    return f'def {name}(x):\n  return x + {number + luck}'

  return TextStrategy(play)


@pytest.fixture
def line_up(pool):
  model = ScriptedBackend(lambda request: '')
  return LineUp(
    {role: CachedBackend(model) for role in ('rewriter', 'coder')},
    pool,
    AskConfig(),
  )


def test_the_best_of_many_is_worse_with_fresh_draws(line_up):
  entrants = {f'skill_{i}': Entrant.of(lucky(i)) for i in range(24)}
  plan = Plan('visible1', 1, VALIDATION, (0,))
  scores = {
    name: line_up.play_cell(name, entrant, plan)[0].passed.mean()
    for name, entrant in entrants.items()
  }
  best = max(scores, key=lambda name: scores[name])
  cell, _ = line_up.play_cell(
    best, entrants[best], Plan('visible1', 1, TEST, (0, 1))
  )
  chosen = Selected(best, (1,), float(scores[best]))
  absent = Selected('absent', (1,), 1.0)
  (row,) = selection.rescore(
    line_up,
    entrants,
    [chosen, absent],
    VALIDATION,
    [cell],
    protocol='visible1',
    seeds=range(6),
  )
  assert row['chosen'] == scores[best] >= 0.75
  assert abs(row['again'] - 0.5) < 0.2 < row['chosen'] - row['again'] + 0.01
  assert row['test'] == cell.passed.mean()
  table = selection.to_markdown([row])
  assert f'| {best} | 1 | {100 * row["chosen"]:.1f} |' in table


def test_without_playing_again_the_test_score_stands_beside_the_other(line_up):
  cells = [
    line_up.play_cell('luck', Entrant.of(lucky(0)), plan)[0]
    for plan in (Plan('visible1', b, TEST, (0, 1)) for b in (1, 2))
  ]
  found = [
    Selected('luck', (1, 2), 0.9),
    Selected('luck', (2,), 0.8),
    Selected('luck', (1, 4), 0.7),  # It has not played with four calls.
  ]
  rows = selection.beside_test(found, cells)
  assert [row['chosen'] for row in rows] == [0.9, 0.8]
  one, two = (float(cell.passed.mean()) for cell in cells)
  assert [row['test'] for row in rows] == [(one + two) / 2, two]
  assert [row['again'] for row in rows] == [None, None]
  table = selection.to_markdown(rows)
  assert f'| luck | 2 | 80.0 |  | {100 * two:.1f} |' in table


def test_each_seed_of_a_strategy_is_played_with_draws_of_its_own(line_up):
  """What a seed stands for, a controller say, stays; the draws are new."""
  made, started = [], []

  class Recorder:
    def __init__(self, seed):
      made.append(seed)

    def start(self, problems, tools, *, budget, seed):
      started.append((budget, seed))
      return lucky(0).start(problems, tools, budget=budget, seed=seed)

  entrants = {'learned': Entrant(Recorder)}
  cells = [
    line_up.play_cell('learned', entrants['learned'], plan)[0]
    for plan in (Plan('visible1', b, TEST, (0, 1)) for b in (1, 2))
  ]
  made.clear(), started.clear()
  (row,) = selection.rescore(
    line_up,
    entrants,
    [Selected('learned', (1, 2), 0.9)],
    VALIDATION,
    cells,
    protocol='visible1',
    seeds=(0, 1),
  )
  assert made == [0, 1, 0, 1]
  assert started == [(1, 1000), (1, 1001), (2, 1000), (2, 1001)]
  assert row['budgets'] == [1, 2]
