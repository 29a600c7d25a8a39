"""Practice statements: of the suite's kind, about values of no problem."""

import random

import pytest

from promptrl_jax.tasks.minicode import generate, practice
from promptrl_jax.tasks.minicode.suite import SUITE

REGISTERS = ('canonical', 'paraphrased', 'terse', 'noisy')


@pytest.mark.parametrize('register', REGISTERS)
def test_no_problem_of_the_suite_is_drawn(register):
  known = {row['canonical'] for row in SUITE.rows if row['params']}
  rng = random.Random(0)
  drawn = [practice.draw(register, rng) for _ in range(400)]
  assert not known & {wording.canonical for wording in drawn}
  # Of many families, in many wordings.
  assert len({wording.statement for wording in drawn}) > 150
  if register == 'canonical':
    assert all(w.statement == w.canonical for w in drawn)


def test_families_of_the_ood_split_are_left_out():
  ood = {f.name for f in generate.FAMILIES.values() if f.ood}
  rng, found = random.Random(0), set()
  for _ in range(2000):
    family, params = practice._beyond(rng)
    assert params not in family.grid()
    assert family.keep is None or family.keep(params)
    found.add(family.name)
  assert not found & ood and len(found) > 100


def test_values_of_problems_are_those_of_the_suite():
  rows = [row for row in SUITE.rows if row['split'] == 'train'][:30]
  values = practice.values_of({row['task_id'] for row in rows})
  rng = random.Random(1)
  said = [practice.draw('canonical', rng, v).canonical for v in values]
  assert said == [row['canonical'] for row in rows]


def test_equal_seeds_draw_alike():
  first, again = (
    [practice.draw('noisy', rng) for _ in range(20)]
    for rng in (random.Random(3), random.Random(3))
  )
  assert first == again
