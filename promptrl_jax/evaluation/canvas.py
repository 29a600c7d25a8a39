"""The look that all figures share, and how they become files.

Figures are built without pyplot: no display, no global state, nothing to close.
Curves carry their names at their ends instead of a legend. Colours are those of
Okabe and Ito 2008, Color Universal Design; where two things could be confused a
second cue (marker, position, name) comes with the colour.
"""

from __future__ import annotations

import io
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import matplotlib.colors
import matplotlib.ticker
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from promptrl_jax.files import write_atomically

INK = '#222222'
GREY = '#c4c4c4'
# What a figure is about has a colour of its own.
SUBJECT = '#d55e00'
COLOURS = ('#0072b2', '#009e73', '#cc79a7', '#56b4e9', '#e69f00', '#555555')
MARKERS = 'os^Dvp'

_LABEL_HEIGHT = 0.16  # inches, one line of 9 point text


def new_figure(width: float, height: float) -> Figure:
  """Returns an empty figure of this size in inches, with its own canvas."""
  figure = Figure(figsize=(width, height), dpi=150, layout='constrained')
  FigureCanvasAgg(figure)
  return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> pathlib.Path:
  """Writes the figure as PNG, whole or not at all; returns the path."""
  image = io.BytesIO()
  # Without the version stamp the same numbers give the same bytes.
  figure.savefig(image, format='png', metadata={'Software': None})
  return write_atomically(path, image.getvalue())


def clean(axes: Axes, grid: str = 'y') -> None:
  """Leaves two faint spines and a grid along one axis."""
  for side in ('top', 'right'):
    axes.spines[side].set_visible(False)
  for side in ('left', 'bottom'):
    axes.spines[side].set_color('#999999')
  axes.tick_params(colors='#555555', labelsize=9)
  axes.grid(axis=grid, color='#e2e2e2', linewidth=0.6)  # type: ignore[arg-type]
  axes.set_axisbelow(True)


def title(
  axes: Axes, text: str, *, size: float = 11, colour: str = INK
) -> None:
  """Writes the one sentence that the axes show."""
  axes.set_title(text, loc='left', fontsize=size, color=colour, weight='bold')


def caption(figure: Figure, text: str) -> None:
  """Writes a small note under the figure."""
  figure.supxlabel(text, fontsize=8, color='#777777', x=0.01, ha='left')


def percent(axis: Any) -> None:
  """Prints the ticks of a share as percent."""
  axis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0, decimals=0))


def thousands(axis: Any) -> None:
  """Prints the ticks of a count as 10k, 2M."""
  axis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=''))


def for_text(colour: str) -> tuple[float, ...]:
  """Returns the colour, dark enough to be read as small text on white."""
  return tuple(0.72 * np.array(matplotlib.colors.to_rgb(colour)))


def spread(positions: Sequence[float], gap: float) -> np.ndarray:
  """Moves positions apart to at least `gap`, in order and as little as may be.

  With the gaps taken out of the sorted positions, "at least gap apart" reads
  "not decreasing": least-squares isotonic regression by pooling neighbours.
  """
  values = np.asarray(positions, dtype=float)
  order = np.argsort(values, kind='stable')
  pools: list[list[float]] = []
  for value in values[order] - gap * np.arange(values.size):
    pools.append([float(value)])
    while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
      last = pools.pop()
      pools[-1] += last
  levels = np.concatenate([np.full(len(pool), np.mean(pool)) for pool in pools])
  result = np.empty_like(values)
  result[order] = levels + gap * np.arange(values.size)
  return result


def label_ends(
  axes: Axes,
  points: Sequence[tuple[float, float]],
  labels: Sequence[str],
  colours: Sequence[str],
) -> None:
  """Writes each label right of the axes, tied to its point by a thin line.

  Call it last: the limits of the axes must not move any more.
  """
  low, high = axes.get_ylim()
  axes.set_ylim(low, high)
  panel = axes.get_window_extent().height / axes.figure.dpi
  heights = [(y - low) / (high - low) for _, y in points]
  places = spread(heights, _LABEL_HEIGHT / panel)
  for point, place, label, colour in zip(
    points, places, labels, colours, strict=True
  ):
    axes.annotate(
      label,
      xy=point,
      xytext=(1.035, place),
      textcoords='axes fraction',
      fontsize=9,
      color=for_text(colour),
      va='center',
      annotation_clip=False,
      arrowprops={
        'arrowstyle': '-',
        'color': colour,
        'linewidth': 0.6,
        'shrinkA': 1,
        'shrinkB': 4,
      },
    )
