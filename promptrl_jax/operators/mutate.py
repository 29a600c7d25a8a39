"""Replace words of the statement by synonyms, then ask."""

from __future__ import annotations

import random

from promptrl_jax.operators import lexical
from promptrl_jax.operators.operator import Operator, Question


def _apply(episode, tools):
  mutated = lexical.mutate(
    episode.statement,
    random.Random(episode.draw_seed()),
    tools.options.get('lexical', lexical.LexicalConfig()),
    protected=(episode.problem.entry_point,),
  )
  episode.edit(mutated)
  episode.mutations += 1
  return Question(episode.prompt())


LEXICAL = Operator('lexical', calls=1, apply=_apply)
