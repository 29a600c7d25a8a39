"""A plug-in of coverage.py that counts lines in the execution pool's workers.

Judge, zygote and candidates start without site packages, with an environment of
their own; a candidate is behind seccomp and ends by a signal. So they can
neither load coverage.py nor write a file. Instead their boot script, which the
plug-in extends, maps a file into memory before anything confines them, and
traces itself: a line that runs sets one byte there, which takes no system call,
outlives the process and is shared by all of its forks.

coverage.py loads the plug-in in every process that it measures (`.coveragerc`).
Nothing of it is in the package: without it, workers start as they always do.

  python -m tests.coverage_workers     turns the bytes into data to be combined
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import pathlib
import sys
from typing import Any

import coverage

_ROOT = pathlib.Path(__file__).parents[1]
_PACKAGE = _ROOT / 'promptrl_jax' / 'execution'
_MODULE = 'promptrl_jax.execution.process'
_MAP = _ROOT / '.coverage_workers'

# A candidate has little processor time, which tracing must not use up: it ends
# when this many calls and lines in a row have shown nothing new.
_PATIENCE = 10_000

_TRACER = """
def trace(path, offsets, patience):
  import mmap, os, sys
  descriptor = os.open(path, os.O_RDWR)
  seen = mmap.mmap(descriptor, 0)
  os.close(descriptor)
  left = None  # All that is wanted, unless this is a candidate.
  def wait():
    nonlocal left
    if left is not None:
      left -= 1
      if not left:
        sys.settrace(None)
  def make_tracer(offset):
    def of_line(frame, event, arg):
      nonlocal left
      if event == 'line':
        if not seen[offset + frame.f_lineno]:
          seen[offset + frame.f_lineno] = 1
          if left is not None:
            left = patience
        else:
          wait()
      return of_line
    return of_line
  tracers = {{name: make_tracer(offset) for name, offset in offsets.items()}}
  def of_call(frame, event, arg):
    nonlocal left
    name = frame.f_code.co_filename
    tracer = tracers.get(name)
    if tracer is None:
      wait()
    elif frame.f_code.co_qualname == 'run' and name.endswith('candidate.py'):
      left = patience
    return tracer
  sys.settrace(of_call)
trace({path!r}, {offsets!r}, {patience})
"""


def coverage_init(registry: Any, options: dict[str, Any]) -> None:
  """Called by coverage.py before it starts to measure a process."""
  del registry, options
  sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
  """Finds the module that starts workers, to change its boot script."""

  def find_spec(self, name, path=None, target=None):
    if name != _MODULE:
      return None
    sys.meta_path.remove(self)
    spec = importlib.machinery.PathFinder.find_spec(name, path, target)
    assert spec is not None and spec.loader is not None
    run = spec.loader.exec_module

    def run_and_extend(module):
      run(module)
      offsets, size = _offsets()
      _make_map(size)
      tracer = _TRACER.format(
        path=str(_MAP), offsets=offsets, patience=_PATIENCE
      )
      module._BOOT = tracer + module._BOOT

    spec.loader.exec_module = run_and_extend
    return spec


def _offsets() -> tuple[dict[str, int], int]:
  """Where the bytes of each file begin, one for each line; their number."""
  offsets, size = {}, 0
  for path in sorted(_PACKAGE.glob('*.py')):
    offsets[str(path)] = size
    size += 1 + len(path.read_text(encoding='utf-8').splitlines())
  return offsets, size


def _make_map(size: int) -> None:
  """Makes the file of zeros, unless another process has made it."""
  descriptor = os.open(_MAP, os.O_RDWR | os.O_CREAT, 0o600)
  os.ftruncate(descriptor, size)
  os.close(descriptor)


def main() -> None:
  """Writes the lines that ran as a data file beside those of coverage.py."""
  seen = _MAP.read_bytes()
  offsets, size = _offsets()
  assert len(seen) == size, 'the sources have changed since the run'
  begins = [*offsets.values(), size]
  lines = {
    path: [n for n in range(end - begin) if seen[begin + n]]
    for path, begin, end in zip(offsets, begins, begins[1:], strict=False)
  }
  data = coverage.CoverageData(str(_ROOT / '.coverage.workers'))
  data.add_lines(lines)
  data.write()
  _MAP.unlink()


if __name__ == '__main__':
  main()
