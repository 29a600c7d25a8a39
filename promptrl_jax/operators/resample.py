"""Ask again with the prompt as it is, for a new sample."""

from __future__ import annotations

from promptrl_jax.operators.operator import Operator, Question

RESAMPLE = Operator(
  'resample',
  calls=1,
  apply=lambda episode, tools: Question(episode.prompt(), resample=True),
  # Resampling until the visible tests pass is best-of-B.
  rival='best_of_b',
)
