"""Tables that compare rewritten instructions with the initial ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation import markdown, statistics
from promptrl_jax.tasks import instructions
from promptrl_jax.types import Task

INITIAL = 'initial'


@dataclasses.dataclass(frozen=True)
class Scores:
  """Rewards of one choice of instructions, one array per task.

  Attributes:
    dev: rewards on the dev split, float [examples] for each task.
    test: rewards on the test split in the same form; empty if there is none.
  """

  dev: Sequence[np.ndarray]
  test: Sequence[np.ndarray] = ()


def units(rewards: Sequence[np.ndarray]) -> np.ndarray:
  """Returns the units of resampling, float [units].

  With several tasks a unit is the mean reward of a task. With a single task the
  units are its examples.
  """
  if len(rewards) == 1:
    return np.asarray(rewards[0], np.float64)
  return np.array([np.mean(row) for row in rewards])


def summarise(
  choices: Mapping[str, Scores], resamples: int, seed: int
) -> dict[str, dict[str, Any]]:
  """Compares every choice of instructions with the initial instructions.

  Intervals are percentile bootstraps over tasks, or over the examples of a
  single task. P-values are those of the paired sign-flip test, Holm-corrected
  over the choices, among which `initial` must be. The same choices and seed
  give the same table, ready for JSON.

  Returns:
    For each choice its mean on `dev`, and if there is a test split the mean and
    interval on `test`, the `gain` over the initial instructions and `p`.
  """
  table: dict[str, dict[str, Any]] = {}
  base = choices[INITIAL]
  for name, scores in choices.items():
    row: dict[str, Any] = {'dev': float(np.mean(units(scores.dev)))}
    if len(scores.test):
      mine, other = units(scores.test)[None], units(base.test)[None]
      low, high = statistics.bootstrap_interval(
        mine, resamples=resamples, seed=seed
      )
      row['test'] = {'mean': float(mine.mean()), 'low': low, 'high': high}
      if name != INITIAL:
        row |= _gain(mine, other, resamples, seed)
    table[name] = row
  _correct([row for row in table.values() if 'p' in row])
  return table


def compare(
  choices: Mapping[str, Scores],
  pairs: Sequence[tuple[str, str]],
  resamples: int,
  seed: int,
) -> list[dict[str, Any]]:
  """Returns the gain on test of the first choice of each pair over the second.

  Intervals and p-values are those of `summarise`; the p-values are corrected
  over these pairs. The rows are ready for JSON.
  """
  rows = [
    {'of': of, 'over': over}
    | _gain(
      units(choices[of].test)[None],
      units(choices[over].test)[None],
      resamples,
      seed,
    )
    for of, over in pairs
  ]
  _correct(rows)
  return rows


def over_seeds(scores: Sequence[Scores]) -> Scores:
  """Averages the scores of one strategy over seeds, example by example."""

  def mean(splits: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    return [np.mean(rewards, axis=0) for rewards in zip(*splits, strict=True)]

  return Scores(mean([s.dev for s in scores]), mean([s.test for s in scores]))


def _gain(
  mine: np.ndarray, other: np.ndarray, resamples: int, seed: int
) -> dict[str, Any]:
  """Returns the paired difference of means of two [1, units] arrays.

  The difference comes with its interval and p-value.
  """
  low, high = statistics.bootstrap_difference(
    mine, other, resamples=resamples, seed=seed
  )
  gain = float(mine.mean() - other.mean())
  return {
    'gain': {'mean': gain, 'low': low, 'high': high},
    'p': statistics.permutation_test(mine, other, seed=seed),
  }


def _correct(rows: Sequence[dict[str, Any]]) -> None:
  """Replaces the p-values of the rows by Holm-corrected ones, in place."""
  adjusted = statistics.holm(np.array([row['p'] for row in rows]))
  for row, p in zip(rows, adjusted, strict=True):
    row['p'] = float(p)


def to_markdown(table: Mapping[str, Mapping[str, Any]]) -> str:
  """Prints the table of `summarise` as Markdown; rewards are times 100."""
  return markdown.table(
    [
      {
        'instruction': name,
        'dev': markdown.points(row['dev']),
        'test [95 %]': _interval(row.get('test')),
        'against initial [95 %]': _interval(row.get('gain'), '+'),
        'p (Holm)': f'{row["p"]:.2g}' if 'p' in row else '-',
      }
      for name, row in table.items()
    ]
  )


def _interval(value: Mapping[str, float] | None, sign: str = '') -> str:
  return markdown.interval(value, sign=sign) if value else '-'


def compared_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
  """Prints the rows of `compare` as Markdown; rewards are times 100."""
  cells = [
    {
      'instruction': row['of'],
      'against': row['over'],
      'test, difference [95 %]': markdown.interval(row['gain'], sign='+'),
      'p (Holm)': f'{row["p"]:.2g}',
    }
    for row in rows
  ]
  return markdown.table(cells, 'llr')


def rows(
  tasks: Sequence[Task],
  chosen: Mapping[str, Sequence[str]],
  choices: Mapping[str, Scores],
) -> list[dict[str, Any]]:
  """Returns the instructions of each task with their dev rewards, for JSON.

  Args:
    tasks: the tasks.
    chosen: instructions by choice, one for each task.
    choices: rewards by choice; must have the keys of `chosen`.
  """
  return [
    {
      'task': instructions.kind_of(task),
      'template': instructions.template_of(task),
      **{
        name: {
          'instruction': texts[i],
          'dev': float(choices[name].dev[i].mean()),
        }
        for name, texts in chosen.items()
      },
    }
    for i, task in enumerate(tasks)
  ]


def by_group(
  choices: Mapping[str, Scores], groups: Sequence[str]
) -> dict[str, dict[str, float]]:
  """Returns the mean test reward by choice, and by the group of each task."""

  def mean(scores: Scores, group: str) -> float:
    pairs = zip(scores.test, groups, strict=True)
    return float(np.mean([np.mean(row) for row, of in pairs if of == group]))

  return {
    name: {group: mean(scores, group) for group in sorted(set(groups))}
    for name, scores in choices.items()
  }


def group_markdown(table: Mapping[str, Mapping[str, float]]) -> str:
  """Prints the table of `by_group` as Markdown; rewards are times 100."""
  return markdown.table(
    [
      {'test': name}
      | {group: markdown.points(reward) for group, reward in row.items()}
      for name, row in table.items()
    ]
  )
