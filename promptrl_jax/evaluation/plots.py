"""Figures of a run as PNG files; each function returns the path it wrote."""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from promptrl_jax.evaluation import canvas
from promptrl_jax.evaluation.tables import ORACLE_LABEL

if TYPE_CHECKING:
  from matplotlib.axes import Axes
  from matplotlib.figure import Figure

# A single panel with more interval bands than this would be illegible.
_MAX_BANDS = 5
_COLUMNS = 4  # of the grid that is drawn instead


def learning_curve(
  path: str | os.PathLike[str],
  steps: Sequence[float],
  returns: Sequence[float],
  pass_rates: Sequence[float],
  *,
  validation_steps: Sequence[float] = (),
  validation_pass_rates: Sequence[float] = (),
  window: int = 1,
) -> pathlib.Path:
  """Draws return and pass rate over environment steps.

  Args:
    path: file to write.
    steps, returns, pass_rates: `[updates]`, means over the training episodes.
    validation_steps, validation_pass_rates: `[evaluations]`, greedy; the best
      one is marked by a ring and named in the title.
    window: number of updates in the running mean drawn over the raw values.

  Raises:
    ValueError: the lengths of the arrays differ, or there are no updates.
  """
  if not len(steps) == len(returns) == len(pass_rates) >= 1:
    raise ValueError(
      'steps, returns and pass_rates need one value per update, got '
      f'{len(steps)}, {len(returns)} and {len(pass_rates)}.'
    )
  if len(validation_steps) != len(validation_pass_rates):
    raise ValueError(
      f'{len(validation_steps)} validation steps but '
      f'{len(validation_pass_rates)} validation pass rates.'
    )
  figure = canvas.new_figure(7.5, 5.2)
  upper, lower = figure.subplots(2, 1, sharex=True)
  colour = canvas.COLOURS[0]
  _draw_smoothed(upper, steps, returns, window, colour)
  ends = [_draw_smoothed(lower, steps, pass_rates, window, colour)]
  canvas.title(upper, 'Mean episode return')
  solved, labels, colours = 'Problems solved', ['training'], [colour]
  if len(validation_steps):
    x, y = validation_steps, validation_pass_rates
    lower.plot(x, y, color=canvas.SUBJECT, marker='o', linewidth=1.2)
    best = int(np.argmax(y))
    ring = {'mfc': 'none', 'mec': canvas.SUBJECT, 'mew': 1.5}
    lower.plot(x[best], y[best], 'o', ms=13, **ring)
    solved += f' (best validation {y[best]:.0%} at step {x[best]:,.0f})'
    ends.append((x[-1], y[-1]))
    labels.append('validation')
    colours.append(canvas.SUBJECT)
  canvas.title(lower, solved)
  canvas.percent(lower.yaxis)
  canvas.thousands(lower.xaxis)
  lower.set_xlabel('environment steps', color=canvas.INK)
  canvas.label_ends(lower, ends, labels, colours)
  return canvas.save(figure, path)


def _draw_smoothed(
  axes: Axes,
  steps: Sequence[float],
  values: Sequence[float],
  window: int,
  colour: str,
) -> tuple[float, float]:
  """Draws values and their running mean; returns the last point of the mean."""
  canvas.clean(axes)
  smooth = _running_mean(np.asarray(values, float), window)
  if window > 1:
    axes.plot(steps, values, color=colour, alpha=0.3, linewidth=0.8)
  axes.plot(steps, smooth, color=colour, linewidth=1.8)
  return steps[-1], smooth[-1]


def _running_mean(values: np.ndarray, window: int) -> np.ndarray:
  """Returns means over the last `window` values, over fewer at the start."""
  sums = np.cumsum(np.concatenate([[0.0], values]))
  ends = np.arange(1, values.size + 1)
  starts = np.maximum(0, ends - window)
  return (sums[ends] - sums[starts]) / (ends - starts)


def solved_at_budget(
  path: str | os.PathLike[str], summary: Mapping[str, Any]
) -> pathlib.Path:
  """Draws solved@B over B, of `report.summarise`, with interval bands.

  Up to five strategies share a single panel. With more, each rival has a panel
  that also shows the subject, and the other rivals in grey.
  """
  curves: dict[str, list[Mapping[str, Any]]] = {}
  for cell in sorted(summary['cells'], key=lambda cell: cell['budget']):
    curves.setdefault(cell['strategy'], []).append(cell)
  subject = summary['subject']
  strategies = dict.fromkeys(cell['strategy'] for cell in summary['cells'])
  oracle = summary['protocol'] == 'oracle'
  protocol = ORACLE_LABEL if oracle else f'protocol {summary["protocol"]}'
  figure = _BudgetFigure(
    curves=curves,
    subject=subject if subject in curves else None,
    rivals=[name for name in strategies if name != subject],
    budgets=sorted({cell['budget'] for cell in summary['cells']}),
    title=f'Problems solved, {protocol}',
    x_label='b, tries per problem' if oracle else 'B, model calls per problem',
    note=f'{summary["problems"]} problems; bands are 95 % intervals',
  )
  draw = _one_panel if len(curves) <= _MAX_BANDS else _panel_per_rival
  return canvas.save(draw(figure), path)


