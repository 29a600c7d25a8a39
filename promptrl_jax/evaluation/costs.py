"""Wall seconds and dollars of cells, and a file of scores beside costs.

The seconds are those of the run: an answer from a cache takes none, so that a
strategy that is played later may find what an earlier one has asked. The
dollars are those of all calls that a strategy is charged, wherever the answers
came from.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from promptrl_jax.evaluation import events
from promptrl_jax.files import write_atomically
from promptrl_jax.llm.backend import Backend

_SCORES = ('pass', 'soft')
_ENTRIES = (
  *('calls', 'attempts', 'prompt_tokens', 'completion_tokens'),
  *('seconds', 'dollars', 'optimisation_calls'),
)


@dataclasses.dataclass(frozen=True)
class Cost:
  """What a cell took in all; None: unknown."""

  seconds: float | None = None
  dollars: float | None = None

  def per(self, episodes: int) -> dict[str, float | None]:
    """The means of this many episodes, by name."""
    return {
      name: None if total is None else total / episodes
      for name, total in vars(self).items()
    }


UNKNOWN = Cost()


def dollars(
  trace: Iterable[Mapping[str, Any]],
  models: Callable[[int], Mapping[str, Backend]],
) -> float | None:
  """Returns what the model calls of a trace cost; None: unknown.

  Args:
    trace: rows of `LineUp.play_cell`.
    models: seed -> the model of each role. One that has no `price`, or None,
      as `CachedBackend` has for a model whose price the run does not name, has
      an unknown one.
  """
  total, tables = 0.0, {}
  for row in trace:
    seed = row['seed']
    if seed not in tables:
      tables[seed] = models(seed)
    for sent, answer in zip(row['sent'], row['answers'], strict=True):
      price = getattr(tables[seed][sent['role']], 'price', None)
      if price is None:
        return None
      total += price.dollars(
        answer['prompt_tokens'], answer['completion_tokens']
      )
  return total


def of_events(seen: Iterable[events.Event]) -> dict[events.Key, Cost]:
  """What the cells of a stream of events took, the last time each was told."""
  return {
    key: Cost(event.get('seconds'), event.get('dollars'))
    for key, event in events.cells(seen).items()
  }


def write_csv(
  path: str | os.PathLike[str], summaries: Mapping[str, Mapping[str, Any]]
) -> pathlib.Path:
  """Writes a row per cell with scores and means per problem; returns the path.

  Args:
    path: file to write.
    summaries: results of `report.summarise` by protocol. What is unknown is
      empty.
  """
  text = io.StringIO()
  table = csv.writer(text, lineterminator='\n')
  ends = [f'{score}{end}' for score in _SCORES for end in ('', '_low', '_high')]
  table.writerow(['protocol', 'strategy', 'budget', 'seeds', *ends, *_ENTRIES])
  for protocol, summary in summaries.items():
    for cell in summary['cells']:
      scores = [
        cell[score][end] for score in _SCORES for end in ('mean', 'low', 'high')
      ]
      row = [protocol, cell['strategy'], cell['budget'], cell['seeds'], *scores]
      table.writerow([*row, *(cell[name] for name in _ENTRIES)])
  return write_atomically(path, text.getvalue().encode())
