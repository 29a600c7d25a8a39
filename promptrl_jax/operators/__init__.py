"""Operators: the actions of the prompt-editing environment, by name.

A new operator is one file with an `Operator` in it and one line below, or a
call of `register` in a module that `--config.plugins` names.

In PROMIS's code 0, 1, 2 are keep, semantic, lexical; in its result table they
are keep, lexical, semantic. Names do not have that problem.
"""

from __future__ import annotations

from promptrl_jax.operators.episode import Decide, Episode
from promptrl_jax.operators.keep import KEEP
from promptrl_jax.operators.mutate import LEXICAL
from promptrl_jax.operators.operator import (
  FALLBACK,
  OPERATORS,
  Operator,
  Question,
  register,
)
from promptrl_jax.operators.repair import REPAIR
from promptrl_jax.operators.resample import RESAMPLE
from promptrl_jax.operators.reset_prompt import RESET_PROMPT, UNDO
from promptrl_jax.operators.semantic import SEMANTIC
from promptrl_jax.operators.submit import SUBMIT

__all__ = [
  'DEFAULT',
  'FALLBACK',
  'OPERATORS',
  'PROMIS',
  'Decide',
  'Episode',
  'Operator',
  'Question',
  'check',
  'register',
]

register(KEEP)
register(RESAMPLE)
register(LEXICAL)
register(SEMANTIC)
register(REPAIR)
register(RESET_PROMPT)
register(UNDO)
register(SUBMIT)

# The action set of a controller unless its config says otherwise.
DEFAULT = tuple(name for name in OPERATORS if name != 'undo')
PROMIS = ('keep', 'semantic', 'lexical')


def check(names: tuple[str, ...]) -> None:
  """Raises ValueError if a name is unknown or the fallback is missing."""
  for name in names:
    OPERATORS[name]  # Raises for an unknown one.
  if FALLBACK not in names:
    raise ValueError(f'actions {names} must contain "keep", the fallback')
