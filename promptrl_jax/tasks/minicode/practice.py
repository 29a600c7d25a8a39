"""Statements of the suite's kind that are none of its problems.

The suite holds almost every combination of values that its families name, so a
small rewriter that was trained on most of them writes them from memory: on
problems that it has not seen it spoils a number in one of three. Practice
statements have values that no problem has, and leave nothing but copying. They
have no program and no tests.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import string
from collections.abc import Sequence
from typing import Any

from promptrl_jax.tasks.minicode import generate, registers, suite
from promptrl_jax.tasks.minicode.family import Family, Params, fill

# Beyond the largest value of a family; twice as many for wider ranges.
_MARGIN = 8
_TRIES = 20


@dataclasses.dataclass(frozen=True)
class Wording:
  """One statement and what it says in full.

  Attributes:
    task_id: of no problem of the suite, but of its form.
    statement: in the register.
    canonical: the canonical statement.
    function_name: what a function for it may be called.
  """

  task_id: str
  statement: str
  canonical: str
  function_name: str


def draw(register: str, known: float, rng: random.Random) -> Wording:
  """A statement of a family of the train split.

  Args:
    register: its wording.
    known: share of draws with the values of a training problem.
    rng: drawn from.
  """
  family, params = (_known if rng.random() < known else _draw_problem)(rng)
  return Wording(
    f'practice/{family.name}/{generate.params_text(params)}',
    registers.render(family, params, register, rng),
    fill(family.canonical, params),
    generate.draw_name(family, params, rng),
  )


@functools.cache
def _training() -> tuple[tuple[Family, Params], ...]:
  return tuple(
    (generate.FAMILIES[row['family']], row['params'])
    for row in suite.rows()
    if row['split'] == 'train' and row['params']
  )


def _known(rng: random.Random) -> tuple[Family, Params]:
  return rng.choice(_training())


def _draw_problem(rng: random.Random) -> tuple[Family, Params]:
  families = [f for f in generate.FAMILIES.values() if f.params and not f.ood]
  while True:
    family = rng.choice(families)
    grid = family.grid()
    for _ in range(_TRIES):
      params = {k: _value(v, rng) for k, v in family.params.items()}
      if params not in grid and (family.keep is None or family.keep(params)):
        return family, params


def _value(values: Sequence[Any], rng: random.Random) -> Any:
  """Of the same kind; words and marks are taken as they are."""
  if all(type(v) is int for v in values):
    return rng.randint(min(values), max(values) + max(_MARGIN, len(values)))
  if all(v in tuple(string.ascii_lowercase) for v in values):
    return rng.choice(string.ascii_lowercase)
  return rng.choice(values)
