"""Programs and results as lines of JSON; `__main__.py` lists the fields."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn

from promptrl_jax.execution.call import Call, CallResult
from promptrl_jax.execution.limits import Limits
from promptrl_jax.execution.program import Program, ProgramResult

MAX_LINE = 32 * 2**20  # Bytes: 5 MB of code, each character escaped.
MAX_CPU_S = 3600.0


def lines(source: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
  """Yields the lines that are not blank, with their numbers from 1 on.

  None stands for a line of more than `MAX_LINE` bytes.
  """
  number = 0
  while line := source.readline(MAX_LINE):
    number += 1
    if len(line) == MAX_LINE and not line.endswith(b'\n'):
      while line and not line.endswith(b'\n'):
        line = source.readline(MAX_LINE)
      yield number, None
    elif line.strip():
      yield number, line


def parse(
  line: bytes | None, limits: Limits
) -> tuple[Any, Program | Call | str]:
  """Reads one line, None for one that is too long; never raises.

  Returns the id (None without one), and the program, the call, or what is wrong
  with the line. A `cpu_s` of its own replaces that of `limits`.
  """
  if line is None:
    return None, f'longer than {MAX_LINE // 2**20} MiB'
  try:
    row = json.loads(line, parse_float=_finite, parse_constant=_refuse)
  except (ValueError, RecursionError) as error:
    return None, f'not JSON: {error}'[:200]
  if not isinstance(row, dict):
    return None, f'expected a JSON object, got {_kind(row)}'
  row = {field: value for field, value in row.items() if value is not None}
  name = row.get('id')
  if isinstance(name, dict | list):
    return None, f'id must be a string or a number, got {_kind(name)}'
  try:
    return name, _job(row, limits)
  except ValueError as error:
    return name, str(error)


def _job(row: dict[str, Any], limits: Limits) -> Program | Call:
  """The program or call of a row; raises ValueError for wrong fields."""
  evaluates = 'expressions' in row
  for field in ('code', 'expressions' if evaluates else 'tests'):
    if field not in row:
      raise ValueError(f'the field {field!r} is missing')
  if evaluates and 'tests' in row:
    raise ValueError("expected 'tests' or 'expressions', got both")
  others = {
    'setup': row.get('setup', ''),
    'entry_point': row.get('entry_point'),
    'limits': _own_limits(row, limits),
  }
  if evaluates:
    return Call(row['code'], row['expressions'], **others)
  return Program(row['code'], row['tests'], **others)


def _own_limits(row: dict[str, Any], limits: Limits) -> Limits | None:
  if 'cpu_s' not in row:
    return None
  cpu_s = row['cpu_s']
  if isinstance(cpu_s, bool) or not isinstance(cpu_s, int | float):
    raise ValueError(f'cpu_s must be a number, got {_kind(cpu_s)}')
  if not 0 < cpu_s <= MAX_CPU_S:
    raise ValueError(f'cpu_s must be above 0 and at most {MAX_CPU_S:g}')
  return with_cpu_s(limits, float(cpu_s))


def with_cpu_s(limits: Limits, cpu_s: float) -> Limits:
  """Limits with other processor seconds and enough wall time to use them."""
  wall_s = max(Limits.wall_s, 4 * cpu_s)
  return dataclasses.replace(limits, cpu_s=cpu_s, wall_s=wall_s)


def line(number: int, name: Any, result: ProgramResult | CallResult) -> str:
  """Formats one result; a refusal quotes the `number` of the input line."""
  row = {'id': name, **dataclasses.asdict(result)}
  row['cpu_s'] = round(result.cpu_s, 6)
  row['wall_s'] = round(result.wall_s, 6)
  if result.status == 'refused':
    row['message'] = f'line {number}: {result.message}'
  return json.dumps(row, allow_nan=False) + '\n'


def _finite(text: str) -> float:
  number = float(text)
  return number if math.isfinite(number) else _refuse(text)


def _refuse(text: str) -> NoReturn:
  raise ValueError(f'the number {text[:40]}')  # JSON cannot represent it.


def _kind(value: Any) -> str:
  names = {dict: 'an object', list: 'a list', str: 'a string', bool: 'a bool'}
  return names.get(type(value), 'null' if value is None else 'a number')
