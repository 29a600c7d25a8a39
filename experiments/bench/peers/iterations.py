"""One iteration of reinforcement learning: what drivers are asked, and a clock.

Only the standard library: this runs in the environment of any peer. A trainer
owns its loop, and so it is given a clock: that wraps the functions of a part,
is told when an iteration ends, and leaves the loop when it has seen enough.
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
  """Crosses to the process of a driver as JSON, its first argument."""

  size: str  # the name of the shape
  shape: dict[str, int]  # fields of TransformerConfig, without biases and norms
  prompts: int  # different prompts of an iteration
  group: int  # completions of each prompt, in one update
  prompt: int  # tokens of each prompt
  new: int  # tokens of each completion, none ends earlier
  beta: float  # weight of the KL to the reference
  learning_rate: float
  dtypes: list[str]  # of activations; parameters and AdamW are float32
  runs: int  # timed iterations, after those that are not
  limit_s: float  # no further timed iteration once these took longer

  @property
  def sequences(self) -> int:
    """Rows of an update."""
    return self.prompts * self.group

  @property
  def no_token(self) -> int:
    """An id that no model draws: as end or padding it costs nothing."""
    return self.shape['vocab_size']


def read() -> Work:
  """The work of this process."""
  return Work(**json.loads(sys.argv[1]))


def texts(work: Work, count: int) -> list[str]:
  """`count` prompts: words that are ids, a space between them."""
  draw = random.Random(0)
  size = work.shape['vocab_size']
  return [
    ' '.join(str(draw.randrange(3, size)) for _ in range(work.prompt))
    for _ in range(count)
  ]


def even(work: Work, completions: Sequence[Sequence[int]]) -> list[float]:
  """The reward: the share of even ids of each completion.

  Raises:
    ValueError: there are more or fewer completions, or one is shorter.
  """
  lengths = [len(ids) for ids in completions]
  if lengths != [work.new] * work.sequences:
    raise ValueError(
      f'completions of lengths {lengths}: expected {work.sequences}, each '
      f'of {work.new} tokens'
    )
  return [sum(i % 2 == 0 for i in ids) / work.new for ids in completions]


class _Enough(Exception):
  """Leaves the loop of a trainer."""


class Clock:
  """Wall seconds of the parts of iterations; each moment counts once."""

  def __init__(self, work: Work, rest: str, untimed: int = 1):
    """Starts the first iteration.

    Args:
      work: says how many iterations are timed.
      rest: the part that a moment belongs to if nothing wrapped is running.
      untimed: iterations before those: what is compiled there does not count.
    """
    self.iterations: list[dict[str, float]] = []
    self._work, self._rest, self._untimed = work, rest, untimed
    self._begin()

  def _begin(self) -> None:
    self._spent = dict.fromkeys(PARTS, 0.0)
    self._part = self._rest
    self._since, self._others = time.perf_counter(), _others()

  def enter(self, part: str) -> str:
    """From here on time belongs to `part`; returns what was running."""
    now, before = time.perf_counter(), self._part
    self._spent[before] += now - self._since
    self._since, self._part = now, part
    return before

  def during(
    self, owner: Any, name: str, part: str, wait: Callable[[Any], Any] = id
  ) -> None:
    """Calls of `owner.name` belong to `part`, all but parts inside of them.

    Args:
      owner: an object or module.
      name: its function, which is replaced.
      part: one of `PARTS`.
      wait: returns once a result is there; for devices that run ahead.
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
    """Closes the books of an iteration; leaves `running` after the last."""
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
    """Wraps the loop of a trainer, whose prints go to stderr.

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
    """What is printed: medians over the timed iterations.

    Args:
      peer: who ran.
      algorithm: grpo or ppo.
      **way: how (dtype, cache, devices): fields of the line.
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
  """Seconds of an iteration."""
  return sum(spent[part] for part in PARTS)


def report(line: dict[str, Any]) -> None:
  """Prints a line for the parent."""
  print(json.dumps(line), flush=True)


def _others() -> float:
  """CPU seconds of all other processes since boot (Linux; 0 elsewhere)."""
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
