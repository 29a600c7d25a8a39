"""What the embedded models learn from is right, and of known templates."""

import ast
import random

import pytest

from promptrl_jax.execution import Program
from promptrl_jax.tasks.minicode2 import generate
from promptrl_jax.training.supervised import corpus

KNOWN = generate.templates()['pretrain']
PLAIN = corpus.CorpusConfig(attempts=40)


@pytest.fixture(scope='module')
def attempts(pool):
  """Wrong programs and what was said about them."""
  return corpus.draw_attempts(KNOWN, PLAIN, pool, random.Random(0))


def pairs(make, seed=0, count=60, attempts=(), **fields):
  source = corpus.Source(KNOWN, attempts, corpus.CorpusConfig(**fields))
  rng = random.Random(seed)
  return [make(source, rng) for _ in range(count)]


def run(program, assertion):
  exec(f'{program}\n{assertion}', {})


def test_problems_are_of_known_templates_without_reserved_parameters():
  names, rng = {t.name for t in KNOWN}, random.Random(0)
  for _ in range(200):
    problem = corpus.draw_problem(KNOWN, PLAIN, rng)
    assert problem.template.name in names
    assert not generate.is_reserved(problem.template, problem.params)


def test_a_coder_pair_is_a_program_that_passes_the_test_it_shows():
  for prompt, reply in pairs(corpus.coder_pair):
    statement, assertion, mark, signature = prompt.split('\n')
    assert statement.startswith('Write a function to find ')
    assert mark == '###' and assertion.startswith('assert ')
    program = signature + reply
    assert isinstance(ast.parse(program).body[0], ast.FunctionDef)
    run(program, assertion)


def test_a_rewriter_pair_gives_the_plain_statement_of_a_story():
  for prompt, reply in pairs(corpus.rewriter_pair, stories=1.0):
    assert reply.startswith(' Write a function to find ')
    statement, rest = prompt.split('\nname: ')
    assert not statement.startswith('Write') and rest.endswith('\n=>')


def test_loose_words_are_rewritten_to_those_of_one_reading():
  loose = [t for t in KNOWN if t.is_loose]
  for template in loose[::40]:
    params = generate.draw_params(template, random.Random(0))
    exact = template.statement(params, exact=True)
    assert exact != template.statement(params)


def test_readings_of_loose_words_are_drawn_by_their_weight():
  loose = [t for t in KNOWN if t.is_loose]
  config = corpus.CorpusConfig(first_reading=8.0)
  rng = random.Random(0)
  readings = [
    corpus.draw_problem(loose, config, rng).template.reading for _ in range(400)
  ]
  assert 0.7 < readings.count(0) / 400 < 0.9
  assert set(readings) == {0, 1, 2}


def test_every_attempt_fails_the_test_that_it_comes_with(attempts, pool):
  assert len(attempts) > 25
  results = pool.run([Program(a.program, (a.test,)) for a in attempts])
  assert [r.score for r in results] == [0.0] * len(attempts)
  assert all('FAILED: ' in a.feedback for a in attempts)
  formed = [a for a in attempts if a.problem.form]
  assert 0 < len(formed) < len(attempts)
  assert not any(a.problem.template.is_loose for a in attempts)


def test_a_repair_shows_a_wrong_program_and_asks_for_the_right_one(attempts):
  for prompt, reply in pairs(corpus.coder_pair, attempts=attempts, repair=1.0):
    shown = [a for a in attempts if a.program.rstrip() in prompt]
    assert shown and '# wrong:' in prompt
    run(prompt.splitlines()[-1] + reply, shown[0].test)


def test_feedback_is_shown_to_the_rewriter_and_changes_nothing(attempts):
  drawn = pairs(corpus.rewriter_pair, attempts=attempts, feedback=1.0)
  statements = {
    f' {a.problem.template.statement(a.problem.params)}' for a in attempts
  }
  for prompt, reply in drawn:
    assert '\n# ' in prompt and reply in statements


@pytest.mark.parametrize('role', ['coder', 'rewriter'])
def test_equal_seeds_give_equal_pairs(role, attempts):
  make = corpus.PAIR_FNS[role]
  draw = lambda seed: pairs(
    make, seed, attempts=attempts, repair=0.5, feedback=0.5, synonyms=0.5
  )
  assert draw(3) == draw(3) != draw(4)


def test_equal_seeds_give_equal_attempts(attempts, pool):
  again = corpus.draw_attempts(KNOWN, PLAIN, pool, random.Random(0))
  assert [a.program for a in again] == [a.program for a in attempts]
