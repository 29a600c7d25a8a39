"""Families of minicode problems: templates with parameters.

A family is a template of a small programming problem: statements in several
wordings, function names, a reference program and a generator of inputs, all
with the same parameters. A *problem* is a family with its parameters fixed. In
every template `$name` stands for a parameter, `$f` for the function's name.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Params = Mapping[str, Any]
Inputs = Callable[[random.Random, Params], tuple[Any, ...]]

GROUPS = ('list', 'string', 'number', 'dict', 'tuple', 'set', 'composition')


@dataclasses.dataclass(frozen=True)
class Family:
  """A template of problems.

  Attributes:
    name: unique identifier, `snake_case`.
    group: one of `GROUPS`.
    canonical: the statement in full, MBPP style ("Write a function to ...").
    paraphrases: at least two statements of the same meaning in other words,
      order or voice; every parameter is still there.
    terse: a statement that leaves one detail out; the first assertion of a
      problem shows it.
    names: at least three function names; may contain parameters.
    code: the reference program; starts with `def $f(`.
    inputs: `(rng, params) -> args`, draws the arguments of one call.
    params: the values of each parameter; problems are their product.
    keep: optional filter on parameter combinations.
    ood: the family belongs to the `ood` split and no model is trained on it.
  """

  name: str
  group: str
  canonical: str
  paraphrases: tuple[str, ...]
  terse: str
  names: tuple[str, ...]
  code: str
  inputs: Inputs
  params: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
  keep: Callable[[Params], bool] | None = None
  ood: bool = False

  def grid(self) -> list[dict[str, Any]]:
    """Returns all parameter combinations, in a fixed order."""
    keys = list(self.params)
    combos = itertools.product(*(self.params[k] for k in keys))
    grid = [dict(zip(keys, values, strict=True)) for values in combos]
    return [p for p in grid if self.keep is None or self.keep(p)]


def fill(template: str, params: Params, **extra: str) -> str:
  """Substitutes parameters; an unknown `$name` is an error."""
  return string.Template(template).substitute(
    {k: str(v) for k, v in params.items()}, **extra
  )


def compile_reference(code: str, name: str) -> Callable[..., Any]:
  """Executes a reference program of the suite and returns its function."""
  namespace: dict[str, Any] = {}
  exec(compile(code, f'<minicode {name}>', 'exec'), namespace)
  return namespace[name]
