"""What the parts of rivals are worth: strategies that lack one of them.

A plug-in (--config.plugins="('experiments.ablations',)"), which the sweep of
configs/compare.py loads:

  reflexion_memory_1           shows the latest reflection alone, as released
  reflexion_memory_0           shows none: a reflection is written, and paid for
  reflexion_without_reflection repairs from what the tests said alone
  epic_fixed_without_mutation  children of EPiC's later generations are copies
"""

from __future__ import annotations

import dataclasses

from promptrl_jax.llm.preflight import CandidateCost
from promptrl_jax.operators.lexical import LexicalConfig
from promptrl_jax.strategies.base import register
from promptrl_jax.strategies.epic import epic_with
from promptrl_jax.strategies.epic_config import FIXED
from promptrl_jax.strategies.reflexion import (
  ReflexionConfig,
  immediate_refinement,
  reflexion_with,
)

for _memory in (1, 0):
  register(
    f'reflexion_memory_{_memory}',
    reflexion_with(ReflexionConfig(memory=_memory)),
    CandidateCost(calls=2),
    instructed=True,
    remembers=_memory > 0,
  )
register(
  'reflexion_without_reflection',
  immediate_refinement,  # beside the others in the sweep, by what it lacks
  CandidateCost(),
  instructed=True,
)
register(
  'epic_fixed_without_mutation',
  epic_with(dataclasses.replace(FIXED, lexical=LexicalConfig(probability=0.0))),
  CandidateCost(calls=2),
  instructed=True,
)
