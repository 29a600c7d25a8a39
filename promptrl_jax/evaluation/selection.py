"""Selection scores beside test scores: how much of a score was luck.

What is chosen by its score is on average worse than that score: the winner's
curse (Cawley and Talbot 2010, On Over-fitting in Model Selection and Subsequent
Selection Bias in Performance Evaluation, JMLR 11). So what was chosen on
validation is played there again with draws that it was not chosen on, which
takes the luck of the draws away, and on test, which takes that of the problems
away, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation import markdown
from promptrl_jax.evaluation.cells import Cell
from promptrl_jax.evaluation.play import Entrant, Game, LineUp
from promptrl_jax.types import Task

# Seeds from here on were used by no choice.
_FRESH = 1_000


@dataclasses.dataclass(frozen=True)
class Selected:
  """A strategy, or a part of one, that was chosen by a score.

  Attributes:
    strategy: its name in the table.
    budgets: those that the score is the mean over.
    score: pass rate on validation, by which it was chosen.
  """

  strategy: str
  budgets: tuple[int, ...]
  score: float


def beside_test(
  selected: Sequence[Selected], cells: Sequence[Cell]
) -> list[dict[str, Any]]:
  """Looks up the test scores of what was chosen.

  Args:
    selected: what was chosen; what did not play on test is left out.
    cells: of test.

  Returns:
    A row each, with `strategy`, `budgets`, and the pass rates `chosen` and
    `test`; `again` is None.
  """
  played = {(cell.strategy, cell.budget): cell for cell in cells}
  rows = []
  for one in selected:
    keys = [(one.strategy, budget) for budget in one.budgets]
    if not all(key in played for key in keys):
      continue
    scores = [played[key].passed.mean() for key in keys]
    rows.append(
      {
        'strategy': one.strategy,
        'budgets': list(one.budgets),
        'chosen': one.score,
        'again': None,
        'test': float(np.mean(scores)),
      }
    )
  return rows


def rescore(
  line_up: LineUp,
  entrants: Mapping[str, Entrant],
  selected: Sequence[Selected],
  tasks: Sequence[Task],
  cells: Sequence[Cell],
  *,
  protocol: str,
  seeds: Sequence[int],
  progress: Callable[[list], Iterable] = iter,
) -> list[dict[str, Any]]:
  """Plays what was chosen on validation again, and looks up its test score.

  Args:
    line_up: plays.
    entrants: the strategies by name.
    selected: as of `beside_test`.
    tasks: of validation.
    cells: of test.
    protocol: which tests are visible.
    seeds: of the strategies; each is played once, with fresh draws.
    progress: wraps the list of what is played, `tqdm.tqdm` for example.

  Returns:
    The rows of `beside_test`, with the pass rate `again`.
  """
  rows = beside_test(selected, cells)
  for row in progress(rows):
    entrant = entrants[row['strategy']]
    runs = line_up.run_all(
      [
        Game(_of_seed(entrant, seed), tasks, protocol, budget, fresh)
        for budget in row['budgets']
        for fresh, seed in enumerate(seeds, _FRESH)
      ]
    )
    row['again'] = float(np.mean([run.passed.mean() for run in runs]))
  return rows


def _of_seed(entrant: Entrant, seed: int) -> Entrant:
  """The entrant as it is for one seed, whatever the draws."""
  return dataclasses.replace(
    entrant,
    make=lambda fresh: entrant.make(seed),
    models=lambda fresh: entrant.models(seed),
  )


def to_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
  """Prints the result of `beside_test` or `rescore`."""
  cells = [
    {
      'strategy': row['strategy'],
      'B': ', '.join(map(str, row['budgets'])),
      'chosen on validation': markdown.points(row['chosen']),
      'validation, again': (
        '' if row['again'] is None else markdown.points(row['again'])
      ),
      'test': markdown.points(row['test']),
      'test - chosen': markdown.points(row['test'] - row['chosen'], '+'),
    }
    for row in rows
  ]
  return (
    '### Selection score beside test score\n\n'
    'Solved in %: on validation, where it was chosen by this score; there '
    'again with fresh draws, if it was played so; on test. Several budgets: '
    'the mean over them. A score by which something was chosen is no estimate '
    'of what it is worth.'
    f'\n\n{markdown.table(cells, "llr")}\n'
  )
