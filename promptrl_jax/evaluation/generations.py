"""How the prompts of several runs evolved, generation by generation.

Rows are those of `training.gpro.loop.Loop.generations`, the numbers of
`evolution.convergence.GenerationMetrics`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation import markdown
from promptrl_jax.evolution import convergence

Rows = Sequence[Mapping[str, Any]]
MEASURES = ('best', 'mean', 'variance', 'jaccard', 'embedding', 'hypervolume')
WINDOW = 5  # generations that a slope is taken over


def with_slopes(rows: Rows) -> list[dict[str, Any]]:
  """Returns rows with the `slope` of the best fitness up to each of them."""
  best = [row['best'] for row in rows]
  return [
    {**row, 'slope': convergence.slope(best[: i + 1], WINDOW)}
    for i, row in enumerate(rows)
  ]


def summarise(runs: Sequence[Rows], threshold: float) -> dict[str, Any]:
  """The numbers of the runs of one method, as `json.dumps` accepts them.

  Args:
    runs: rows of each run; the means go as far as the shortest one.
    threshold: of the best fitness.

  Returns:
    `generations`: for each, its number and the means over runs of `MEASURES`
    (those that were measured) and of the `slope` of the last five; `reached`:
    of each run the generation in which the best fitness first was `threshold`
    or more, None if none was.
  """
  extended = [with_slopes(rows) for rows in runs]
  generations = []
  for rows in zip(*extended, strict=False):
    means = {
      name: float(np.mean([row[name] for row in rows]))
      for name in (*MEASURES, 'slope')
      if all(row[name] is not None for row in rows)
    }
    generations.append({'generation': rows[0]['generation'], **means})
  reached = []
  for rows in runs:
    best = [row['best'] for row in rows]
    place = convergence.generations_to_threshold(best, threshold)
    reached.append(None if place is None else rows[place]['generation'])
  return {
    'threshold': threshold,
    'generations': generations,
    'reached': reached,
  }


def to_markdown(methods: Mapping[str, Mapping[str, Any]]) -> str:
  """The table of `summarise`d methods, those in which nothing evolved left out.

  Empty where nothing evolved at all.
  """
  evolved = {n: of for n, of in methods.items() if of['generations']}
  if not evolved:
    return ''
  measured = [
    name
    for name in MEASURES
    if any(name in of['generations'][0] for of in evolved.values())
  ]
  threshold = next(iter(evolved.values()))['threshold']
  rows = []
  for name, of in evolved.items():
    first, last = of['generations'][0], of['generations'][-1]
    reached = [place for place in of['reached'] if place is not None]
    median = f'{np.median(reached):g} ' if reached else ''
    rows.append(
      {'method': name, 'generations': len(of['generations'])}
      | {m: _change(m, first, last) for m in measured}
      | {
        'slope': f'{last["slope"]:+.4f}',
        f'{threshold:g} reached': (
          f'{median}({len(reached)} of {len(of["reached"])})'
        ),
      }
    )
  return (
    '# Evolution of the prompts\n\n'
    'First → last generation, means over people: what critics expect of the '
    'best prompt and of all, variance of that, mean distance of two prompts by '
    f'words and by embedding; the slope of the best one over the last {WINDOW} '
    f'generations; and the generation in which it first was {threshold:g} or '
    'more, the median of the people with whom it ever was.\n\n'
    f'{markdown.table(rows)}\n'
  )


def _change(
  name: str, first: Mapping[str, Any], last: Mapping[str, Any]
) -> str:
  if name not in first or name not in last:
    return ''
  digits = 4 if name == 'variance' else 3
  return f'{first[name]:.{digits}f} → {last[name]:.{digits}f}'
