"""Gives inputs that were stored as JSON their Python types back.

JSON knows no tuples, sets or complex numbers. EvalPlus stores the arguments of
MBPP's functions so, and its base assertions have the same first arguments as
Python writes them: what is a tuple there is a tuple in all further inputs.

  assert f([(1, 2)], {3}) == 4,  [[[5, 6]], [7]]  -->  ([(5, 6)], {7})
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from promptrl_jax.prompts import parsing


@dataclasses.dataclass
class Shape:
  """The types that were seen at one place of an argument.

  Attributes:
    kinds: types of the values.
    items: shape of the items of containers and of the values of dicts.
  """

  kinds: set[type] = dataclasses.field(default_factory=set)
  items: Shape | None = None

  def learn(self, value: Any) -> None:
    """Adds a value that was seen at this place."""
    self.kinds.add(type(value))
    if isinstance(value, (list, tuple, set, frozenset, dict)):
      for item in value.values() if isinstance(value, dict) else value:
        self.items = self.items or Shape()
        self.items.learn(item)

  def restore(
    self, value: Any, outer: type | None = None, beyond: type = list
  ) -> Any:
    """Returns a JSON value with the types of this place.

    Args:
      value: of JSON.
      outer: type of the container around it.
      beyond: type of lists that are nested more deeply than any that was seen:
        tuples inside tuples inside tuples go on so.
    """
    items = self.items or Shape()
    if isinstance(value, list):
      seen = [k for k in (tuple, set, frozenset, list) if k in self.kinds]
      kind = seen[0] if seen else beyond
      beyond = kind if kind is outer else list
      values = [items.restore(item, kind, beyond) for item in value]
      # Python has no literal for the empty set: tests write `{}`.
      return kind(values) if values or dict not in self.kinds else {}
    if isinstance(value, dict):
      return {key: items.restore(item) for key, item in value.items()}
    return value


def _is_number(value: Any) -> bool:
  """Whether a JSON value is a number, which may stand in a text."""
  try:
    complex(value)
  except (TypeError, ValueError):
    return False
  return True


def _number(text: str) -> complex | float:
  """The number in a text: JSON has no complex ones."""
  value = complex(text)
  return value if value.imag or 'j' in text else float(text)


def arguments(source: str, function: str) -> Iterator[tuple[Any, ...] | None]:
  """Yields the arguments of each call of a function in the source.

  None stands for arguments that are not written as plain data.
  """
  for node in ast.walk(parsing.parse(source)):
    match node:
      case ast.Call(func=ast.Name(id=name), args=args) if name == function:
        try:
          yield tuple(ast.literal_eval(arg) for arg in args)
        except ValueError:
          yield None


def restore(
  inputs: Sequence[Sequence[Any]], calls: Iterable[tuple[Any, ...] | None]
) -> list[tuple[Any, ...]]:
  """Returns the arguments of each input as they stand in calls.

  Args:
    inputs: the arguments of each input, of JSON.
    calls: arguments of some of them, of Python; see `arguments`.
  """
  seen: dict[int, Shape] = {}
  for call in calls:
    for place, value in enumerate(call or ()):
      seen.setdefault(place, Shape()).learn(value)
  numbers = {
    place
    for place, shape in seen.items()
    if shape.kinds <= {int, float, complex}
    and all(_is_number(i[place]) for i in inputs if place < len(i))
  }
  return [
    tuple(
      _number(value)
      if place in numbers and isinstance(value, str)
      else seen.get(place, Shape()).restore(value)
      for place, value in enumerate(values)
    )
    for values in inputs
  ]
