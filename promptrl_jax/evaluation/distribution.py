"""The distribution of soft scores: shares of hidden tests that pass.

A mean says little of a reward that is mostly 0 or 1: two strategies with the
same soft-pass@1 may differ in how many problems they nearly solve.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation import canvas, markdown
from promptrl_jax.evaluation.cells import Cell

# Bins in %: no test, four quarters of those between, all tests.
BINS = ('0', '1-25', '26-50', '51-75', '76-99', '100')
_EDGES = (0.25, 0.5, 0.75)
_BAR = 0.32  # inches


def measure(cells: Sequence[Cell]) -> list[dict[str, Any]]:
  """Returns `shares` of submissions in each of `BINS`, a row per cell."""
  return [
    {
      'strategy': cell.strategy,
      'budget': cell.budget,
      'shares': (
        np.bincount(_bins(cell.soft.ravel()), minlength=len(BINS))
        / cell.soft.size
      ).tolist(),
    }
    for cell in cells
  ]


def _bins(soft: np.ndarray) -> np.ndarray:
  """The bin of each score: quarters end at their upper edge."""
  between = 1 + np.searchsorted(_EDGES, soft, side='left')
  last = len(BINS) - 1
  return np.where(soft == 0, 0, np.where(soft == 1, last, between))


def _at_largest(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
  largest = max(row['budget'] for row in rows)
  return [row for row in rows if row['budget'] == largest]


def to_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
  """Prints the rows of `measure` at the largest budget."""
  shown = _at_largest(rows)
  cells = [
    {'strategy': row['strategy']}
    | dict(zip(BINS, map(markdown.points, row['shares']), strict=True))
    for row in shown
  ]
  return (
    f'### Share of hidden tests passed, at B={shown[0]["budget"]}\n\n'
    'In % of submissions, by the share of tests that pass, in %.\n\n'
    f'{markdown.table(cells)}\n'
  )


def draw(
  path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]
) -> pathlib.Path:
  """Draws the rows of `measure` at the largest budget as stacked bars."""
  shown = _at_largest(rows)[::-1]  # the first one on top
  names = [row['strategy'] for row in shown]
  shares = np.array([row['shares'] for row in shown])
  figure = canvas.new_figure(8.0, 1.6 + _BAR * len(shown))
  axes = figure.subplots()
  canvas.clean(axes, grid='x')
  left = np.zeros(len(shown))
  for number, name in enumerate(BINS):
    shade = 0.15 + 0.85 * number / (len(BINS) - 1)
    axes.barh(
      names,
      shares[:, number],
      left=left,
      color=canvas.tint(canvas.COLOURS[0], shade),
      edgecolor='white',
      linewidth=0.6,
      label=f'{name} %',
    )
    left += shares[:, number]
  axes.set_xlim(0, 1)
  canvas.percent(axes.xaxis)
  axes.set_xlabel('submissions', color=canvas.INK)
  canvas.title(axes, f'Share of hidden tests passed, B={shown[0]["budget"]}')
  figure.legend(
    loc='outside lower center', ncols=len(BINS), frameon=False, fontsize=8
  )
  return canvas.save(figure, path)