@dataclasses.dataclass(frozen=True)
class _BudgetFigure:
  """The content of a figure of `solved_at_budget`.

  Attributes:
    curves: cells of each strategy, by increasing budget.
    subject: the strategy to highlight; None if it has no curve.
    rivals: the other strategies, in the order of the report.
    budgets: all budgets, increasing.
  """

  curves: Mapping[str, Sequence[Mapping[str, Any]]]
  subject: str | None
  rivals: Sequence[str]
  budgets: Sequence[int]
  title: str
  x_label: str
  note: str


def _one_panel(content: _BudgetFigure) -> Figure:
  """Draws all strategies into a single panel."""
  figure = canvas.new_figure(8.0, 4.8)
  axes = figure.subplots()
  _budget_axes(axes, content.budgets)
  names = [*content.rivals]
  if content.subject is not None:
    names.append(content.subject)
  ends, colours = [], []
  for i, name in enumerate(names):
    is_subject = name == content.subject
    colours.append(canvas.SUBJECT if is_subject else canvas.COLOURS[i])
    curve, marker = content.curves[name], canvas.MARKERS[i]
    ends.append(_band(axes, curve, colours[-1], marker, is_subject))
  canvas.title(axes, content.title)
  axes.set_xlabel(content.x_label, color=canvas.INK)
  canvas.label_ends(axes, ends, names, colours)
  canvas.caption(figure, content.note)
  return figure


def _panel_per_rival(content: _BudgetFigure) -> Figure:
  """Draws a grid with a panel for each rival."""
  rows = math.ceil(len(content.rivals) / _COLUMNS)
  figure = canvas.new_figure(10.0, 1.0 + 2.2 * rows)
  grid = figure.subplots(
    rows, _COLUMNS, sharex=True, sharey=True, squeeze=False
  )
  for axes in grid.flat[len(content.rivals) :]:
    axes.set_visible(False)
  for axes, name in zip(grid.flat, content.rivals, strict=False):
    end = _rival_panel(axes, content, name)
    if end is not None and axes is grid.flat[0]:
      axes.annotate(
        content.subject,
        end,
        xytext=(-4, 7),
        textcoords='offset points',
        ha='right',
        fontsize=9,
        color=canvas.for_text(canvas.SUBJECT),
      )
    canvas.title(axes, name, size=10, colour=canvas.COLOURS[0])
  # A column whose last panel is hidden still needs its ticks.
  for column in range(_COLUMNS):
    visible = [axes for axes in grid[:, column] if axes.get_visible()]
    visible[-1].tick_params(labelbottom=True)
  figure.suptitle(content.title, x=0.01, ha='left', size=12, weight='bold')
  note = content.note
  if content.subject is not None:
    note = (
      f'orange diamonds: {content.subject}; blue: named above; grey: rest; '
      f'{note}'
    )
  canvas.caption(figure, f'x: {content.x_label}; {note}')
  return figure


def _rival_panel(
  axes: Axes, content: _BudgetFigure, rival: str
) -> tuple[float, float] | None:
  """Draws a rival and the subject with bands, and all rivals as grey lines.

  Returns:
    The last point of the subject's line; None if there is no subject.
  """
  _budget_axes(axes, content.budgets)
  for name in content.rivals:
    x = [cell['budget'] for cell in content.curves[name]]
    y = [cell['pass']['mean'] for cell in content.curves[name]]
    axes.plot(x, y, color=canvas.GREY, linewidth=0.8, zorder=1)
  _band(axes, content.curves[rival], canvas.COLOURS[0], 'o', False)
  if content.subject is None:
    return None
  cells = content.curves[content.subject]
  return _band(axes, cells, canvas.SUBJECT, 'D', True)


def _budget_axes(axes: Axes, budgets: Sequence[int]) -> None:
  """Puts budgets on a logarithmic x axis and percent on the y axis."""
  canvas.clean(axes)
  axes.set_xscale('log', base=2)
  axes.set_xticks(budgets, [str(budget) for budget in budgets])
  axes.minorticks_off()
  canvas.percent(axes.yaxis)


