"""The style that all figures share, and the function that writes PNG files.

Figures are built without pyplot, so they need no display, keep no global state
and do not have to be closed. Each curve is labelled at its end instead of in a
legend. The colours are those of Okabe and Ito 2008, Color Universal Design;
where two curves could be confused, a marker, a position or a name distinguishes
them as well.

Matplotlib is imported when a figure is drawn: it is a fifth of the start of a
job that draws at its end.
"""

from __future__ import annotations

import io
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from promptrl_jax.files import write_atomically

if TYPE_CHECKING:
  from matplotlib.axes import Axes
  from matplotlib.figure import Figure

INK = '#222222'
GREY = '#c4c4c4'
# The colour of the strategy that a figure is about.
SUBJECT = '#d55e00'
COLOURS = ('#0072b2', '#009e73', '#cc79a7', '#56b4e9', '#e69f00', '#555555')
MARKERS = 'os^Dvp'

_LINE = {'arrowstyle': '-', 'linewidth': 0.6, 'shrinkA': 1, 'shrinkB': 4}
_LABEL_HEIGHT = 0.16  # inches, one line of 9 point text


def new_figure(width: float, height: float) -> Figure:
  """Returns an empty figure with a canvas; `width` and `height` in inches."""
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  figure = Figure(figsize=(width, height), dpi=150, layout='constrained')
  FigureCanvasAgg(figure)
  return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> pathlib.Path:
  """Writes the figure as PNG, atomically, and returns the path."""
  image = io.BytesIO()
  # Without the version stamp the same numbers give the same bytes.
  figure.savefig(image, format='png', metadata={'Software': None})
  return write_atomically(path, image.getvalue())


def clean(axes: Axes, grid: str = 'y') -> None:
  """Removes two spines, greys the other two and draws a grid on one axis."""
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
  """Writes the title of the axes, aligned to the left."""
  axes.set_title(text, loc='left', fontsize=size, color=colour, weight='bold')


def caption(figure: Figure, text: str) -> None:
  """Writes a small note under the figure."""
  figure.supxlabel(text, fontsize=8, color='#777777', x=0.01, ha='left')


def percent(axis: Any) -> None:
  """Formats the ticks of `axis`, which shows shares, as percent.

  They have as many decimals as their distance takes: 2.5 % is not 2 %.
  """
  from matplotlib.ticker import PercentFormatter

  axis.set_major_formatter(PercentFormatter(1.0))


def thousands(axis: Any) -> None:
  """Formats the ticks of `axis`, which shows counts, as 10k or 2M."""
  from matplotlib.ticker import EngFormatter

  axis.set_major_formatter(EngFormatter(sep=''))


def for_text(colour: str) -> tuple[float, ...]:
  """Returns a darker shade of `colour` that is legible as small text."""
  return tuple(0.72 * _rgb(colour))


def tint(colour: str, share: float) -> tuple[float, ...]:
  """Returns `colour` mixed with white, of which 1 - `share` is white."""
  return tuple(1 - share * (1 - _rgb(colour)))


def _rgb(colour: str) -> np.ndarray:
  from matplotlib.colors import to_rgb

  return np.array(to_rgb(colour))


def spread(positions: Sequence[float], gap: float) -> np.ndarray:
  """Returns positions at least `gap` apart, as close as possible to the given.

  The order is kept and the sum of squared shifts is minimal. Subtracting
  `i * gap` from the i-th smallest position turns the constraint into "not
  decreasing", which pool-adjacent-violators (isotonic regression) solves.
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
  """Writes each label right of the axes, with a thin line to its point.

  A point is the end (x, y) of a curve, in data coordinates. Must be called
  last: it reads the limits of the axes and fixes them.
  """
  low, high = axes.get_ylim()
  axes.set_ylim(low, high)
  panel = axes.get_window_extent().height / axes.figure.dpi
  heights = [(y - low) / (high - low) for _, y in points]
  label_heights = spread(heights, _LABEL_HEIGHT / panel)
  for point, height, label, colour in zip(
    points, label_heights, labels, colours, strict=True
  ):
    axes.annotate(
      label,
      xy=point,
      xytext=(1.035, height),
      textcoords='axes fraction',
      fontsize=9,
      color=for_text(colour),
      va='center',
      annotation_clip=False,
      arrowprops={'color': colour, **_LINE},
    )
