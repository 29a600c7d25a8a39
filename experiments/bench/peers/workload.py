"""The work that the parent gives a driver, and the line that it prints for it.

Only the standard library: this runs in the environment of any peer.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Workload(NamedTuple):
  """Crosses to the process of a driver as JSON, its first argument."""

  size: str  # the name of the shape
  shape: dict[str, int]  # fields of TransformerConfig, without biases and norms
  prompt: int  # tokens of each prompt
  new: int  # tokens of each completion, none ends earlier
  batches: list[int]
  dtypes: list[str]  # of the parameters: bfloat16, float32
  runs: int  # timed calls of each batch, after one that is not
  limit_s: float  # no further timed call once these took longer


def read() -> Workload:
  """The workload of this process."""
  return Workload(**json.loads(sys.argv[1]))


def measure(
  work: Workload,
  sampler: str,
  sample: Callable[[list[list[int]]], Sequence[Sequence[int]]],
  **way,
) -> None:
  """Prints one line for each batch.

  Args:
    work: what to sample.
    sampler: the name of the peer.
    sample: takes a batch of prompts, gives the new ids of each of them.
    **way: how the peer was run (dtype, cache, devices): fields of the line.

  Raises:
    ValueError: a completion has another length than was asked for.
  """
  for batch in work.batches:
    draw = random.Random(0)
    prompts = [
      [draw.randrange(3, work.shape['vocab_size']) for _ in range(work.prompt)]
      for _ in range(batch)
    ]
    taken = []
    while len(taken) < 2 or (
      len(taken) <= work.runs and sum(taken[1:]) < work.limit_s
    ):
      start = time.perf_counter()
      completions = sample(prompts)
      taken.append(time.perf_counter() - start)
      lengths = [len(row) for row in completions]
      if lengths != [work.new] * batch:
        raise ValueError(f'{sampler}: lengths {lengths}, asked for {work.new}')
    rate = batch * work.new / statistics.median(taken[1:])
    line = {'size': work.size, 'sampler': sampler, **way, 'batch': batch}
    line |= {
      'tokens_per_s': round(rate, 1),
      'first_call_s': round(taken[0], 2),
      'runs': len(taken) - 1,
    }
    print(json.dumps(line), flush=True)
