"""Runs programs from standard input: a JSON object per line, in and out.

A thread reads and submits lines, at most `_AHEAD` lines per worker ahead of the
next result to write. So neither side waits for the last line of the other, and
memory does not grow with the input.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import math
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, BinaryIO

from promptrl_jax.execution import jsonl, process
from promptrl_jax.execution.call import Call
from promptrl_jax.execution.limits import Limits
from promptrl_jax.execution.pool import ExecutionPool
from promptrl_jax.execution.program import Program, ProgramResult

_AHEAD = 64
_MAX_MEMORY_MB = 2**20
_MAX_MIB = jsonl.MAX_LINE // 2**20

_BROKEN_PIPE = 128 + signal.SIGPIPE
_INTERRUPTED = 128 + signal.SIGINT
_EPILOG = f"""
fields of a program:
  code         text of the program (required)
  tests        list of assertions, each a text (required without expressions)
  expressions  instead of tests: list of expressions to evaluate, each a text
  id           text or number; comes back with the result (default: null)
  setup        statements that run between the program and its tests
  cpu_s        processor seconds of this program, instead of --cpu-s
  entry_point  function under test, where the tests leave that open
  Other fields are ignored; null stands for a field that is absent.

fields of a result, in the order of the programs:
  id, cpu_s, wall_s, message
  status       passed, or the first other status of a test, or syntax_error,
               no_code, refused, infra_error
  score        share of the tests that passed; null with refused and infra_error
  tests        list of {{"status", "error_type", "message"}}, where status is
               passed, failed, error, timeout, memory, crash, invalid or not_run

fields of a result where the program has expressions:
  id, cpu_s, wall_s, message
  status       ok, or the first other status of an expression, or syntax_error,
               refused, infra_error
  output       what loading the program printed; output_is_cut: only its start
  expressions  list of {{"status", "value", "value_is_cut", "output",
               "output_is_cut", "error_type", "message"}}, where status is ok,
               error, timeout, memory, crash, invalid or not_run

A line that is no such program (not JSON, a field that is absent or of another
type, more than {_MAX_MIB} MiB) has a result like any other: status refused, and
a message that begins with the number of the line. Blank lines are skipped.

exit status:
  0    every line has its result
  1    programs cannot be run here
  2    wrong arguments
  {_INTERRUPTED}  interrupted
  {_BROKEN_PIPE}  nobody reads the results any more
"""

_Answer = tuple[int, Any, 'Future[Any]']  # Line number, id, result.


def main(argv: list[str] | None = None) -> int:
  """Returns the exit status; `argv` replaces the arguments of the process."""
  args = _parser().parse_args(argv)
  return args.action(args)


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog='python -m promptrl_jax.execution',
    description='Runs untrusted Python programs against their tests, or '
    'evaluates expressions after them. Reads a JSON object per line from '
    'standard input and writes one per line to standard output.',
    epilog=_EPILOG,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  default = Limits()
  parser.add_argument(
    '--workers',
    type=_number(int, 1, 4096),
    metavar='N',
    help='programs that run at the same time (default: one per core)',
  )
  parser.add_argument(
    '--cpu-s',
    type=_number(float, 0.001, jsonl.MAX_CPU_S),
    default=default.cpu_s,
    metavar='S',
    help='processor seconds of loading a program, and of each of its tests; '
    'twice that in all (default: %(default)s)',
  )
  parser.add_argument(
    '--memory-mb',
    type=_number(int, 16, _MAX_MEMORY_MB),
    default=default.memory_mb,
    metavar='MIB',
    help='address space of a program, in MiB (default: %(default)s)',
  )
  parser.add_argument(
    '--probe',
    dest='action',
    action='store_const',
    const=_probe,
    default=_judge_lines,
    help='print the isolation layers of this machine, and exit',
  )
  return parser


def _number(kind: type[int] | type[float], least: float, most: float) -> Any:
  """Returns an argparse type for numbers between two bounds, both included."""

  def parse(text: str) -> float:
    try:
      value = kind(text)
    except ValueError:
      value = math.nan
    if not least <= value <= most:
      noun = 'whole number' if kind is int else 'number'
      message = f'expected a {noun} from {least} to {most}, got {text!r}'
      raise argparse.ArgumentTypeError(message)
    return value

  return parse


def _probe(args: argparse.Namespace) -> int:
  """Prints the layers; 0 if they are enough."""
  del args
  try:
    layers = process.probe()
  except (RuntimeError, OSError) as error:
    print(f'promptrl_jax.execution: {error}', file=sys.stderr)
    return 1
  for name, value in dataclasses.asdict(layers).items():
    print(f'{name:<11} {_shown(value)}')
  missing = layers.missing()
  verdict = f'no: without {"; ".join(missing)}' if missing else 'yes'
  print(f'{"enough":<11} {verdict}')
  return 1 if missing else 0


def _shown(value: object) -> str:
  if isinstance(value, tuple):
    return ' '.join(value) or 'none'
  if isinstance(value, bool):
    return 'yes' if value else 'no'
  return 'own' if value is None else str(value)


def _judge_lines(args: argparse.Namespace) -> int:
  limits = jsonl.with_cpu_s(Limits(memory_mb=args.memory_mb), args.cpu_s)
  try:
    with ExecutionPool(args.workers, limits) as pool:
      # Not sys.stdin: Python takes its lock at exit, which a thread that waits
      # for a line would hold.
      source = io.BufferedReader(io.FileIO(0, closefd=False))
      workers = args.workers or len(os.sched_getaffinity(0))
      try:
        for number, name, future in _read_ahead(pool, source, limits, workers):
          sys.stdout.write(jsonl.line(number, name, future.result()))
          sys.stdout.flush()
      except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Let the workers end.
        return _INTERRUPTED
      except BrokenPipeError:
        # Flushing the rest of the buffer would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
  except (RuntimeError, OSError) as error:
    print(f'promptrl_jax.execution: {error}', file=sys.stderr)
    return 1
  return 0


def _read_ahead(
  pool: ExecutionPool, source: BinaryIO, limits: Limits, workers: int
) -> Iterator[_Answer]:
  """Yields answers in order, while a thread submits those that follow."""
  answers: queue.Queue[_Answer | Exception | None] = queue.Queue(
    _AHEAD * workers
  )

  def read() -> None:
    try:
      for number, line in jsonl.lines(source):
        name, job = jsonl.parse(line, limits)
        answers.put((number, name, _submitted(pool, job)))
    except Exception as error:
      answers.put(error)
    else:
      answers.put(None)

  threading.Thread(target=read, daemon=True).start()
  while (answer := answers.get()) is not None:
    if isinstance(answer, Exception):
      raise answer
    yield answer


def _submitted(pool: ExecutionPool, job: Program | Call | str) -> Future[Any]:
  """Submits a job; a text is the reason to refuse it."""
  if isinstance(job, Program):
    return pool.submit([job])[0]
  if isinstance(job, Call):
    return pool.submit_calls([job])[0]
  refused: Future[ProgramResult] = Future()
  refused.set_result(ProgramResult('refused', None, (), message=job))
  return refused


if __name__ == '__main__':
  sys.exit(main())