def _band(
  axes: Axes,
  cells: Sequence[Mapping[str, Any]],
  colour: str,
  marker: str,
  is_subject: bool,
) -> tuple[float, float]:
  """Draws a strategy with its band; returns the last point of its line."""
  x = [cell['budget'] for cell in cells]
  mean, low, high = (
    [cell['pass'][key] for cell in cells] for key in ('mean', 'low', 'high')
  )
  axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
  width = 2.4 if is_subject else 1.6
  axes.plot(x, mean, color=colour, marker=marker, ms=4.5, linewidth=width)
  return x[-1], mean[-1]


def action_usage(
  path: str | os.PathLike[str],
  steps: Sequence[float],
  shares: Mapping[str, Sequence[float]],
) -> pathlib.Path:
  """Draws the share of each action over training as stacked areas.

  Args:
    path: file to write.
    steps: environment steps `[updates]`.
    shares: `[updates]` by action; the shares of an update sum to 1.

  Raises:
    ValueError: a number of shares is wrong, or they do not sum to 1.
  """
  names = list(shares)
  stacked = np.array([shares[name] for name in names], dtype=float)
  if stacked.ndim != 2 or stacked.shape[1] != len(steps) or not len(steps):
    raise ValueError(
      f'each action needs one share for each of the {len(steps)} steps, got '
      f'an array of shape {stacked.shape}.'
    )
  totals = stacked.sum(axis=0)
  if not np.allclose(totals, 1.0, atol=1e-6):
    raise ValueError(
      'shares of an update must sum to 1, got sums from '
      f'{totals.min():.4f} to {totals.max():.4f}.'
    )
  figure = canvas.new_figure(7.5, 4.2)
  axes = figure.subplots()
  canvas.clean(axes)
  palette = (*canvas.COLOURS, canvas.SUBJECT)
  colours = [palette[i % len(palette)] for i in range(len(names))]
  axes.stackplot(
    steps, stacked, colors=colours, edgecolor='white', linewidth=0.8
  )
  axes.set_ylim(0, 1)
  axes.margins(x=0)
  canvas.percent(axes.yaxis)
  canvas.thousands(axes.xaxis)
  axes.set_xlabel('environment steps', color=canvas.INK)
  canvas.title(axes, 'Share of steps by action')
  last = stacked[:, -1]
  middles = np.cumsum(last) - last / 2
  canvas.label_ends(
    axes,
    [(steps[-1], middle) for middle in middles],
    [f'{name} {share:.0%}' for name, share in zip(names, last, strict=True)],
    colours,
  )
  return canvas.save(figure, path)


def action_heatmap(
  path: str | os.PathLike[str], statistics: Mapping[str, Any]
) -> pathlib.Path:
  """Draws how often each action was chosen after each error class.

  The shares of a row sum to 100 %. Below each share stands how often the
  visible tests passed after the action. `statistics` are those of
  `actions.action_statistics`.

  Raises:
    ValueError: the statistics hold no steps.
  """
  by_error = statistics['by_error']
  if not by_error:
    raise ValueError('no steps to draw: the action statistics are empty.')
  totals = {
    error: sum(x['count'] for x in by_class.values())
    for error, by_class in by_error.items()
  }
  errors = sorted(totals, key=lambda error: -totals[error])
  actions = list(statistics['by_action'])
  shares = np.zeros((len(errors), len(actions)))
  figure = canvas.new_figure(
    max(6.5, 2.2 + 1.15 * len(actions)), 1.4 + 0.55 * len(errors)
  )
  axes = figure.subplots()
  for i, error in enumerate(errors):
    for j, action in enumerate(actions):
      entry = by_error[error].get(action)
      if entry is None:
        continue
      shares[i, j] = entry['share']
      axes.text(
        j,
        i,
        f'chosen {entry["share"]:.0%}\npassed {entry["success_rate"]:.0%}',
        ha='center',
        va='center',
        fontsize=8,
        color='white' if entry['share'] > 0.85 else canvas.INK,
      )
  # Up to 1.3 the colours omit the darkest blues, on which text is illegible.
  axes.imshow(shares, cmap='Blues', vmin=0.0, vmax=1.3, aspect='auto')
  axes.set_xticks(range(len(actions)), actions, fontsize=9)
  rows = [f'{error}  (n={totals[error]})' for error in errors]
  axes.set_yticks(range(len(errors)), rows, fontsize=9)
  axes.tick_params(length=0, colors=canvas.INK)
  for spine in axes.spines.values():
    spine.set_visible(False)
  axes.set_ylabel('error class before', color=canvas.INK)
  canvas.title(axes, 'Action by error class, and how often it passed')
  return canvas.save(figure, path)
