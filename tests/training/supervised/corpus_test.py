"""What the embedded models learn from is right and of the train split alone."""

import ast
import random

import pytest

from promptrl_jax.execution import Program
from promptrl_jax.tasks.minicode import suite
from promptrl_jax.tasks.minicode.family import fill
from promptrl_jax.training.supervised import corpus

ROWS = suite.rows()
ITEMS = corpus.train_problems(ROWS)
SOME = ITEMS[::150]
CANONICAL = corpus.CorpusConfig({'canonical': 1.0})
MIXED = corpus.CorpusConfig(
  {'canonical': 1.0, 'paraphrased': 1.0, 'terse': 1.0, 'noisy': 1.0},
  repair=1.0,
  feedback=1.0,
  wrong_detail=1.0,
)


@pytest.fixture(scope='module')
def tried(pool):
  """Items with wrong programs."""
  return corpus.with_attempts(SOME, 4, pool, random.Random(0))


def pairs(make, items, config, seed):
  rng = random.Random(seed)
  return [make(item, config, rng) for item in items]


def test_problems_are_those_of_the_train_split_alone():
  def key(family, params):
    return family, str(sorted(params.items()))

  drawn = {key(item.family.name, item.params) for item in ITEMS}
  keys = {True: set(), False: set()}
  for row in ROWS:
    keys[row['split'] == 'train'].add(key(row['family'], row['params']))
  assert drawn == keys[True]
  assert drawn.isdisjoint(keys[False])
  assert not any(item.family.ood for item in ITEMS)


def test_a_coder_pair_is_a_program_that_passes_the_test_it_shows():
  for prompt, reply in pairs(corpus.coder_pair, SOME, CANONICAL, 0):
    *_, assertion, mark, signature = prompt.split('\n')
    assert mark == '###' and assertion.startswith('assert ')
    program = signature + reply
    assert isinstance(ast.parse(program).body[0], ast.FunctionDef)
    exec(f'{program}\n{assertion}', {})


def test_a_rewriter_pair_gives_the_canonical_statement():
  config = corpus.CorpusConfig({'noisy': 1.0})
  drawn = pairs(corpus.rewriter_pair, SOME, config, 0)
  for item, (prompt, reply) in zip(SOME, drawn, strict=True):
    canonical = fill(item.family.canonical, item.params)
    assert reply == f' {canonical}'
    statement, rest = prompt.split('\nname: ')
    assert statement != canonical and rest.endswith('\n=>')


def test_registers_are_drawn_by_their_weight():
  for item, (prompt, _) in zip(
    SOME, pairs(corpus.coder_pair, SOME, CANONICAL, 0), strict=True
  ):
    assert prompt.startswith(fill(item.family.canonical, item.params))


def test_every_attempt_fails_the_assertion_that_it_comes_with(tried, pool):
  attempts = [a for item in tried for a in item.attempts]
  assert len(attempts) > 2 * len(tried)
  results = pool.run([Program(a.program, (a.assertion,)) for a in attempts])
  assert [r.score for r in results] == [0.0] * len(attempts)
  assert all('FAILED: ' in a.feedback for a in attempts)
  assert any(a.sibling for a in attempts)
  assert not all(a.sibling for a in attempts)


def test_a_repair_shows_a_wrong_program_and_asks_for_the_right_one(tried):
  tried = [item for item in tried if item.attempts]
  for item, (prompt, reply) in zip(
    tried, pairs(corpus.coder_pair, tried, MIXED, 0), strict=True
  ):
    shown = [a for a in item.attempts if a.program.rstrip() in prompt]
    assert shown and '# wrong:' in prompt
    exec(f'{prompt.splitlines()[-1]}{reply}\n{shown[0].assertion}', {})


def test_a_wrong_detail_is_that_of_a_sibling_and_feedback_tells(tried):
  tried = [item for item in tried if any(a.sibling for a in item.attempts)]
  misled = 0
  for item, (prompt, reply) in zip(
    tried, pairs(corpus.rewriter_pair, tried, MIXED, 0), strict=True
  ):
    assert reply == f' {fill(item.family.canonical, item.params)}'
    siblings = [a.sibling for a in item.attempts if a.sibling]
    statements = [fill(item.family.canonical, s) for s in siblings]
    if prompt.startswith(tuple(statements)):
      misled += 1
      assert '\n# ' in prompt  # without feedback nothing could tell
  assert misled > 0


@pytest.mark.parametrize('role', ['coder', 'rewriter'])
def test_equal_seeds_give_equal_pairs(role, tried):
  make = corpus.PAIR_FNS[role]
  assert pairs(make, tried, MIXED, 3) == pairs(make, tried, MIXED, 3)
  assert pairs(make, tried, MIXED, 3) != pairs(make, tried, MIXED, 4)


def test_equal_seeds_give_equal_attempts(tried, pool):
  assert corpus.with_attempts(SOME, 4, pool, random.Random(0)) == tried
