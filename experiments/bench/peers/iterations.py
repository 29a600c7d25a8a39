"""The work of one iteration of GRPO or PPO, and a clock for its parts.

The module uses only the standard library, as it runs in the environment of any
peer. A peer's trainer runs its own loop, so a clock wraps the functions of each
part, is called at the end of an iteration, and leaves the loop by an exception
once enough iterations are timed.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

PARTS = ('rollout', 'score', 'update')


class Work(NamedTuple):
  """The work of a driver, passed to its process as JSON in an argument."""

  size: str  # name of the shape
  shape: dict[str, int]  # fields of TransformerConfig, without biases and norms
  prompts: int  # different prompts of an iteration
  group: int  # completions of each prompt, in one update
  prompt: int  # tokens of each prompt
  new: int  # tokens of each completion; none ends earlier
  beta: float  # KL coefficient
  learning_rate: float
  dtypes: list[str]  # of activations; parameters and AdamW are float32
  runs: int  # timed iterations, after the untimed ones
  limit_s: float  # seconds after which no further iteration is timed

  @property
  def sequences(self) -> int:
    """Number of completions of an update."""
    return self.prompts * self.group

  @property
  def no_token(self) -> int:
    """An id outside of the vocabulary, for the end and padding tokens."""
    return self.shape['vocab_size']


def read() -> Work:
  """Returns the work of this process."""
  return Work(**json.loads(sys.argv[1]))


def texts(work: Work, count: int) -> list[str]:
  """Returns prompts whose words are token ids, separated by spaces."""
  draw = random.Random(0)
  size = work.shape['vocab_size']
  return [
    ' '.join(str(draw.randrange(3, size)) for _ in range(work.prompt))
    for _ in range(count)
  ]


def even(work: Work, completions: Sequence[Sequence[int]]) -> list[float]:
  """Returns the reward of each completion, its share of even ids.

  Raises:
    ValueError: the number or the lengths of the completions are wrong.
  """
  lengths = [len(ids) for ids in completions]
  if lengths != [work.new] * work.sequences:
    raise ValueError(
      f'completions of lengths {lengths}: expected {work.sequences}, each '
      f'of {work.new} tokens'
    )
  return [sum(i % 2 == 0 for i in ids) / work.new for ids in completions]


class _Enough(Exception):
  """Raised to leave the loop of a trainer."""


class Clock:
  """Measures the wall seconds of each part of an iteration, exclusively."""

  def __init__(self, work: Work, rest: str, untimed: int = 1):
    """Starts the first iteration.

    Args:
      work: number of timed iterations and their limit.
      rest: the part that is charged if no wrapped function is running.
      untimed: number of untimed iterations before, in which programs compile.
    """
    self.iterations: list[dict[str, float]] = []
    self._work, self._rest, self._untimed = work, rest, untimed
    self._begin()

  def _begin(self) -> None:
    self._spent = dict.fromkeys(PARTS, 0.0)
    self._part = self._rest
    self._since, self._others = time.perf_counter(), _others()

  def enter(self, part: str) -> str:
    """Charges time to `part` from now on; returns the part before."""
    now, before = time.perf_counter(), self._part
    self._spent[before] += now - self._since
    self._since, self._part = now, part
    return before

  def charge(self, part: str, seconds: float) -> None:
    """Charges the last `seconds` of the current part to `part` instead."""
    self._spent[self._part] -= seconds
    self._spent[part] += seconds

  def during(
    self, owner: Any, name: str, part: str, wait: Callable[[Any], Any] = id
  ) -> None:
    """Charges calls of `owner.name` to `part`, except for nested parts.

    Args:
      owner: an object or module.
      name: name of its function, which is replaced.
      part: one of `PARTS`.
      wait: blocks until a result is computed, for asynchronous devices.
    """
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def timed(*args, **kwargs):
      before = self.enter(part)
      try:
        result = inner(*args, **kwargs)
        wait(result)
        return result
      finally:
        self.enter(before)

    setattr(owner, name, timed)

  def iteration_ends(self) -> None:
    """Ends an iteration; leaves `running` after the last one."""
    self.enter(self._rest)
    total = sum(self._spent.values())
    others = max(0.0, _others() - self._others) / total
    self.iterations.append({**self._spent, 'others': others})
    timed = [_whole(spent) for spent in self.iterations[self._untimed :]]
    is_late = timed and sum(timed) > self._work.limit_s
    if is_late or len(timed) >= self._work.runs:
      raise _Enough
    self._begin()

  @contextlib.contextmanager
  def running(self) -> Iterator[None]:
    """Runs the loop of a trainer, with its output on stderr.

    Raises:
      RuntimeError: the loop ended before all iterations were timed.
    """
    try:
      with contextlib.redirect_stdout(sys.stderr):
        yield
    except _Enough:
      return
    raise RuntimeError(
      f'the loop ended after {len(self.iterations)} iterations'
    )

  def line(self, peer: str, algorithm: str, **way) -> dict[str, Any]:
    """Returns the line to print, with medians over the timed iterations.

    Args:
      peer: name of the project.
      algorithm: `grpo` or `ppo`.
      **way: further fields of the line: dtype, cache, devices.
    """
    timed = self.iterations[self._untimed :]
    median = lambda name: statistics.median(spent[name] for spent in timed)
    line: dict[str, Any] = {'size': self._work.size, 'algorithm': algorithm}
    line |= {'peer': peer, **way}
    line['iteration_s'] = round(statistics.median(map(_whole, timed)), 3)
    line |= {f'{part}_s': round(median(part), 3) for part in PARTS}
    line |= {
      'first_iteration_s': round(_whole(self.iterations[0]), 2),
      'iterations': len(timed),
      'other_cores': round(median('others'), 2),
    }
    return line


def _whole(spent: dict[str, float]) -> float:
  """Returns the seconds of an iteration."""
  return sum(spent[part] for part in PARTS)


def report(line: dict[str, Any]) -> None:
  """Prints a line for the parent process."""
  print(json.dumps(line), flush=True)


def _others() -> float:
  """Returns the CPU seconds of other processes since boot; 0 without /proc."""
  try:
    with open('/proc/stat', encoding='ascii') as file:
      user, nice, system, _, _, irq, soft = map(
        int, file.readline().split()[1:8]
      )
  except OSError:
    return 0.0
  busy = (user + nice + system + irq + soft) / os.sysconf('SC_CLK_TCK')
  own = os.times()
  return busy - own.user - own.system
