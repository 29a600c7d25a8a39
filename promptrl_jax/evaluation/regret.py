"""How satisfied a person was over time, and what learning has cost.

Regret of a query: satisfaction with the best answer that could have been given
less that with the answer that was. A policy that does not learn has a regret
that grows in proportion to the queries; one that learns, more slowly.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from promptrl_jax.evaluation import canvas, markdown, statistics
from promptrl_jax.evaluation.statistics import RESAMPLES

_FIRST = 10  # queries before which the growth of regret is not looked at
_WINDOW = 25  # queries whose mean is compared with a level


def exponents(regret: np.ndarray) -> np.ndarray:
  """The growth of cumulative regret of each run, [S].

    sum of the first t regrets ~ t^a

  with a by least squares over log t from query 10 on: 1 for a policy that does
  not learn, less than 1 for one that does.

  Args:
    regret: [S, T], of each query in each of S runs.
  """
  regret = _runs(regret)
  if regret.shape[1] < 2 * _FIRST:
    raise ValueError(
      f'{regret.shape[1]} queries: expected {2 * _FIRST} or more to see growth'
    )
  total = np.maximum(np.cumsum(regret, axis=1)[:, _FIRST - 1 :], 1e-9)
  x = np.log(np.arange(_FIRST, regret.shape[1] + 1))
  x -= x.mean()
  return np.log(total) @ x / (x @ x)


def recovery(
  satisfaction: np.ndarray,
  drift: int,
  window: int = _WINDOW,
  *,
  resamples: int = RESAMPLES,
) -> dict[str, float]:
  """Queries after a change of taste until it is as good as before, to 90 %.

  As good as before means that the mean of a window, over all runs, reaches 90 %
  of that of the window before the change, see `reached`.

  Args:
    satisfaction: [S, T].
    drift: the first query with the other taste.
  """
  runs = _runs(satisfaction)
  if not window <= drift <= runs.shape[1] - window:
    raise ValueError(
      f'drift={drift} of {runs.shape[1]} queries: expected a window of '
      f'{window} before it and after it'
    )
  before = runs[:, drift - window : drift].mean(axis=1)
  return reached(runs[:, drift:], 0.9 * before, window, resamples=resamples)


def reached(
  satisfaction: np.ndarray,
  level: np.ndarray | float,
  window: int = _WINDOW,
  *,
  resamples: int = RESAMPLES,
) -> dict[str, float]:
  """Queries until the mean of a window, over all runs, reaches a level.

  The count is that of the end of the window; all queries if it never does. It
  is one count for all runs: its interval is of runs drawn with replacement.

  Args:
    satisfaction: [S, T].
    level: of each run, or of all; their mean is to be reached.
  """
  runs = _runs(satisfaction)
  count, queries = runs.shape
  sums = np.cumsum(np.pad(runs, ((0, 0), (1, 0))), axis=1)
  over = (sums[:, window:] - sums[:, :-window]) / window
  over -= np.broadcast_to(level, count)[:, None]

  def counts(shares: np.ndarray) -> np.ndarray:
    is_reached = shares @ over >= 0
    first = is_reached.argmax(axis=1) + window
    return np.where(is_reached.any(axis=1), first, queries)

  equal = np.full(count, 1 / count)
  drawn = np.random.default_rng(0).multinomial(count, equal, resamples) / count
  low, high = np.quantile(counts(drawn), (0.025, 0.975))
  (found,) = counts(equal[None])
  return {'mean': float(found), 'low': float(low), 'high': float(high)}


def summarise(
  runs: Mapping[str, Mapping[str, np.ndarray]],
  *,
  subject: str,
  window: int = 50,
  drift: int = 0,
  resamples: int = RESAMPLES,
) -> dict[str, Any]:
  """All numbers of a comparison, as `json.dumps` accepts them.

  Args:
    runs: by method, arrays [S, T]: `satisfaction` and `best`, and [S]
      `best_static`: of the best single prompt. Run s of all methods is of the
      same person with the same queries.
    subject: method that the others are compared with.
    window: queries of the first and the last mean.
    drift: query at which the taste changed, if it did.
  """
  rows, mine = {}, _runs(runs[subject]['satisfaction'])
  for name, run in runs.items():
    satisfaction = _runs(run['satisfaction'])
    regret = np.asarray(run['best']) - satisfaction
    first = satisfaction[:, :window].mean(axis=1)
    last = satisfaction[:, -window:].mean(axis=1)
    rows[name] = {
      'first': interval(first, resamples),
      'last': interval(last, resamples),
      'gain': interval(last - first, resamples),
      'over_static': interval(last - np.asarray(run['best_static']), resamples),
      'regret': interval(regret.sum(axis=1), resamples),
      'exponent': interval(exponents(regret), resamples),
    }
    if drift:
      rows[name]['recovery'] = recovery(
        satisfaction, drift, resamples=resamples
      )
    if name != subject:
      others, ours = satisfaction.mean(axis=1), mine.mean(axis=1)
      rows[name]['difference'] = interval(ours - others, resamples) | {
        'p': statistics.permutation_test(ours[None], others[None])
      }
  return {
    'subject': subject,
    'seeds': len(mine),
    'queries': mine.shape[1],
    'window': window,
    'drift': drift,
    'methods': rows,
  }


def to_markdown(summary: Mapping[str, Any]) -> str:
  """The table of a comparison."""
  window, subject = summary['window'], summary['subject']
  drift = summary['drift']
  rows = []
  for name, row in summary['methods'].items():
    difference = row.get('difference')
    rows.append(
      {
        'method': name,
        f'first {window}': _cell(row['first'], 3),
        f'last {window}': _cell(row['last'], 3),
        'gain': _cell(row['gain'], 3),
        'last − best single prompt': _cell(row['over_static'], 3),
        'cumulative regret': _cell(row['regret'], 1),
        'regret ~ t^a': _cell(row['exponent'], 2),
        f'{subject} − it': _cell(difference, 3) if difference else '',
        'p': f'{difference["p"]:.4f}' if difference else '',
      }
      | ({'back after': _cell(row['recovery'], 0)} if drift else {})
    )
  return (
    '# Satisfaction of simulated people\n\n'
    f'{summary["seeds"]} people with {summary["queries"]} questions each, '
    'satisfaction from 0 to 1 with 95 % intervals over people; the best single '
    f'prompt is known with hindsight. p: sign-flip test over people, {subject} '
    'against the method, of the mean over all questions.\n\n'
    f'{markdown.table(rows)}\n'
  )


def draw(
  path: str | os.PathLike[str],
  curves: Mapping[str, np.ndarray],
  title: str,
  label: str,
  *,
  drift: int = 0,
  over: str = 'questions',
) -> pathlib.Path:
  """Draws a mean over runs with its 95 % interval, for each method.

  Args:
    path: file to write.
    curves: [S, T] by method.
    label: of the y axis.
    drift: where a line says that the taste changed; 0: nowhere.
    over: label of the x axis.
  """
  figure = canvas.new_figure(7.5, 4.2)
  axes = figure.subplots()
  canvas.clean(axes)
  for i, (name, values) in enumerate(curves.items()):
    values = _runs(values)
    x, mean = np.arange(1, values.shape[1] + 1), values.mean(axis=0)
    colour = canvas.COLOURS[i % len(canvas.COLOURS)]
    axes.plot(x, mean, color=colour, label=name)
    if len(values) > 1:
      half = 1.96 * values.std(axis=0, ddof=1) / np.sqrt(len(values))
      axes.fill_between(
        x, mean - half, mean + half, color=colour, alpha=0.15, linewidth=0
      )
  if drift:
    axes.axvline(drift, color=canvas.GREY, linestyle='--')
  axes.set_xlabel(over, color=canvas.INK)
  axes.set_ylabel(label, color=canvas.INK)
  axes.legend(frameon=False, fontsize=8)
  canvas.title(axes, title)
  return canvas.save(figure, path)


def _runs(values: np.ndarray) -> np.ndarray:
  values = np.asarray(values, np.float64)
  if values.ndim != 2 or not values.size or not np.isfinite(values).all():
    raise ValueError(
      f'values of shape {values.shape}: expected finite numbers [runs, queries]'
    )
  return values


def interval(
  values: np.ndarray, resamples: int = RESAMPLES
) -> dict[str, float]:
  """Mean over people and its bootstrap interval."""
  values = np.asarray(values, np.float64)
  low, high = statistics.bootstrap_interval(values[None], resamples=resamples)
  return {'mean': float(values.mean()), 'low': float(low), 'high': float(high)}


def _cell(value: Mapping[str, float], digits: int) -> str:
  mean, low, high = (value[k] for k in ('mean', 'low', 'high'))
  return f'{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]'
