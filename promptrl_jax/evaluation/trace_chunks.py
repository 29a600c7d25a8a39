"""Packs a trace so that a page can open any episode without reading the rest.

  trace.jsonl --scan--> index: games, their episodes, outcomes ──> JSON
              └─seek──> chunks: whole episodes of one game ──> gzip, base64

A game is one strategy at one budget with one seed under one protocol. The lines
of the trace are copied as they are, and only one chunk is held uncompressed.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import gzip
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from promptrl_jax.evaluation import verdicts
from promptrl_jax.evaluation.cells import Cell, Detail

# Bytes of JSON in a chunk: unpacked and parsed in a few milliseconds.
CHUNK_BYTES = 400_000
_GAME = ('protocol', 'strategy', 'budget', 'seed')
_NEEDED = (*_GAME, 'task_id', 'step', 'action', 'sent', 'visible_passed')
_STATEMENT_LENGTH = 160  # characters that a list of problems shows
_FIRST = 'direct'  # Its one greedy call says what kind of failure a problem is.


class _Step(NamedTuple):
  """Where a row lies, and what the index needs of it."""

  step: int
  start: int
  size: int
  calls: int
  failure: str | None  # None without a program.
  visible_passed: bool


Game = tuple[str, str, int, int]
Episodes = dict[tuple[str, Any], list[_Step]]  # by task and row


@dataclasses.dataclass(frozen=True)
class Packed:
  """A trace in chunks.

  Attributes:
    index: what `trace.js` reads, ready for JSON: the problems, and for each
      game columns with an entry for each episode.
    chunks: base64 of gzip of a JSON list of episodes.
    failures: by protocol, the name of the reference strategy and the class of
      the first failure of each problem there; see `_first_failures`.
  """

  index: Mapping[str, Any]
  chunks: Sequence[bytes]
  failures: Mapping[str, tuple[str, Mapping[str, str]]]


def pack(
  path: str | os.PathLike[str],
  cells_by_protocol: Mapping[str, Sequence[Cell]],
  seeds: Sequence[int],
) -> Packed:
  """Packs the file of a trace with the hidden results of its episodes.

  Args:
    path: of a `trace.jsonl`; the rows of an episode need not be neighbours.
    cells_by_protocol: results; an episode without one has no hidden result.
    seeds: of the rows of the cells' arrays, in order.

  Raises:
    ValueError: a line is no row of a trace; the message names it.
  """
  path, statements = pathlib.Path(path), {}
  with open(path, 'rb') as file:
    games = _scan(path, file, statements)
    places = {task: i for i, task in enumerate(statements)}
    families = _families(cells_by_protocol)
    chunks: list[bytes] = []
    packed_games = []
    for game, episodes in games.items():
      results = _Results(game, cells_by_protocol.get(game[0], ()), seeds)
      columns = _pack_game(file, episodes, results, chunks, places)
      packed_games.append(dict(zip(_GAME, game, strict=True)) | columns)
  tasks = [
    {'id': task, 'family': families.get(task, ''), 'statement': statement}
    for task, statement in statements.items()
  ]
  failures = {
    protocol: _first_failures(games, protocol)
    for protocol in dict.fromkeys(game[0] for game in games)
  }
  return Packed({'tasks': tasks, 'games': packed_games}, chunks, failures)


def _scan(
  path: pathlib.Path, file: BinaryIO, statements: dict[str, str]
) -> dict[Game, Episodes]:
  """Reads each line once; fills in the statement of each problem."""
  games: dict[Game, Episodes] = {}
  start = 0
  for number, line in enumerate(file, start=1):
    row = _read_row(line, f'{path}:{number}')
    game = tuple(row[name] for name in _GAME)
    failure = None
    if row.get('code') is not None:
      failure = verdicts.failure(row)
    step = _Step(
      row['step'],
      start,
      len(line.rstrip()),
      len(row['sent']),
      failure,
      row['visible_passed'],
    )
    episodes = games.setdefault(game, collections.defaultdict(list))
    episodes[row['task_id'], row.get('row')].append(step)
    if not statements.get(row['task_id']):
      text = ' '.join((row.get('prompt') or {}).get('statement', '').split())
      statements[row['task_id']] = text[:_STATEMENT_LENGTH]
    start += len(line)
  for episodes in games.values():
    for steps in episodes.values():
      steps.sort()
  return games


def _read_row(line: bytes, place: str) -> Mapping[str, Any]:
  try:
    row = json.loads(line, parse_constant=_refuse_constant)
  except ValueError as error:
    raise ValueError(
      f'{place}: expected one JSON object per line, got {line[:60]!r} '
      f'({error}): is this the trace.jsonl of a finished run?'
    ) from None
  missing = [name for name in _NEEDED if name not in row]
  if missing:
    raise ValueError(
      f'{place}: a trace row lacks {missing}; it has {sorted(row)}: is this '
      'the trace.jsonl of a finished run?'
    )
  return row


def _refuse_constant(name: str) -> None:
  # Python writes it, and no browser reads it.
  raise ValueError(f'{name} is no JSON')


def _families(
  cells_by_protocol: Mapping[str, Sequence[Cell]],
) -> dict[str, str]:
  return {
    task: family
    for cells in cells_by_protocol.values()
    for cell in cells[:1]
    for task, family in zip(cell.task_ids, cell.families, strict=False)
  }


class _Results:
  """The hidden results of one game, by problem."""

  def __init__(self, game: Game, cells: Sequence[Cell], seeds: Sequence[int]):
    _, strategy, budget, seed = game
    self._cell = next(
      (c for c in cells if (c.strategy, c.budget) == (strategy, budget)), None
    )
    self._row = seeds.index(seed) if seed in seeds else len(seeds)
    self._columns: dict[str, int] = {}
    if self._cell is not None and self._row < len(self._cell.passed):
      self._columns = {task: i for i, task in enumerate(self._cell.task_ids)}

  def of(self, task: str) -> dict[str, Any] | None:
    """What the end of an episode shows; None if there is no result."""
    cell, row, column = self._cell, self._row, self._columns.get(task)
    if cell is None or column is None:
      return None
    detail = cell.details[row][column] if cell.details else Detail()
    return {
      'passed': bool(cell.passed[row, column]),
      'soft': float(cell.soft[row, column]),
      'mask': detail.mask,
      'error': detail.error,
      **{
        name: int(getattr(cell, name)[row, column])
        for name in ('calls', 'attempts', 'prompt_tokens', 'completion_tokens')
      },
    }


def _pack_game(
  file: BinaryIO,
  episodes: Episodes,
  results: _Results,
  chunks: list[bytes],
  places: Mapping[str, int],
) -> dict[str, Any]:
  """Appends the chunks of one game; returns the columns of its index."""
  columns = collections.defaultdict(list)
  outcomes, parts, size = [], [], 0
  for (task, _), steps in episodes.items():
    if parts and size >= CHUNK_BYTES:
      chunks.append(_compress(parts))
      parts, size = [], 0
    result = results.of(task)
    lines = b',\n'.join(_lines(file, steps))
    end = json.dumps(result, allow_nan=False).encode()
    columns['tasks'].append(places[task])
    columns['chunks'].append(len(chunks))
    columns['places'].append(len(parts))
    columns['steps'].append(len(steps))
    columns['calls'].append(sum(step.calls for step in steps))
    outcomes.append(_outcome(result, steps))
    parts.append(b'{"end":' + end + b',"rows":[' + lines + b']}')
    size += len(parts[-1])
  chunks.append(_compress(parts))
  # One letter each: a large run has a million episodes.
  return dict(columns) | {'outcomes': ''.join(outcomes)}


def _outcome(result: Mapping[str, Any] | None, steps: Sequence[_Step]) -> str:
  """s: solved; m: misled by the visible tests; u: unsolved; ?: not known."""
  if result is None:
    return '?'
  if result['passed']:
    return 's'
  return 'm' if any(step.visible_passed for step in steps) else 'u'


def _lines(file: BinaryIO, steps: Iterable[_Step]) -> Iterable[bytes]:
  for step in steps:
    file.seek(step.start)
    yield file.read(step.size)


def _compress(parts: Sequence[bytes]) -> bytes:
  # Without a time stamp, the same trace makes the same page.
  text = b'[' + b',\n'.join(parts) + b']'
  return base64.b64encode(gzip.compress(text, compresslevel=6, mtime=0))


def _first_failures(
  games: Mapping[Game, Episodes], protocol: str
) -> tuple[str, dict[str, str]]:
  """The class of the first failure of each problem, for one strategy.

  Classes of one strategy, so that all are compared on the same problems: those
  of `direct`, or of the strategy that was played first, at its least budget and
  with its first seed.
  """
  played = [game for game in games if game[0] == protocol]
  direct = [game for game in played if game[1] == _FIRST]
  name = (direct or played)[0][1]
  game = min((g for g in played if g[1] == name), key=lambda g: g[2:])
  classes = {}
  for (task, _), steps in games[game].items():
    failures = [s.failure for s in steps if s.failure is not None]
    wrong = [failure for failure in failures if failure != verdicts.NO_FAILURE]
    classes[task] = (wrong or failures or [verdicts.NO_PROGRAM])[0]
  return name, classes
