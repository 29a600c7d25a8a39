"""The embedded suite is what its documentation says."""

import ast
import collections
import random

import pytest

from promptrl_jax.execution import ExecutionPool, Program
from promptrl_jax.tasks import overlaps
from promptrl_jax.tasks.minicode import generate, registers
from promptrl_jax.tasks.minicode.suite import SUITE

ROWS = SUITE.rows


def test_it_is_large_enough():
  assert len(generate.FAMILIES) >= 150
  assert len(ROWS) >= 3000
  assert len({row['canonical'] for row in ROWS}) == len(ROWS)
  assert {f.group for f in generate.FAMILIES.values()} == {
    'list',
    'string',
    'number',
    'dict',
    'tuple',
    'set',
    'composition',
  }


@pytest.mark.slow
def test_the_frozen_file_is_what_the_generator_makes():
  assert SUITE.serialise() == SUITE.content


@pytest.mark.parametrize('every', [8, pytest.param(1, marks=pytest.mark.slow)])
def test_references_pass_their_tests_in_the_pool(every):
  tasks = [task for split in SUITE.splits for task in SUITE.load(split)][
    ::every
  ]
  programs = [Program(task.reference, task.tests) for task in tasks]
  with ExecutionPool(workers=2) as pool:
    results = pool.run(programs)
  failed = [
    task.task_id
    for task, result in zip(tasks, results, strict=True)
    if not result.passed
  ]
  assert not failed


def test_every_problem_has_at_least_four_assertions():
  for row in ROWS:
    assert len(row['test_list']) >= 4
    assert len(set(row['test_list'])) == len(row['test_list'])


def test_registers_are_balanced_in_every_split():
  for split in SUITE.splits:
    counts = collections.Counter(t.register for t in SUITE.load(split))
    assert counts.keys() == set(registers.REGISTERS)
    total = sum(counts.values())
    assert min(counts.values()) > 0.2 * total


def test_splits_share_no_problem():
  parts = {split: SUITE.load(split) for split in SUITE.splits}
  overlaps.check_no_leak(parts, statements_identify=False)
  ids = [task.task_id for tasks in parts.values() for task in tasks]
  assert len(set(ids)) == len(ids) == len(ROWS)


def test_ood_families_are_in_no_other_split():
  ood = {row['family'] for row in ROWS if row['split'] == 'ood'}
  rest = {row['family'] for row in ROWS if row['split'] != 'ood'}
  assert ood.isdisjoint(rest)
  assert len(ood) >= 20


def test_names_vary():
  names = collections.Counter(t.entry_point for t in SUITE.load('test'))
  assert len(names) > 200
  for task in SUITE.load('test'):
    assert task.signature.startswith(f'def {task.entry_point}(')


@pytest.mark.parametrize(
  'family', generate.FAMILIES.values(), ids=lambda f: f.name
)
def test_family_is_well_formed(family):
  assert len(family.paraphrases) >= 2
  assert len(set(family.names)) >= 3
  rng = random.Random(0)
  for params in family.grid()[:3]:
    for name in family.names:
      assert generate.fill(name, params).isidentifier()
    row = generate.make_row(family, params, 'canonical', rng)
    assert row['text'] == row['canonical']
    tree = ast.parse(row['code'])
    assert isinstance(tree.body[0], ast.FunctionDef)


def test_terse_statements_leave_something_out_that_the_first_test_tells():
  """Of the siblings with another value on it, almost none stays possible."""
  rng = random.Random(0)
  told, total = 0, 0
  for family in list(generate.FAMILIES.values())[::6]:
    grid = family.grid()
    if len(grid) < 2:
      continue
    params = rng.choice(grid)
    args = generate.telling_arguments(family, params, 'f', rng)
    value = generate.literal(generate.reference(family, params)(*args))
    for sibling in grid:
      if sibling != params:
        total += 1
        try:
          other = generate.reference(family, sibling)(*args)
          told += generate.literal(other) != value
        except Exception:
          told += 1
  assert told / total > 0.97


def test_noise_leaves_quotes_and_digits_alone():
  rng = random.Random(1)
  for row in ROWS[::20]:
    family = generate.FAMILIES[row['family']]
    noisy = registers.render(family, row['params'], 'noisy', rng)
    canonical = row['canonical']
    for quoted in canonical.split('"')[1::2]:
      assert f'"{quoted}"' in noisy
    digits = [c for c in canonical if c.isdigit()]
    assert [c for c in noisy if c.isdigit()] == digits


def test_literals_are_written_in_a_fixed_order():
  assert generate.literal({'b', 'a'}) == "{'a', 'b'}"
  assert generate.literal((1,)) == '(1,)'
  assert (
    generate.literal([set(), {2: {'y', 'x'}}]) == "[set(), {2: {'x', 'y'}}]"
  )
