"""Learning curves of several algorithms, each over several seeds."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation import canvas

# Metric -> title; those that a run lacks are left out.
PANELS = {
  'reward/mean': 'Reward of sampled rewrites',
  'eval/validation_pass': 'Validation, greedy: pass@1',
  'eval/dev_reward': 'Dev, greedy: reward',
  'train/kl': 'KL to the reference, nats per token',
  'rollout/length': 'Tokens of a rewrite',
}
_PERCENT = ('reward/mean', 'eval/validation_pass', 'rollout/solved_rate')


def draw(
  path: str | os.PathLike[str],
  runs: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]],
  panels: Mapping[str, str] = PANELS,
  over: str = '',
  label: str = 'updates',
) -> pathlib.Path:
  """Draws the mean over seeds of each panel, and every seed faintly.

  Args:
    path: file to write.
    runs: rows of metrics by algorithm and seed; row i is of update i + 1.
    panels: metric -> title.
    over: metric to draw over; '' means updates.
    label: of what is drawn over.
  """
  drawn = [
    name
    for name in panels
    if any(name in row for run in runs.values() for seed in run for row in seed)
  ]
  figure = canvas.new_figure(8.5, 2.6 * len(drawn))
  axes = np.atleast_1d(figure.subplots(len(drawn), 1, sharex=True))
  for name, panel in zip(drawn, axes, strict=True):
    canvas.clean(panel)
    canvas.title(panel, panels[name])
    if name.endswith(_PERCENT):
      canvas.percent(panel.yaxis)
    ends, labels, colours = [], [], []
    for place, (algorithm, seeds) in enumerate(runs.items()):
      colour = canvas.COLOURS[place % len(canvas.COLOURS)]
      curves = [_curve(rows, name, over) for rows in seeds]
      for x, y in curves:
        panel.plot(x, y, color=colour, alpha=0.25, linewidth=0.8)
      size = min(len(y) for _, y in curves)
      if not size:
        continue
      mean = np.mean([y[:size] for _, y in curves], axis=0)
      panel.plot(curves[0][0][:size], mean, color=colour, linewidth=1.8)
      ends.append((curves[0][0][size - 1], mean[-1]))
      labels.append(algorithm)
      colours.append(colour)
    canvas.label_ends(panel, ends, labels, colours)
  axes[-1].set_xlabel(label, color=canvas.INK)
  return canvas.save(figure, path)


def _curve(
  rows: Sequence[Mapping[str, Any]], name: str, over: str
) -> tuple[list[float], list[float]]:
  there = [
    (row[over] if over else i + 1, row[name])
    for i, row in enumerate(rows)
    if name in row
  ]
  return [i for i, _ in there], [value for _, value in there]
