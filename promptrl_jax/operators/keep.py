"""Ask again with the prompt as it is: greedily the first time, then sampled."""

from __future__ import annotations

from promptrl_jax.operators.operator import Operator, Question

KEEP = Operator(
  'keep',
  calls=1,
  apply=lambda episode, tools: Question(episode.prompt()),
  rival='direct',
)
