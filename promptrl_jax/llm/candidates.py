"""Candidate answers to a query: one for each of several system prompts."""

from __future__ import annotations

from collections.abc import Sequence

from promptrl_jax.llm.backend import Backend, Completion, Message, Request


def ask_candidates(
  backend: Backend,
  system_prompts: Sequence[str],
  query: str,
  *,
  temperature: float | None = None,
  default_temperature: float = 0.7,
  max_tokens: int = 512,
  seed: int = 0,
) -> list[Completion]:
  """Asks a model once under each system prompt, in one batch.

  Args:
    temperature: what the policy chose for this query; None takes the default.
    seed: of the first candidate; the others have the ones after it, so that
      equal prompts give different answers.

  Raises:
    BackendError: the model could not be asked.
  """
  if temperature is None:
    temperature = default_temperature
  return backend.complete(
    [
      Request(
        (Message('system', prompt), Message('user', query)),
        temperature=float(temperature),
        seed=seed + i,
        max_tokens=max_tokens,
      )
      for i, prompt in enumerate(system_prompts)
    ]
  )
