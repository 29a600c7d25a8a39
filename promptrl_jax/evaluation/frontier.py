"""Cost against quality: which cells no other one beats in both."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation import canvas, markdown
from promptrl_jax.evolution import pareto

_MOST_LABELS = 12  # of the figure; names beyond would be illegible


def front(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
  """Returns the cells on the Pareto front of mean calls and pass@1.

  Of cells that are equal in both, the first one stands for all.

  Args:
    summary: result of `report.summarise`.

  Returns:
    Entries of the summary, by increasing calls.
  """
  cells = summary['cells']
  ranks = pareto.fronts(
    np.array([[-cell['calls'], cell['pass']['mean']] for cell in cells])
  )
  chosen = {}
  for cell, rank in zip(cells, ranks, strict=True):
    if rank == 0:
      chosen.setdefault((cell['calls'], cell['pass']['mean']), cell)
  return [chosen[key] for key in sorted(chosen)]


def to_markdown(cells: Sequence[Mapping[str, Any]]) -> str:
  """Prints the result of `front`."""
  rows = [
    {
      'strategy': cell['strategy'],
      'B': cell['budget'],
      'calls': f'{cell["calls"]:.2f}',
      'solved': markdown.points(cell['pass']['mean']),
    }
    for cell in cells
  ]
  return (
    '### Pareto front of cost and quality\n\n'
    'No other strategy or budget solves as many with fewer calls per problem.'
    f'\n\n{markdown.table(rows)}\n'
  )


def draw(
  path: str | os.PathLike[str], summary: Mapping[str, Any]
) -> pathlib.Path:
  """Draws all cells, a line per strategy, and their front as a stair."""
  figure = canvas.new_figure(8.0, 4.8)
  axes = figure.subplots()
  canvas.clean(axes)
  lines: dict[str, list[Mapping[str, Any]]] = {}
  for cell in sorted(summary['cells'], key=lambda cell: cell['budget']):
    lines.setdefault(cell['strategy'], []).append(cell)
  for name, cells in lines.items():
    is_subject = name == summary['subject']
    axes.plot(
      *_points(cells),
      color=canvas.SUBJECT if is_subject else canvas.GREY,
      marker='o',
      markersize=3.5,
      linewidth=1.8 if is_subject else 0.9,
      zorder=2 if is_subject else 1,
    )
  best = front(summary)
  x, y = _points(best)
  blue = canvas.COLOURS[0]
  axes.step(x, y, where='post', color=blue, linewidth=1.2, zorder=3)
  axes.plot(x, y, 'o', mfc='none', mec=blue, ms=9, zorder=3)
  axes.set_xscale('log', base=2)
  axes.xaxis.set_major_formatter('{x:g}')
  axes.set_xlabel('model calls per problem', color=canvas.INK)
  canvas.percent(axes.yaxis)
  canvas.title(axes, 'Problems solved by calls made, and the Pareto front')
  named = best[-_MOST_LABELS:]
  canvas.label_ends(
    axes,
    list(zip(*_points(named), strict=True)),
    [f'{cell["strategy"]}, B={cell["budget"]}' for cell in named],
    [blue] * len(named),
  )
  note = 'ringed: no other cell solves as many with fewer calls'
  if summary['subject'] in lines:
    note += f'; orange: {summary["subject"]}'
  canvas.caption(figure, f'{note}; grey: the others')
  return canvas.save(figure, path)


def _points(
  cells: Sequence[Mapping[str, Any]],
) -> tuple[list[float], list[float]]:
  return (
    [cell['calls'] for cell in cells],
    [cell['pass']['mean'] for cell in cells],
  )
