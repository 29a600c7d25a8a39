"""The budget of a command that looks at a single one."""

from __future__ import annotations

from absl import flags

BUDGET = flags.DEFINE_integer(
  'budget', 8, 'Model calls per problem.', lower_bound=1
)
