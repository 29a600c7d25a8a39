"""Reliability diagrams: what a model says against what came true."""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from promptrl_jax.evaluation import canvas

if TYPE_CHECKING:
  from matplotlib.axes import Axes
  from matplotlib.figure import Figure


def of_critic(
  path: str | os.PathLike[str], found: Mapping[str, Mapping[str, Any]]
) -> pathlib.Path:
  """Draws what a critic said against what came true.

  Args:
    path: file to write.
    found: result of `evaluation.critic.measure`; what is reliable lies on the
      diagonal.
  """
  figure, axes = _diagonal('return that the critic expects', 'mean return')
  for (name, row), color in zip(
    found.items(), (canvas.GREY, canvas.SUBJECT), strict=True
  ):
    said = [b['predicted'] for b in row['bins']]
    true = [b['happened'] for b in row['bins']]
    label = f'{name}, mean error {row["error"]:.3f}'
    axes.plot(said, true, 'o-', color=color, markersize=4, label=label)
  axes.legend(frameon=False, fontsize=8)
  canvas.title(axes, 'Reliability of the critic')
  return canvas.save(figure, path)


def of_verifiers(
  path: str | os.PathLike[str], found: Mapping[str, Mapping[str, Any]]
) -> pathlib.Path:
  """Draws the probabilities of verifiers against the share that is right.

  Args:
    path: file to write.
    found: by strategy and split, what `evaluation.verifying.quality` returns;
      bars are 95 % intervals of validation, on which no verifier was fitted.
  """
  figure, axes = _diagonal(
    'P(right), as the verifier says', 'share that is right'
  )
  for (name, splits), color in zip(
    found.items(), itertools.cycle(canvas.COLOURS), strict=False
  ):
    bins = splits['validation'].get('bins', ())
    said = [b['predicted'] for b in bins]
    true = [b['happened'] for b in bins]
    bars = [
      [b['happened'] - b['low'] for b in bins],
      [b['high'] - b['happened'] for b in bins],
    ]
    axes.errorbar(
      said, true, bars, fmt='o-', color=color, markersize=4, label=name
    )
  axes.legend(frameon=False, fontsize=8)
  canvas.title(axes, 'Reliability of the verifiers on validation')
  return canvas.save(figure, path)


def _diagonal(said: str, true: str) -> tuple[Figure, Axes]:
  """A square with the line on which what was said came true."""
  figure = canvas.new_figure(4.6, 4.4)
  axes = figure.subplots()
  canvas.clean(axes)
  axes.axline((0, 0), slope=1, color=canvas.GREY, linewidth=1.0)
  axes.set_xlabel(said, color=canvas.INK)
  axes.set_ylabel(true, color=canvas.INK)
  return figure, axes
