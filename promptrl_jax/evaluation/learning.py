"""Learning curves of the controllers of a run, as plain data for its page.

seed_0/metrics.jsonl, seed_1/...  ──> a panel per metric: seeds, mean, spread
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# Of the controller whose metrics lie in the folder of the seed itself.
_MAIN = 'ppo'
_PANELS = {
  'rollout/return': ('Return of training episodes', False),
  'rollout/solved_rate': ('Solved in training episodes', True),
  'eval/validation_pass': ('Solved on validation, greedy', True),
}
# Points of a curve: of longer ones, runs of updates are averaged.
_POINTS = 60


def read(
  folder: pathlib.Path, seeds: Sequence[int], points: int = _POINTS
) -> list[dict[str, Any]]:
  """Reads the curves of the controllers of a run.

  Args:
    folder: of the run, with `seed_N/metrics.jsonl`, and those of other
      controllers in folders named after them below `seed_N`.
    seeds: which are shown; what a seed does not have is left out.
    points: most points of a curve.

  Returns:
    A panel per metric that is there: `metric`, `title`, `is_share`, and
    `learners`, each with `name`, its `seeds` and their `mean`. A curve has the
    lists `updates`, `calls` (model calls of the training so far) and `y`; the
    mean, over as many points as all seeds have, also `sd`, the standard
    deviation over seeds, or None if there is a single seed.
  """
  rows: dict[str, dict[int, list[dict[str, Any]]]] = {}
  for seed in seeds:
    place = folder / f'seed_{seed}'
    own = place / 'metrics.jsonl'
    named = {_MAIN: own} if own.is_file() else {}
    named |= {p.parent.name: p for p in sorted(place.glob('*/metrics.jsonl'))}
    for name, path in named.items():
      lines = path.read_text(encoding='utf-8').splitlines()
      rows.setdefault(name, {})[seed] = [json.loads(line) for line in lines]
  panels = []
  for metric, (title, is_share) in _PANELS.items():
    learners = [
      _learner(name, metric, by_seed, points) for name, by_seed in rows.items()
    ]
    learners = [learner for learner in learners if learner['seeds']]
    if learners:
      panels.append(
        {
          'metric': metric,
          'title': title,
          'is_share': is_share,
          'learners': learners,
        }
      )
  return panels


def _learner(
  name: str,
  metric: str,
  by_seed: Mapping[int, Sequence[Mapping[str, Any]]],
  points: int,
) -> dict[str, Any]:
  raw = {seed: _points(rows, metric) for seed, rows in by_seed.items()}
  raw = {seed: table for seed, table in raw.items() if table.size}
  longest = max(map(len, raw.values()), default=1)
  size = -(-longest // points)  # One for all seeds, so that they stay paired.
  curves = {seed: _averaged(table, size) for seed, table in raw.items()}
  learner: dict[str, Any] = {
    'name': name,
    'seeds': [{'seed': s, **_lists(table)} for s, table in curves.items()],
    'mean': None,
  }
  if curves:
    shared = min(map(len, curves.values()))
    stacked = np.stack([table[:shared] for table in curves.values()])
    spread = stacked[..., 2].std(axis=0, ddof=1) if len(curves) > 1 else None
    learner['mean'] = _lists(stacked.mean(axis=0)) | {
      'sd': None if spread is None else spread.tolist()
    }
  return learner


def _points(rows: Sequence[Mapping[str, Any]], metric: str) -> np.ndarray:
  """Updates, calls and values, [points, 3], of the rows with the metric."""
  calls = np.cumsum([row.get('budget/calls', 0.0) for row in rows])
  return np.array(
    [
      (row['step'] + 1, spent, row[metric])
      for row, spent in zip(rows, calls, strict=True)
      if metric in row
    ],
    float,
  )


def _averaged(table: np.ndarray, size: int) -> np.ndarray:
  """Means over runs of `size` rows; the last run may be shorter."""
  starts = np.arange(0, len(table), size)
  counts = np.diff(starts, append=len(table))
  return np.add.reduceat(table, starts) / counts[:, None]


def _lists(table: np.ndarray) -> dict[str, list[float]]:
  return dict(zip(('updates', 'calls', 'y'), table.T.tolist(), strict=True))
