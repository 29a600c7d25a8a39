"""What reference programs return for many inputs, computed once.

EvalPlus publishes inputs without outputs. References run in the execution pool,
like any program; their outputs are kept in the cache folder, one file for each
reference and its inputs, so that later runs read them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import pathlib
from collections.abc import Sequence

from promptrl_jax import files
from promptrl_jax.execution import (
  Call,
  CallResult,
  ExecutionPool,
  ExpressionResult,
  Limits,
)
from promptrl_jax.tasks import literals
from promptrl_jax.tasks.json_lines import DataError

# An output that takes more than a program has by default could not be judged.
LIMITS = Limits()
_TOO_MUCH = ('invalid', 'memory', 'timeout', 'crash')
# The time of all inputs together may be used up by the first of them.
_AGAIN = ('timeout', 'crash', 'not_run')
_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Reference:
  """A program and the inputs whose outputs are wanted.

  Attributes:
    where: location for errors.
    code: the program.
    entry_point: the function of it.
    inputs: arguments as they stand in a call, `1, [2]`.
  """

  where: str
  code: str
  entry_point: str
  inputs: tuple[str, ...]

  @property
  def key(self) -> str:
    """Names the outputs: equal for equal programs, inputs and limits."""
    content = [self.code, self.entry_point, self.inputs]
    text = json.dumps([*content, dataclasses.asdict(LIMITS)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclasses.dataclass(frozen=True)
class Output:
  """What a reference returns for one input.

  Attributes:
    judged: whether a program's output can be compared with it: False if it
      takes more time or memory than programs have by default, or is too large.
    source: the value in Python; None if it is too long, or no literal, so that
      a test has to compute it.
  """

  judged: bool
  source: str | None = None


def outputs(
  references: Sequence[Reference], workers: int = 2
) -> list[tuple[Output, ...]]:
  """Returns the outputs of each reference, one for each of its inputs.

  Raises:
    DataError: a reference raises for an input.
    RuntimeError: the execution pool failed.
  """
  known = {r.key: _read(r) for r in references}
  missing = [r for r in references if known[r.key] is None]
  if missing:
    _LOG.warning(
      'computing what %d references return for %d inputs; this is done once',
      len(missing),
      sum(len(r.inputs) for r in missing),
    )
    # References are published programs, which need no strong confinement.
    with ExecutionPool(workers, LIMITS, allow_weak=True) as pool:
      first = pool.submit_calls([_call(r, r.inputs) for r in missing])
      for reference, future in zip(missing, first, strict=True):
        found = _outputs(reference, future.result(), pool)
        known[reference.key] = found
        _write(reference, found)
  return [known[r.key] or () for r in references]


def _call(reference: Reference, inputs: Sequence[str]) -> Call:
  name = reference.entry_point
  expressions = [f'{name}({arguments})' for arguments in inputs]
  return Call(reference.code, expressions, entry_point=name)


def _outputs(
  reference: Reference, result: CallResult, pool: ExecutionPool
) -> tuple[Output, ...]:
  """Reads the values; asks alone for those that others left no time."""
  values = _values(reference, result)
  again = [i for i, value in enumerate(values) if value.status in _AGAIN]
  calls = [_call(reference, [reference.inputs[i]]) for i in again]
  for i, alone in zip(again, pool.evaluate(calls), strict=True):
    (values[i],) = _values(reference, alone)
  found = []
  for arguments, value in zip(reference.inputs, values, strict=True):
    if value.status not in ('ok', *_TOO_MUCH):
      raise DataError(
        f'{reference.where}: the reference has no output for '
        f'{reference.entry_point}({arguments[:60]}): {value.status} '
        f'{value.error_type} {value.message}'
      )
    source = None
    if value.value is not None and not value.value_is_cut:
      source = literals.of_repr(value.value)
    found.append(Output(value.status == 'ok', source))
  return tuple(found)


def _values(reference: Reference, result: CallResult) -> list[ExpressionResult]:
  if result.status == 'infra_error':
    raise RuntimeError(f'{reference.where}: {result.message}')
  return list(result.expressions)


def _read(reference: Reference) -> tuple[Output, ...] | None:
  path = _path(reference)
  try:
    rows = json.loads(path.read_bytes()) if path else None
  except (OSError, ValueError):
    return None
  return None if rows is None else tuple(Output(*row) for row in rows)


def _write(reference: Reference, found: Sequence[Output]) -> None:
  path = _path(reference)
  if not path:
    return
  rows = [dataclasses.astuple(output) for output in found]
  try:
    files.write_atomically(path, json.dumps(rows).encode())
  except OSError as error:  # The next run computes them again.
    _LOG.warning('%s could not be written: %s', path, error)


def _path(reference: Reference) -> pathlib.Path | None:
  folder = files.cache_folder()
  return folder and folder / 'right_outputs' / f'{reference.key}.json'
