"""Requests for candidate answers to a query, one under each system prompt."""

from __future__ import annotations

from collections.abc import Sequence

from promptrl_jax.llm.backend import Message, Request


def candidate_requests(
  system_prompts: Sequence[str],
  query: str,
  *,
  temperature: float | None = None,
  default_temperature: float = 0.7,
  max_tokens: int = 512,
  seed: int = 0,
) -> list[Request]:
  """Returns what asks a model once under each system prompt.

  Args:
    temperature: what the policy chose for this query; None takes the default.
    seed: of the first candidate; the others have the ones after it, so that
      equal prompts give different answers.
  """
  if temperature is None:
    temperature = default_temperature
  return [
    Request(
      (Message('system', prompt), Message('user', query)),
      temperature=float(temperature),
      seed=seed + i,
      max_tokens=max_tokens,
    )
    for i, prompt in enumerate(system_prompts)
  ]
