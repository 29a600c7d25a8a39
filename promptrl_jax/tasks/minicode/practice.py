"""Draws statements of problems that are not in the suite.

The suite holds almost every combination of values that its families name, so a
small rewriter that was trained on most of them memorises the values: on unseen
problems it gets a number wrong in one of four statements. With values that no
problem has, it must copy them. These statements have no program and no tests.
"""

from __future__ import annotations

import dataclasses
import random
import string
from collections.abc import Collection, Sequence
from typing import Any

from promptrl_jax.tasks.minicode import generate, registers
from promptrl_jax.tasks.minicode.family import Family, Params, fill
from promptrl_jax.tasks.minicode.suite import SUITE

# Integers are drawn up to at least this much above a family's largest value.
_MARGIN = 8
_TRIES = 20


@dataclasses.dataclass(frozen=True)
class Wording:
  """A statement in a register, its canonical form and a function's name."""

  statement: str
  canonical: str
  function_name: str


Values = tuple[Family, Params]


def values_of(task_ids: Collection[str]) -> list[Values]:
  """Returns families and parameter values of problems, for `draw`."""
  return [
    (generate.FAMILIES[row['family']], row['params'])
    for row in SUITE.rows
    if row['task_id'] in task_ids
  ]


def draw(
  register: str, rng: random.Random, values: Values | None = None
) -> Wording:
  """Draws a statement of a family of the train split, in a register.

  `values` are family and parameters; None draws parameters that no problem has.
  """
  family, params = values or _beyond(rng)
  return Wording(
    registers.render(family, params, register, rng),
    fill(family.canonical, params),
    generate.draw_name(family, params, rng),
  )


def _beyond(rng: random.Random) -> Values:
  families = [f for f in generate.FAMILIES.values() if f.params and not f.ood]
  while True:
    family = rng.choice(families)
    grid = family.grid()
    for _ in range(_TRIES):
      params = {k: _value(v, rng) for k, v in family.params.items()}
      if params not in grid and (family.keep is None or family.keep(params)):
        return family, params


def _value(values: Sequence[Any], rng: random.Random) -> Any:
  """Draws a value of the same kind; words and marks from the given ones."""
  if all(type(v) is int for v in values):
    return rng.randint(min(values), max(values) + max(_MARGIN, len(values)))
  if all(v in tuple(string.ascii_lowercase) for v in values):
    return rng.choice(string.ascii_lowercase)
  return rng.choice(values)
