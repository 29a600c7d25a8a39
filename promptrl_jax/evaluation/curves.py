"""Learning curves of several algorithms, each over several seeds."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from promptrl_jax.evaluation import canvas

if TYPE_CHECKING:
  from matplotlib.axes import Axes

# Titles of the panels by metric. Metrics that no run has get no panel.
PANELS = {
  'reward/mean': 'Reward of sampled rewrites',
  'eval/validation_pass': 'Validation, greedy: pass@1',
  'eval/dev_reward': 'Dev, greedy: reward',
  'train/kl': 'KL to the reference, nats per token',
  'rollout/length': 'Tokens of a rewrite',
}
_PERCENT = ('reward/mean', 'eval/validation_pass', 'rollout/solved_rate')

_Curve = tuple[list[float], list[float]]  # x and y of each point


def draw(
  path: str | os.PathLike[str],
  runs: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]],
  panels: Mapping[str, str] = PANELS,
  over: str = '',
  label: str = 'updates',
) -> pathlib.Path:
  """Draws one panel per metric: the mean over seeds, and each seed faintly.

  Args:
    path: file to write.
    runs: maps an algorithm to its seeds; a seed is a list of metric rows, and
      row i holds the metrics of update i + 1.
    panels: maps a metric to the title of its panel.
    over: metric on the x axis; '' puts the number of updates there.
    label: label of the x axis.
  """
  present = {
    name
    for seeds in runs.values()
    for rows in seeds
    for row in rows
    for name in row
  }
  drawn = [name for name in panels if name in present]
  figure = canvas.new_figure(8.5, 2.6 * len(drawn))
  axes = np.atleast_1d(figure.subplots(len(drawn), 1, sharex=True))
  for name, panel in zip(drawn, axes, strict=True):
    canvas.clean(panel)
    canvas.title(panel, panels[name])
    if name.endswith(_PERCENT):
      canvas.percent(panel.yaxis)
    ends, labels, colours = [], [], []
    for i, (algorithm, seeds) in enumerate(runs.items()):
      colour = canvas.COLOURS[i % len(canvas.COLOURS)]
      end = _draw_seeds(
        panel, [_curve(rows, name, over) for rows in seeds], colour
      )
      if end is not None:
        ends.append(end)
        labels.append(algorithm)
        colours.append(colour)
    canvas.label_ends(panel, ends, labels, colours)
  axes[-1].set_xlabel(label, color=canvas.INK)
  return canvas.save(figure, path)


def _draw_seeds(
  axes: Axes, curves: Sequence[_Curve], colour: str
) -> tuple[float, float] | None:
  """Draws all seeds and their mean over the updates that all of them have.

  Returns:
    The last point of the mean, or None if a seed has no values.
  """
  for x, y in curves:
    axes.plot(x, y, color=colour, alpha=0.25, linewidth=0.8)
  size = min(len(y) for _, y in curves)
  if not size:
    return None
  x = curves[0][0][:size]
  mean = np.mean([y[:size] for _, y in curves], axis=0)
  axes.plot(x, mean, color=colour, linewidth=1.8)
  return x[-1], mean[-1]


def _curve(rows: Sequence[Mapping[str, Any]], name: str, over: str) -> _Curve:
  """Returns the curve of the metric `name`, from the rows that have it."""
  points = [
    (row[over] if over else i + 1, row[name])
    for i, row in enumerate(rows)
    if name in row
  ]
  return [x for x, _ in points], [y for _, y in points]
