"""Inputs for programs that nobody wrote a test for: mutated literals of a call.

  assert f([3, 1], 'Ab') == 4  -->  f([1, 3], 'Ab'), f([3, 2], 'aB'), f([], 'A')

Mutation by type keeps inputs close to those that the function is meant for
(fuzzers do the same, e.g. EvalPlus, Liu et al. 2023, arXiv 2305.01210). No
expected value comes with them: programs are compared with one another, see
`agreement.outcome_groups`.
"""

from __future__ import annotations

import ast
import functools
import random
from collections.abc import Iterator, Sequence
from typing import Any, cast

from promptrl_jax.prompts import parsing

_MAX_LENGTH = 1000  # Characters of a call.
_MOST_STEPS = 3  # Mutations that one input is away from a call of a test.
_TRIES = 10  # Draws for each input that is wanted; many arguments allow few.


def mutated_calls(
  tests: Sequence[str], entry_point: str, count: int, seed: int
) -> tuple[str, ...]:
  """Returns calls of the function under test on new inputs.

  Args:
    tests: assertions; their calls of `entry_point` with literal arguments are
      where the inputs come from.
    entry_point: name of the function.
    count: most calls to return.
    seed: of all draws; the same arguments give the same calls.

  Returns:
    Distinct expressions, none of them a call of the tests; none at all if no
    call has an argument that can be changed.

  Raises:
    ValueError: `count` is below 1.
  """
  if count < 1:
    raise ValueError(f'count={count}: expected at least one input')
  return _mutated_calls(tuple(tests), entry_point, count, seed)


# Every step of an episode and every budget of a strategy asks for the same.
@functools.lru_cache(maxsize=4096)
def _mutated_calls(
  tests: tuple[str, ...], entry_point: str, count: int, seed: int
) -> tuple[str, ...]:
  calls = [call for test in tests for call in _calls(test, entry_point)]
  known = {ast.unparse(call) for call in calls}
  rng, drawn = random.Random(seed), {}
  for _ in range(_TRIES * count if calls else 0):
    call = rng.choice(calls)
    for _ in range(rng.randint(1, _MOST_STEPS)):
      call = _with_one_change(call, rng)
    text = ast.unparse(call)
    if text not in known and len(text) <= _MAX_LENGTH:
      drawn[text] = None
    if len(drawn) == count:
      break
  return tuple(drawn)


def _calls(test: str, entry_point: str) -> Iterator[ast.Call]:
  """Yields the calls whose arguments are all literals."""
  for node in ast.walk(parsing.parse_or_none(test) or ast.Module([], [])):
    match node:
      case ast.Call(func=ast.Name(id=name)) if name == entry_point:
        arguments = (*node.args, *(k.value for k in node.keywords))
        if all(_is_literal(argument) for argument in arguments):
          yield node


def _is_literal(node: ast.expr) -> bool:
  try:
    ast.literal_eval(node)
  except (ValueError, TypeError, RecursionError, MemoryError):
    return False
  return True


def _with_one_change(call: ast.Call, rng: random.Random) -> ast.Call:
  """The call with one change of one argument, if any can be changed."""
  arguments = [*call.args, *(k.value for k in call.keywords)]
  variants = {
    place: found
    for place, argument in enumerate(arguments)
    if (found := _variants(argument, rng))
  }
  if not variants:
    return call
  place = rng.choice(list(variants))
  arguments[place] = rng.choice(variants[place])
  count = len(call.args)
  return ast.Call(
    call.func,
    arguments[:count],
    [
      ast.keyword(keyword.arg, value)
      for keyword, value in zip(call.keywords, arguments[count:], strict=True)
    ],
  )


def _variants(node: ast.expr, rng: random.Random) -> list[ast.expr]:
  """What one change makes of a literal; nothing of None and complex numbers."""
  match node:
    case ast.List() | ast.Tuple() | ast.Set():
      lists = _rearranged(node.elts, rng) + _with_one_changed(node.elts, rng)
      return [_replaced(node, elts=elements) for elements in lists]
    case ast.Dict():
      places = _rearranged(range(len(node.keys)), rng)
      return [
        *(
          _replaced(
            node,
            keys=[node.keys[i] for i in chosen],
            values=[node.values[i] for i in chosen],
          )
          for chosen in places
        ),
        *(
          _replaced(node, **{name: changed})
          for name in ('keys', 'values')
          for changed in _with_one_changed(getattr(node, name), rng)
        ),
      ]
  value = ast.literal_eval(node)
  others = [other for other in _other_values(value) if other != value]
  return [ast.Constant(other) for other in dict.fromkeys(others)]


def _other_values(value: Any) -> list[Any]:
  match value:
    case bool():
      return [not value]
    case int() | float():
      return [value + 1, value - 1, type(value)(0), -value]
    case str() | bytes():
      return [
        *(value[:-1], value[1:], 2 * value),
        *(value[::-1], value.swapcase()),
      ]
  return []


def _rearranged(elements: Sequence[Any], rng: random.Random) -> list[list[Any]]:
  """The elements permuted, doubled, without an end, and none of them."""
  first = list(elements)
  if not first:
    return []
  permuted = rng.sample(first, len(first))
  return [permuted, first + first, first[:-1], first[1:], []]


def _with_one_changed(
  elements: Sequence[Any], rng: random.Random
) -> list[list[Any]]:
  """The elements with each variant of one of them, which is drawn."""
  if not elements:
    return []
  place = rng.randrange(len(elements))
  before, after = elements[:place], elements[place + 1 :]
  return [
    [*before, variant, *after] for variant in _variants(elements[place], rng)
  ]


def _replaced(node: ast.expr, **fields: list[Any]) -> ast.expr:
  # Not `copy.copy`: it took a quarter of the time of all mutations.
  kept = {name: getattr(node, name) for name in node._fields}
  return cast(Any, type(node))(**{**kept, **fields})
