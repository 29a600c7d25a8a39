"""Operators: the actions of the prompt-editing environment, by name.

A new operator is a call of `register`, in `builtin.py` or in a module that
`--config.plugins` names.

In PROMIS's code 0, 1, 2 are keep, semantic, lexical; in its result table they
are keep, lexical, semantic. Names do not have that problem.
"""

from __future__ import annotations

from promptrl_jax.operators import builtin as _builtin  # noqa: F401 (registers)
from promptrl_jax.operators.episode import Decide, Episode
from promptrl_jax.operators.operator import (
  FALLBACK,
  OPERATORS,
  Operator,
  Question,
  register,
)

__all__ = [
  'DEFAULT',
  'FALLBACK',
  'MOST_EXAMPLES',
  'OPERATORS',
  'PROMIS',
  'Decide',
  'Episode',
  'Operator',
  'Question',
  'check',
  'register',
]

# The action set of a controller unless its config says otherwise.
_OPTIONAL = ('undo', 'add_demo')
DEFAULT = tuple(name for name in OPERATORS if name not in _OPTIONAL)
# Solved tasks that `add_demo` puts into a prompt, at most.
MOST_EXAMPLES = 3
PROMIS = ('keep', 'semantic', 'lexical')


def check(names: tuple[str, ...]) -> None:
  """Raises ValueError if a name is unknown or the fallback is missing."""
  for name in names:
    OPERATORS[name]  # Raises for an unknown one.
  if FALLBACK not in names:
    raise ValueError(f'actions {names} must contain "keep", the fallback')
