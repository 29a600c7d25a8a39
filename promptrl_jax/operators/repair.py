"""Show the coder its failing program and what went wrong with it."""

from __future__ import annotations

from promptrl_jax.operators.operator import Operator, Question

REPAIR = Operator(
  'repair',
  calls=1,
  apply=lambda episode, tools: Question(episode.prompt(repairing=True)),
  available=lambda episode: episode.attempts > 0,
)
