"""The work that the parent passes to a driver, and the line that it prints.

The module uses only the standard library, as it runs in the environment of any
peer.
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
  """The work of a driver, passed to its process as JSON in an argument."""

  size: str  # name of the shape
  shape: dict[str, int]  # fields of TransformerConfig, without biases and norms
  prompt: int  # tokens of each prompt
  new: int  # tokens of each completion; none ends earlier
  batches: list[int]
  dtypes: list[str]  # dtypes of the parameters: bfloat16, float32
  runs: int  # timed calls for each batch, after an untimed one
  limit_s: float  # seconds after which no further call is timed


def read() -> Workload:
  """Returns the workload of this process."""
  return Workload(**json.loads(sys.argv[1]))


def measure(
  work: Workload,
  sampler: str,
  sample: Callable[[list[list[int]]], Sequence[Sequence[int]]],
  **way,
) -> None:
  """Times a sampler and prints one line for each batch size.

  Args:
    work: prompts and batches to sample.
    sampler: name of the peer.
    sample: maps a batch of prompts to the new ids of each prompt.
    **way: further fields of the line: dtype, cache, devices.

  Raises:
    ValueError: a completion does not have `work.new` tokens.
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
