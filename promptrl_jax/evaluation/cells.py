"""One strategy at one budget: the unit that reports are made of.

Strategies fill cells; `report` summarises them; the CSV written here holds the
same numbers problem by problem, so that a report can be remade from it.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.files import write_atomically
from promptrl_jax.tasks.splits import PROTOCOLS

_COUNTS = ('calls', 'attempts', 'prompt_tokens', 'completion_tokens')


@dataclasses.dataclass(frozen=True)
class Detail:
  """How one problem was played; for people, no statistic reads it.

  Attributes:
    steps: steps of the strategy, one trace row each.
    actions: what each step did, in order, separated by spaces.
    prompt: hash of the messages of the last request, empty without one.
    reward: sum of the rewards of the steps.
    mask: 1 or 0 for each hidden test, passed or not by the submission.
    error: why the strategy submitted nothing; empty if it did.
  """

  steps: int = 0
  actions: str = ''
  prompt: str = ''
  reward: float = 0.0
  mask: str = ''
  error: str = ''


_DETAILS: Mapping[str, Callable[[str], Any]] = {
  'steps': int,
  'actions': str,
  'prompt': str,
  'reward': float,
  'mask': str,
  'error': str,
}
_COLUMNS = (
  *('id', 'family', 'strategy', 'budget', 'protocol', 'seed', 'pass', 'soft'),
  *_COUNTS,
  'optimisation_calls',
  *_DETAILS,
)


def prompt_hash(messages: Sequence[Mapping[str, str]]) -> str:
  """Returns a short hash of a conversation, with messages as dicts."""
  text = json.dumps(messages, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


# Arrays have no truth value, hence no generated equality.
@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
  """Results of one strategy at one budget under one protocol.

  A result that the system lost (as opposed to one the model failed) has no
  value here: it is run again, or its problem is left out of every cell.

  Attributes:
    budget: model calls that the strategy may make per problem, B.
    protocol: what the strategy saw; one of `tasks.splits.PROTOCOLS`.
    task_ids: the problems, in column order.
    passed: submitted answer passed all hidden tests; bool [seeds, problems].
    soft: share of hidden tests passed, 0..1; float [seeds, problems].
    calls: model calls charged, at most `budget`; int [seeds, problems].
    attempts: programs that were run; int [seeds, problems].
    prompt_tokens, completion_tokens: tokens in and out; int [seeds, problems].
    optimisation_calls: model calls paid once, before the first test problem,
      mean over seeds; None: unknown.
    details: [seeds][problems], or empty.
    families: of the problems, in column order; an empty name, or none at all,
      stands for a problem that resembles no other.

  Raises:
    ValueError: naming the field, what it holds and what was expected.
  """

  strategy: str
  budget: int
  protocol: str
  task_ids: tuple[str, ...]
  passed: np.ndarray
  soft: np.ndarray
  calls: np.ndarray
  attempts: np.ndarray
  prompt_tokens: np.ndarray
  completion_tokens: np.ndarray
  optimisation_calls: float | None = 0.0
  details: tuple[tuple[Detail, ...], ...] = ()
  families: tuple[str, ...] = ()

  def __post_init__(self):
    if not self.strategy:
      raise ValueError(
        'a cell needs the name of its strategy, got an empty one.'
      )
    if self.budget < 1:
      self._refuse('budget', f'must be at least 1 call, got {self.budget}.')
    if self.protocol not in PROTOCOLS:
      self._refuse(
        'protocol', f'must be one of {PROTOCOLS}, got {self.protocol!r}.'
      )
    if not self.task_ids:
      self._refuse('task_ids', 'is empty: a cell needs at least one problem.')
    if len(set(self.task_ids)) != len(self.task_ids):
      twice = sorted({x for x in self.task_ids if self.task_ids.count(x) > 1})
      self._refuse('task_ids', f'names problems twice: {twice[:3]}.')
    if self.families and len(self.families) != len(self.task_ids):
      self._refuse(
        'families',
        f'names {len(self.families)}, expected one for each of '
        f'{len(self.task_ids)} problems, or none.',
      )
    if self.optimisation_calls is not None and self.optimisation_calls < 0:
      self._refuse('optimisation_calls', f'is {self.optimisation_calls} < 0.')
    self._check_arrays()
    self._check_values()

  def _refuse(self, field: str, what: str) -> None:
    raise ValueError(
      f'cell {self.strategy!r} at B={self.budget}: {field} {what}'
    )

  def _check_arrays(self) -> None:
    seeds = self.passed.shape[0] if np.ndim(self.passed) == 2 else 0
    if seeds == 0:
      self._refuse(
        'passed',
        f'must have shape [seeds, problems], got {np.shape(self.passed)}. '
        'For a single run pass run[None, :].',
      )
    expected = (seeds, len(self.task_ids))
    kinds = dict.fromkeys(_COUNTS, 'iu') | {'passed': 'b', 'soft': 'f'}
    names = {'b': 'bool', 'f': 'float', 'iu': 'int'}
    for field, kind in kinds.items():
      array = getattr(self, field)
      if np.shape(array) != expected:
        self._refuse(
          field,
          f'has shape {np.shape(array)}, expected {expected}: '
          f'{expected[0]} seeds and {expected[1]} task ids.',
        )
      if array.dtype.kind not in kind:
        self._refuse(field, f'has dtype {array.dtype}, expected {names[kind]}.')

  def _check_values(self) -> None:
    if not ((self.soft >= 0) & (self.soft <= 1)).all():
      self._refuse('soft', 'must lie in 0..1: it is a share of tests, not %.')
    self._refuse_any(
      'soft',
      self.passed != (self.soft == 1.0),
      'disagrees with passed (all hidden tests passed means soft 1)',
    )
    for field in _COUNTS:
      self._refuse_any(field, getattr(self, field) < 0, 'is negative')
    self._refuse_any('calls', self.calls > self.budget, 'exceeds the budget')

  def _refuse_any(self, field: str, wrong: np.ndarray, what: str) -> None:
    if wrong.any():
      seed, problem = np.argwhere(wrong)[0]
      value = getattr(self, field)[seed, problem]
      self._refuse(
        field,
        f'{what} in {int(wrong.sum())} places, first for '
        f'{self.task_ids[problem]!r} in seed row {seed}: {value}.',
      )


def check_paired(first: Cell, second: Cell) -> None:
  """Raises unless two cells of one table may be compared by seed."""
  seeds = first.passed.shape[0], second.passed.shape[0]
  if seeds[0] != seeds[1] and 1 not in seeds:
    raise ValueError(
      f'{first.strategy!r} and {second.strategy!r} have {seeds[0]} and '
      f'{seeds[1]} seeds at B={first.budget}: run equally many, or one for a '
      'deterministic strategy.'
    )


def check_same_tasks(first: Cell, second: Cell) -> None:
  """Raises unless both cells hold the same problems in the same order."""
  if first.task_ids == second.task_ids:
    return
  mine, other = set(first.task_ids), set(second.task_ids)
  if mine == other:
    what = 'the same problems in another order'
  else:
    what = (
      f'{len(mine - other)} problems only in the first '
      f'{sorted(mine - other)[:3]}, {len(other - mine)} only in the second '
      f'{sorted(other - mine)[:3]}'
    )
  raise ValueError(
    f'task ids of {first.strategy!r} (B={first.budget}) and '
    f'{second.strategy!r} (B={second.budget}) differ: {what}. Cells of one '
    'report need the same task ids in the same order.'
  )


def write_csv(
  path: str | os.PathLike[str], cells: Sequence[Cell]
) -> pathlib.Path:
  """Writes one row per cell, seed and problem; returns the path written.

  `seed` is the row of the cell's arrays. `pass` is 0 or 1; `soft` keeps every
  digit, so that totals computed from the file equal the report.
  """
  text = io.StringIO()
  table = csv.writer(text, lineterminator='\n')
  table.writerow(_COLUMNS)
  for cell in cells:
    for seed, problem in np.ndindex(cell.passed.shape):
      detail = cell.details[seed][problem] if cell.details else Detail()
      table.writerow(
        [
          cell.task_ids[problem],
          cell.families[problem] if cell.families else '',
          cell.strategy,
          cell.budget,
          cell.protocol,
          seed,
          int(cell.passed[seed, problem]),
          float(cell.soft[seed, problem]),
          *(int(getattr(cell, name)[seed, problem]) for name in _COUNTS),
          _paid_text(cell.optimisation_calls),
          *(getattr(detail, name) for name in _DETAILS),
        ]
      )
  return write_atomically(path, text.getvalue().encode())


def read_csv(path: str | os.PathLike[str]) -> list[Cell]:
  """Returns the cells of a file of `write_csv`, in the order of the file."""
  with open(path, newline='', encoding='utf-8') as file:
    table = csv.DictReader(file)
    if tuple(table.fieldnames or ()) != _COLUMNS:
      raise ValueError(
        f'{os.fspath(path)} has columns {table.fieldnames}, expected '
        f'{list(_COLUMNS)}: is it a results file of this project?'
      )
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in table:
      key = (row['strategy'], row['budget'], row['protocol'])
      groups.setdefault(key, []).append(row)
  return [_cell_from_rows(rows) for rows in groups.values()]


def _cell_from_rows(rows: list[dict[str, str]]) -> Cell:
  task_ids = tuple(dict.fromkeys(row['id'] for row in rows))
  seeds = len({row['seed'] for row in rows})
  first = rows[0]
  expected = [(str(s), task) for s in range(seeds) for task in task_ids]
  if [(row['seed'], row['id']) for row in rows] != expected:
    raise ValueError(
      f'{len(rows)} rows of {first["strategy"]!r} at B={first["budget"]} are '
      f'not {seeds} seeds x {len(task_ids)} problems in order: rows are '
      'missing, doubled or moved.'
    )

  def column(name: str, kind: type) -> np.ndarray:
    values = [kind(row[name]) for row in rows]
    return np.array(values).reshape(seeds, len(task_ids))

  return Cell(
    strategy=first['strategy'],
    budget=int(first['budget']),
    protocol=first['protocol'],
    task_ids=task_ids,
    passed=column('pass', int).astype(bool),
    soft=column('soft', float),
    **{name: column(name, int) for name in _COUNTS},
    optimisation_calls=_read_paid(first['optimisation_calls']),
    families=tuple(row['family'] for row in rows[: len(task_ids)]),
    details=tuple(
      tuple(map(_detail, rows[i : i + len(task_ids)]))
      for i in range(0, len(rows), len(task_ids))
    ),
  )


def _paid_text(calls: float | None) -> str:
  """Calls as they stand in a file: nothing, if they are unknown."""
  return '' if calls is None else str(float(calls))


def _read_paid(text: str) -> float | None:
  return float(text) if text else None


def _detail(row: dict[str, str]) -> Detail:
  return Detail(**{name: kind(row[name]) for name, kind in _DETAILS.items()})
