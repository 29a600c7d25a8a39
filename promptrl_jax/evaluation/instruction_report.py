"""Tables of instructions that were rewritten, paired with where they began."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation import statistics
from promptrl_jax.tasks.instructions import Instruction, InstructionTask

INITIAL = 'initial'


@dataclasses.dataclass(frozen=True)
class Scores:
  """What one choice of instructions is worth.

  Attributes:
    dev, test: rewards [examples] of every task; `test` may be empty.
  """

  dev: Sequence[np.ndarray]
  test: Sequence[np.ndarray] = ()


def units(rewards: Sequence[np.ndarray]) -> np.ndarray:
  """What is resampled: tasks by their means, or the examples of one task."""
  if len(rewards) == 1:
    return np.asarray(rewards[0], np.float64)
  return np.array([np.mean(row) for row in rewards])


def summarise(
  choices: Mapping[str, Scores], resamples: int, seed: int
) -> dict[str, dict[str, Any]]:
  """Means, intervals and comparisons with the initial instructions, JSON-ready.

  Intervals are percentile bootstraps over tasks, or over the examples of a
  single task; p-values are of the paired sign-flip test, Holm-corrected over
  the choices.
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
  """Gains on test of the first of each pair over the second, JSON-ready.

  As in `summarise`, with p-values corrected over these pairs.
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
  """Scores of one strategy, each reward the mean over seeds."""
  mean = lambda splits: [
    np.mean(rewards, axis=0) for rewards in zip(*splits, strict=True)
  ]
  return Scores(mean([s.dev for s in scores]), mean([s.test for s in scores]))


def _gain(
  mine: np.ndarray, other: np.ndarray, resamples: int, seed: int
) -> dict[str, Any]:
  """Paired difference of means [1, units], its interval and p-value."""
  low, high = statistics.bootstrap_difference(
    mine, other, resamples=resamples, seed=seed
  )
  gain = float(mine.mean() - other.mean())
  return {
    'gain': {'mean': gain, 'low': low, 'high': high},
    'p': statistics.permutation_test(mine, other, seed=seed),
  }


def _correct(rows: Sequence[dict[str, Any]]) -> None:
  """Corrects the p-values in place for how many there are (Holm)."""
  adjusted = statistics.holm(np.array([row['p'] for row in rows]))
  for row, p in zip(rows, adjusted, strict=True):
    row['p'] = float(p)


def markdown(table: Mapping[str, Mapping[str, Any]]) -> str:
  """The table of `summarise`; rewards times 100."""
  lines = [
    '| instruction | dev | test [95 %] | against initial [95 %] | p (Holm) |',
    '|---|---:|---:|---:|---:|',
  ]
  for name, row in table.items():
    p = f'{row["p"]:.2g}' if 'p' in row else '-'
    cells = [_share(row.get('test')), _share(row.get('gain'), '+'), p]
    lines.append(f'| {name} | {100 * row["dev"]:.1f} | {" | ".join(cells)} |')
  return '\n'.join(lines)


def compared_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
  """The table of `compare`; rewards times 100."""
  lines = [
    '| instruction | against | test, difference [95 %] | p (Holm) |',
    '|---|---|---:|---:|',
  ]
  lines += [
    f'| {row["of"]} | {row["over"]} | {_share(row["gain"], "+")} | '
    f'{row["p"]:.2g} |'
    for row in rows
  ]
  return '\n'.join(lines)


def rows(
  tasks: Sequence[InstructionTask],
  chosen: Mapping[str, Sequence[Instruction]],
  choices: Mapping[str, Scores],
) -> list[dict[str, Any]]:
  """The instructions of each task with their dev rewards, JSON-ready."""
  return [
    {
      'task': task.task,
      'template': task.template,
      **{
        name: {
          'instruction': texts[i].text,
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
  """Mean test reward of the tasks of each group, for each choice."""
  return {
    name: {
      group: float(
        np.mean(
          [
            np.mean(row)
            for row, mine in zip(scores.test, groups, strict=True)
            if mine == group
          ]
        )
      )
      for group in sorted(set(groups))
    }
    for name, scores in choices.items()
  }


def group_markdown(table: Mapping[str, Mapping[str, float]]) -> str:
  """The table of `by_group`."""
  groups = list(next(iter(table.values())))
  lines = [
    f'| test | {" | ".join(groups)} |',
    f'|---|{"---:|" * len(groups)}',
  ]
  for name, row in table.items():
    cells = ' | '.join(f'{100 * row[group]:.1f}' for group in groups)
    lines.append(f'| {name} | {cells} |')
  return '\n'.join(lines)


def _share(value: Mapping[str, float] | None, sign: str = '') -> str:
  if value is None:
    return '-'
  mean, low, high = (100 * value[k] for k in ('mean', 'low', 'high'))
  return f'{mean:{sign}.1f} [{low:{sign}.1f}, {high:{sign}.1f}]'
