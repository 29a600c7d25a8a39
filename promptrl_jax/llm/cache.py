"""A completion cache that never shares a sample between two seeds.

The key is the whole request, so samples at a temperature are told apart by
their seed. Greedy requests ignore the seed: repeating one costs nothing. A hit
is free in time and tokens but still a call for the ledger, which is charged by
whoever asks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from promptrl_jax.llm.backend import Backend, BackendError, Completion, Request


class CachedBackend:
  """Wraps a backend and answers repeated requests from memory.

  Attributes:
    hits: requests answered without the wrapped backend, repetitions within one
      batch included.
    misses: requests passed on to it.
  """

  def __init__(self, backend: Backend):
    self._backend = backend
    self._completions: dict[Request, Completion] = {}
    self.hits = 0
    self.misses = 0

  @property
  def name(self) -> str:
    return self._backend.name

  def complete(self, requests: Sequence[Request]) -> list[Completion]:
    """Answers in order; all misses go to the backend in one batched call."""
    keys = [_key(r) for r in requests]
    missing = [k for k in dict.fromkeys(keys) if k not in self._completions]
    if missing:
      answers = self._backend.complete(missing)
      if len(answers) != len(missing):
        raise BackendError(
          f'{self.name} gave {len(answers)} completions for '
          f'{len(missing)} requests'
        )
      self._completions.update(zip(missing, answers, strict=True))
    self.misses += len(missing)
    self.hits += len(keys) - len(missing)
    return [self._completions[k] for k in keys]

  def fits(self, request: Request) -> bool:
    return self._backend.fits(request)

  def count_tokens(self, text: str) -> int:
    return self._backend.count_tokens(text)

  def close(self) -> None:
    self._backend.close()


def _key(request: Request) -> Request:
  """The request itself, equal by content, with what has no effect set to 0."""
  if request.temperature == 0:
    return dataclasses.replace(request, seed=0)
  return request
