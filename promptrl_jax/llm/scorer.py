"""Language models that return log-probs of a given text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from promptrl_jax.llm.backend import Backend, Request
from promptrl_jax.llm.cache import CachedBackend


@runtime_checkable
class Scorer(Protocol):
  """A language model that scores texts; `JaxLM` is one."""

  def score(
    self, requests: Sequence[Request], texts: Sequence[str], given: str = ''
  ) -> list[np.ndarray]:
    """Log-probs of the tokens [N] of each text; see `JaxLM.score`."""
    ...


def as_scorer(backend: Backend) -> Scorer:
  """Returns the backend, caches included, if it can score texts.

  Raises:
    ValueError: the backend cannot; chat servers return no log-probs of a given
      text.
  """
  inner = backend
  while isinstance(inner, CachedBackend):
    inner = inner.backend
  if isinstance(inner, Scorer) and isinstance(backend, Scorer):
    return backend
  raise ValueError(
    f'{backend.name} cannot score a given text, which the rewards perplexity, '
    'perplexity_f1 and likelihood need: use a model in this process (backend '
    '"jax"), or another reward'
  )
