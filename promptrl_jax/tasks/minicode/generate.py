"""Makes the rows of the suite from its families, deterministic from a seed.

A row has MBPP's fields (`task_id`, `text`, `code`, `test_list`,
`test_setup_code`, `challenge_test_list`) and those of the suite: `family`,
`group`, `params`, `register`, `canonical`, `split`.
"""

from __future__ import annotations

import collections
import functools
import random
from collections.abc import Callable, Iterable
from typing import Any

from promptrl_jax.tasks.minicode import registers
from promptrl_jax.tasks.minicode.families import ALL_FAMILIES
from promptrl_jax.tasks.minicode.family import (
  Family,
  Params,
  compile_reference,
  fill,
)

SEED = 0
TESTS_PER_PROBLEM = 5
MOST_PROBLEMS_PER_FAMILY = 36
# Families with fewer problems than this are for training only: they have too
# few to train on some and evaluate on others.
_FEWEST_TO_SPLIT = 8
_TEST_SHARE, _VALIDATION_SHARE = 0.15, 0.08
_LONGEST_ASSERTION = 110
_DRAWS = 300

# Not every caller names a function after what it does.
_PLAIN_NAMES = (
  *('solve', 'solution', 'run_task', 'process', 'process_data', 'my_function'),
  *('do_work', 'answer', 'func', 'handle', 'calculate', 'get_result', 'task_a'),
  *('task_b', 'helper', 'main_step', 'apply_rule', 'work_it_out', 'foo', 'go'),
)
_PLAIN_NAME_SHARE = 0.5


def literal(value: Any) -> str:
  """`repr`, with sets in sorted order so that the text is deterministic."""
  if isinstance(value, set):
    inside = ', '.join(literal(v) for v in sorted(value, key=repr))
    return f'{{{inside}}}' if value else 'set()'
  if isinstance(value, dict):
    pairs = (f'{literal(k)}: {literal(v)}' for k, v in value.items())
    return '{' + ', '.join(pairs) + '}'
  if isinstance(value, list):
    return '[' + ', '.join(literal(v) for v in value) + ']'
  if isinstance(value, tuple):
    inside = ', '.join(literal(v) for v in value)
    return f'({inside},)' if len(value) == 1 else f'({inside})'
  return repr(value)


def params_text(params: Params) -> str:
  """`a=1,b=2`: names one problem of a family."""
  return ','.join(f'{k}={v}' for k, v in params.items())


@functools.cache
def _reference(
  family_name: str, params: tuple[tuple[str, Any], ...]
) -> Callable[..., Any]:
  code = fill(FAMILIES[family_name].code, dict(params), f='reference')
  return compile_reference(code, 'reference')


def reference(family: Family, params: Params) -> Callable[..., Any]:
  """Returns the reference function, for parameters on the grid or off it."""
  return _reference(family.name, tuple(params.items()))


def assertion(name: str, args: tuple[Any, ...], value: Any) -> str:
  """`assert name(args) == value`."""
  return f'assert {name}({", ".join(map(literal, args))}) == {literal(value)}'


def telling_arguments(
  family: Family, params: Params, name: str, rng: random.Random
) -> tuple[Any, ...]:
  """Draws arguments that distinguish a problem from others of its family.

  Of a few hundred draws, the one whose value differs from that of the most
  siblings is returned: it shows the detail that a terse statement leaves out.
  """
  mine = reference(family, params)
  siblings = [reference(family, p) for p in family.grid() if p != params]
  rng.shuffle(siblings)
  most, best = -1, None
  for _ in range(_DRAWS):
    args = family.inputs(rng, params)
    value = mine(*args)
    if len(assertion(name, args, value)) > _LONGEST_ASSERTION:
      continue
    differing = sum(_differs(f, args, value) for f in siblings)
    if differing > most:
      most, best = differing, args
    if differing == len(siblings):
      break
  if best is None:
    raise ValueError(f'{family.name} {dict(params)}: every assertion too long')
  return best


def draw_tests(
  family: Family, params: Params, name: str, rng: random.Random
) -> list[str]:
  """Returns assertions: a distinguishing one, then ones of other values."""
  mine = reference(family, params)
  first = telling_arguments(family, params, name, rng)
  seen_args, seen_values = {literal(first)}, {literal(mine(*first))}
  tests = [assertion(name, first, mine(*first))]
  for attempt in range(_DRAWS):
    args = family.inputs(rng, params)
    value = mine(*args)
    text = assertion(name, args, value)
    stale = literal(value) in seen_values and attempt < _DRAWS // 2
    if len(text) > _LONGEST_ASSERTION or literal(args) in seen_args or stale:
      continue
    seen_args.add(literal(args))
    seen_values.add(literal(value))
    tests.append(text)
    if len(tests) == TESTS_PER_PROBLEM:
      return tests
  raise ValueError(f'{family.name} {dict(params)}: too few distinct inputs')


def _differs(function: Callable[..., Any], args, value) -> bool:
  try:
    return literal(function(*args)) != literal(value)
  except (ArithmeticError, LookupError, TypeError, ValueError):
    return True  # a sibling may not be defined on this input


def draw_name(family: Family, params: Params, rng: random.Random) -> str:
  """Draws a function name; half of them describe the function."""
  if rng.random() < _PLAIN_NAME_SHARE:
    return rng.choice(_PLAIN_NAMES)
  return fill(rng.choice(family.names), params)


def make_row(
  family: Family, params: Params, register: str, rng: random.Random
) -> dict[str, Any]:
  """Returns one problem in one register, with drawn name and assertions."""
  name = draw_name(family, params, rng)
  return {
    'task_id': '/'.join(
      filter(None, ('minicode', family.name, params_text(params)))
    ),
    'text': registers.render(family, params, register, rng),
    'code': fill(family.code, params, f=name),
    'test_list': draw_tests(family, params, name, rng),
    'test_setup_code': '',
    'challenge_test_list': [],
    'family': family.name,
    'group': family.group,
    'params': dict(params),
    'register': register,
    'canonical': fill(family.canonical, params),
  }


def _splits(count: int, ood: bool, rng: random.Random) -> list[str]:
  """Assigns a split to each problem of a family."""
  if ood:
    return ['ood'] * count
  if count < _FEWEST_TO_SPLIT:
    return ['train'] * count
  test = max(1, round(count * _TEST_SHARE))
  validation = max(1, round(count * _VALIDATION_SHARE))
  rest = count - test - validation
  splits = ['test'] * test + ['validation'] * validation + ['train'] * rest
  rng.shuffle(splits)
  return splits


def generate(seed: int = SEED) -> Iterable[dict[str, Any]]:
  """Yields every row of the suite in a fixed order."""
  for family in FAMILIES.values():
    rng = random.Random(f'{seed}/{family.name}')
    grid = family.grid()
    if len(grid) > MOST_PROBLEMS_PER_FAMILY:
      kept = sorted(rng.sample(range(len(grid)), MOST_PROBLEMS_PER_FAMILY))
      grid = [grid[i] for i in kept]
    order = list(registers.REGISTERS) * (len(grid) // 4 + 1)
    rng.shuffle(order)
    splits = _splits(len(grid), family.ood, rng)
    for params, register, split in zip(grid, order, splits, strict=False):
      row = make_row(family, params, register, rng)
      yield {**row, 'split': split}


def _index(families: Iterable[Family]) -> dict[str, Family]:
  index = {family.name: family for family in families}
  names = collections.Counter(family.name for family in families)
  twice = [name for name, count in names.items() if count > 1]
  if twice:
    raise ValueError(f'family names used twice: {twice}')
  return index


FAMILIES = _index(ALL_FAMILIES)
