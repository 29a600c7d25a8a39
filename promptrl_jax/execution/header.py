"""Standard imports before a program, for models that forget to write them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TypeVar

from promptrl_jax.execution.call import Call, CallResult
from promptrl_jax.execution.pool import ExecutionPool
from promptrl_jax.execution.program import Program, ProgramResult

_J = TypeVar('_J', Program, Call)

# Modules of the standard library that programs of MBPP's kind use, and names
# that people import from them. What a program defines itself replaces them.
IMPORT_HEADER = """\
import bisect, collections, copy, datetime, functools, heapq, itertools, math
import operator, random, re, statistics, string, sys
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence
from typing import Set, Tuple, Union
"""

# Future imports must stay in front of everything else.
_FUTURE = re.compile(
  r'^from[ \t]+__future__[ \t]+import[ \t]+(?:\([^)]*\)[^\n]*|[^\n]*)\n?',
  re.MULTILINE,
)


def with_import_header(code: str) -> str:
  """The program with `IMPORT_HEADER` before it, or after `__future__` imports.

  A blank program stays blank, because it is still no program. The program is
  not parsed here, so the pool reports one that does not compile as before.
  """
  if not code.strip():
    return code
  start = max((match.end() for match in _FUTURE.finditer(code)), default=0)
  before = code[:start]
  if before and not before.endswith('\n'):
    before += '\n'
  return before + IMPORT_HEADER + code[start:]


class ImportHeaderPool:
  """An `ExecutionPool` that puts the header before every program.

  Results with and without the header are not comparable, so a report has to say
  which of the two it used.
  """

  def __init__(self, pool: ExecutionPool):
    self._pool = pool

  def run(self, programs: Sequence[Program]) -> list[ProgramResult]:
    return self._pool.run(_with_header(programs))

  def submit(self, programs: Sequence[Program]) -> list[Future[ProgramResult]]:
    return self._pool.submit(_with_header(programs))

  def evaluate(self, calls: Sequence[Call]) -> list[CallResult]:
    return self._pool.evaluate(_with_header(calls))

  def submit_calls(self, calls: Sequence[Call]) -> list[Future[CallResult]]:
    return self._pool.submit_calls(_with_header(calls))


def _with_header(jobs: Sequence[_J]) -> list[_J]:
  return [
    dataclasses.replace(job, code=with_import_header(job.code)) for job in jobs
  ]
