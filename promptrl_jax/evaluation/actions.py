"""Counts and success rates of the controller's actions, from trace rows."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import Any

from promptrl_jax.evaluation import markdown

# The error class before the first step, when no program has run yet.
START = 'start'

# Rows that agree in these fields belong to one episode; rows may lack the last
# three.
_EPISODE = ('strategy', 'seed', 'task_id', 'budget', 'row', 'episode')

_KEYS = (
  *('strategy', 'seed', 'task_id', 'step', 'action', 'reward', 'status'),
  *('visible_passed', 'cost'),
)


def action_statistics(trace_rows: Iterable[Mapping[str, Any]]) -> dict:
  """Returns statistics per action and per (error class before, action).

  Pass the rows of a single strategy: shares over several have no meaning. The
  error class before a step is the `status` of the previous step of the same
  episode, and `start` for the first step.

  Args:
    trace_rows: dicts in any order with `strategy`, `seed`, `task_id`, `step`
      (an int, unique within its episode), `action` (a name), `reward`, `status`
      (the status of the program after the action), `visible_passed` (a bool)
      and `cost` (model calls). `budget`, `row` and `episode` distinguish
      repeated visits of a problem.

  Returns:
    A dict with `steps`, the number of rows; `by_action`, which maps an action
    to its count, share, success_rate, mean_reward and mean_cost; and
    `by_error`, which maps the error class before a step to a dict from actions
    to count, share within that class and success_rate.

  Raises:
    ValueError: a row lacks a field or has one of the wrong kind, or two rows
      of an episode have the same step.
  """
  by_action, by_error = collections.defaultdict(list), {}
  for rows in _episodes(trace_rows):
    before = START
    for row in rows:
      by_action[row['action']].append(row)
      by_class = by_error.setdefault(before, collections.defaultdict(list))
      by_class[row['action']].append(row)
      before = row['status']
  steps = sum(map(len, by_action.values()))
  return {
    'steps': steps,
    'by_action': {
      action: _counts(rows, steps)
      | {
        'mean_reward': _mean(rows, 'reward'),
        'mean_cost': _mean(rows, 'cost'),
      }
      for action, rows in sorted(by_action.items())
    },
    'by_error': {
      error: {
        action: _counts(rows, sum(map(len, by_class.values())))
        for action, rows in sorted(by_class.items())
      }
      for error, by_class in sorted(by_error.items())
    },
  }


def _episodes(
  trace_rows: Iterable[Mapping[str, Any]],
) -> list[list[Mapping[str, Any]]]:
  """Returns the rows of each episode in the order of their steps."""
  episodes = collections.defaultdict(list)
  for row in trace_rows:
    _check_row(row)
    episodes[tuple(row.get(name) for name in _EPISODE)].append(row)
  for key, rows in episodes.items():
    rows.sort(key=lambda row: row['step'])
    if len({row['step'] for row in rows}) != len(rows):
      raise ValueError(
        f'trace of {key} has a step twice: {[row["step"] for row in rows]}. '
        'Give rows of repeated visits an `episode`.'
      )
  return list(episodes.values())


def _check_row(row: Mapping[str, Any]) -> None:
  missing = [key for key in _KEYS if key not in row]
  if missing:
    raise ValueError(f'a trace row lacks {missing}; it has {sorted(row)}.')
  if not isinstance(row['action'], str):
    raise ValueError(
      f'action must be a name, got {row["action"]!r}: numbers mean different '
      'actions in different settings.'
    )
  if row['visible_passed'] not in (False, True):
    raise ValueError(
      f'visible_passed must be a bool, got {row["visible_passed"]!r}.'
    )


def _mean(rows: list[Mapping[str, Any]], key: str) -> float:
  return sum(float(row[key]) for row in rows) / len(rows)


def _counts(rows: list[Mapping[str, Any]], total: int) -> dict[str, Any]:
  return {
    'count': len(rows),
    'share': len(rows) / total,
    'success_rate': _mean(rows, 'visible_passed'),
  }


def actions_markdown(statistics: Mapping[str, Any]) -> str:
  """Returns the two tables of `action_statistics` as Markdown."""
  by_action = [
    _shown(action, x)
    | {
      'mean reward': f'{x["mean_reward"]:+.3f}',
      'mean calls': f'{x["mean_cost"]:.2f}',
    }
    for action, x in statistics['by_action'].items()
  ]
  by_error = [
    {'error class before': error} | _shown(action, x)
    for error, by_class in statistics['by_error'].items()
    for action, x in by_class.items()
  ]
  return (
    f'### Actions ({statistics["steps"]} steps)\n\n'
    f'{markdown.table(by_action)}\n\n{markdown.table(by_error, "llr")}\n'
  )


def _shown(action: str, x: Mapping[str, Any]) -> dict[str, object]:
  return {
    'action': action,
    'count': x['count'],
    'share': f'{markdown.points(x["share"])} %',
    'success after it': f'{markdown.points(x["success_rate"])} %',
  }
