"""Reflections of a run on training problems, shown where others are solved.

No flags here.
"""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from promptrl_jax.prompts import reflection
from promptrl_jax.prompts.reflection import Reflection
from promptrl_jax.training.supervised.edits import read_trace
from promptrl_jax.types import Task


@dataclasses.dataclass(frozen=True)
class Memory:
  """What a run on other problems has left.

  Attributes:
    reflections: of that run, oldest first.
    calls: different model calls of the strategies that wrote them, paid once.
  """

  reflections: tuple[Reflection, ...] = ()
  calls: float = 0.0


def played_in(config, tasks):
  """What a comparison plays: the problems that choices are made on, too."""
  fitted_on = config.verifier_problems if config.verified else 0
  train = tasks['train'][:fitted_on]
  return [*tasks['test'], *tasks['validation'], *train]


def read(path: str, played: Sequence[Task]) -> Memory:
  """Reads the reflections in a trace.

  Args:
    path: of a `trace.jsonl`; empty: nothing is remembered.
    played: problems that are going to be solved.

  Raises:
    FileNotFoundError: there is no such file.
    ValueError: it is no trace, or has no reflection, or one on a problem that
      is played, which would be solved with more calls than are counted.
  """
  if not path:
    return Memory()
  rows, asked = [], collections.defaultdict(set)
  for row in read_trace(path):
    asked[row.get('strategy')].update(map(_key, row.get('sent', ())))
    if row.get('action') == 'reflect':
      rows.append(row)
  if any(not {'situation', 'reflection'} <= row.keys() for row in rows):
    raise ValueError(
      f'eval.reflections={path}: a row of action reflect lacks its situation '
      'or reflection, expected a trace of this version'
    )
  reflections = reflection.from_trace(rows)
  if not reflections:
    raise ValueError(
      f'eval.reflections={path}: no row has a reflection, expected the trace '
      'of a run of reflexion on training problems'
    )
  names = {task.task_id for task in played}
  # The same problem may have another name in another task set.
  statements = tuple(f'{task.statement}\n' for task in played)
  if known := {
    row['task_id']
    for row in rows
    if row['task_id'] in names or row['situation'].startswith(statements)
  }:
    raise ValueError(
      f'eval.reflections={path}: has reflections on {len(known)} problems that '
      f'are played ({min(known)}, ...), expected a run on training problems'
    )
  strategies = {row.get('strategy') for row in rows}
  calls = set().union(*(asked[strategy] for strategy in strategies))
  return Memory(reflections, float(len(calls)))


def _key(ask: Mapping[str, Any]) -> int:
  """Equal for requests that a cache answers once: greedy ones ignore the seed.

  It is a hash, since the prompts of a trace may take gigabytes.
  """
  seed = ask['seed'] if ask['temperature'] else 0
  return hash(json.dumps({**ask, 'seed': seed}))
