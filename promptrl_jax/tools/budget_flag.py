"""The budget at which a command looks up what a strategy played."""

from __future__ import annotations

from absl import flags

BUDGET = flags.DEFINE_integer('budget', 8, 'Model calls per problem.')
