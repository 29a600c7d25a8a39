"""Progress bars of answers, where they take a while."""

from __future__ import annotations

from collections.abc import Sequence

import tqdm

from promptrl_jax.llm.backend import Backend, Completion, Incremental, Request

_AFTER_S = 5.0


def bar(total: int, name: str) -> tqdm.tqdm:
  """A progress bar of the answers of a model, in a terminal alone."""
  return tqdm.tqdm(
    total=total,
    desc=name.split('@')[0],
    unit='answer',
    delay=_AFTER_S,
    leave=False,
    disable=None,
  )


def complete(backend: Backend, requests: Sequence[Request]) -> list[Completion]:
  """Completions in order, with a bar if the backend hands them out one by one.

  One that does not, such as a cache, has a bar of its own or none.
  """
  if not isinstance(backend, Incremental):
    return backend.complete(requests)
  completions = {}
  with bar(len(requests), backend.name) as shown:
    for index, completion in backend.complete_each(requests):
      completions[index] = completion
      shown.update()
  return [completions[index] for index in range(len(requests))]
