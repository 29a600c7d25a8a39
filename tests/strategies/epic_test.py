"""EPiC: population, roulette, when it ends, and what is mended."""

import dataclasses
import re

import pytest

from promptrl_jax.evaluation import diversity
from promptrl_jax.evolution.islands import IslandsConfig
from promptrl_jax.operators.lexical import LexicalConfig
from promptrl_jax.operators.wording import WordingConfig
from promptrl_jax.strategies.epic import epic_with
from promptrl_jax.strategies.epic_config import FAITHFUL, FIXED, EpicConfig
from promptrl_jax.strategies.self_tests import SelfTestsConfig
from promptrl_jax.testing import tiny
from tests.golden.strategies import TESTS, in_turn, parents_of, upto

NAMES = ['epic', 'epic_fixed', 'epic_words']
TASK = tiny.tasks(4, 'test')[3]
WORDS = 'Given one number, give back a larger one, in variant'


def described(request, number):
  del request
  return f'<task>{WORDS} {number}.</task>'


def anew(request, number):
  del request
  return f'<task>Said in clearer words, number {number}.</task>'


def merged(request, number):
  """A child that says what both of its parents say."""
  del number
  return f'<task>{" ".join(parents_of(request))}</task>'


def right_for(digits):
  """A program that is right for the numbers that are digits of this one."""
  condition = f"str(x) in '{digits}'"
  return f'```python\ndef add(x):\n  return x + 3 if {condition} else 0\n```'


def by_statement(limits, original=2, write=upto):
  """The program of variant n is of limits[n], and that of mutants of 1.

  With `write=upto` it is right below that number.
  """

  def program(request, number):
    del number
    statement = request.messages[-1].content.split('\n')[0]
    if statement.startswith('Write a function to add 3'):
      return write(original)
    variant = re.fullmatch(rf'{WORDS} (\d+)\.', statement)
    return write(limits.get(int(variant[1]), 1) if variant else 1)

  return program


def answers(limits, original=2, write=upto, **others):
  return {
    'tests': in_turn(TESTS),
    'elaborate': described,
    'mutate': anew,
    'cross': merged,
    'program': by_statement(limits, original, write),
    **others,
  }


# Tests of 2 to 4 count, since two of six programs pass each; no program passes
# all of them, and none that of 5.
OPEN = answers({1: 123, 2: 13, 3: 14, 4: 14}, original=12, write=right_for)


def rows_of(played, action):
  return [row for row in played.attempt.trace if row['action'] == action]


def generations(played):
  return rows_of(played, 'generation')


# Faithful: the rules of the released code.


@pytest.mark.parametrize(
  ('limit', 'closes'), [(4, False), (5, True), (6, True)]
)
def test_the_original_closes_at_a_fitness_of_four_fifths(play, limit, closes):
  (played,), _ = play('epic', answers({}, original=limit))
  first = [row['generation'] for row in rows_of(played, 'close')]
  assert (first == [0]) == closes
  assert (played.attempt.calls == 2) == closes


def test_the_best_of_a_generation_closes_at_three_fifths(play):
  (played,), _ = play('epic', answers({1: 3, 3: 4}))
  (generation,) = generations(played)
  assert generation['fitness'] == [0.2, 0.0, 0.4, 0.0, 0.6, 0.0]
  (closed,) = rows_of(played, 'close')
  assert (closed['generation'], closed['fitness']) == (1, 0.6)
  assert closed['statement'].endswith('variant 3.') and 'x < 4' in (
    played.submission
  )


def test_a_candidate_that_passes_all_closes_before_the_next_is_asked(play):
  (played,), model = play('epic', answers({1: 9, 3: 9}))
  assert rows_of(played, 'close')[0]['statement'].endswith('variant 1.')
  assert len(model.of_kind('program')) == 3  # the original, variants 0 and 1


def test_five_descriptions_make_six_candidates(play):
  (played,), model = play('epic', answers({}), budget=40)
  requests = model.of_kind('elaborate')
  assert [r.temperature for r in requests] == [0.9] * 5
  assert len({r.seed for r in requests}) == 5
  first = generations(played)[0]
  assert [c['operator'] for c in first['candidates']] == (
    ['original'] + ['elaborate'] * 5
  )
  assert len(first['fitness']) == 6
  # Rewrites show the first three tests of the model, the original none.
  original, rewritten = model.of_kind('program')[:2]
  assert original.messages[-1].content.count('assert') == 1
  assert rewritten.messages[-1].content.count('assert') == 4


@pytest.mark.parametrize('reply', ['No idea.', '<task></task>', ''])
def test_a_malformed_reply_is_the_original_and_not_solved(play, reply):
  def first_is_malformed(request, number):
    return described(request, number) if number else reply

  for name in ('epic', 'epic_fixed'):
    (played,), model = play(
      name,
      answers({}, elaborate=first_is_malformed),
      budget=40,
    )
    first = generations(played)[0]
    assert len(first['candidates']) == 6
    assert first['candidates'][1]['refused'] == 'malformed'
    assert first['candidates'][1]['statement'] == TASK.statement
    assert first['operators']['elaborate'] == {
      **{'made': 5, 'refused': 1, 'distinct': 4},
    }
    trace = [
      {**row, 'strategy': name, 'protocol': 'visible1'}
      for row in played.attempt.trace
    ]
    counted = diversity.Operators(trace).rows()[0]
    assert (counted['operator'], counted['proposed']) == ('elaborate', 5)
    assert counted['refused'] == {'malformed': 1}
    assert (counted['distinct'], counted['populations']) == (4, 1)
    assert not rows_of(played, 'close')
    # The program of a statement is written once.
    texts = [r.messages for r in model.of_kind('program')]
    assert len(set(texts)) == len(texts)


def test_one_survives_and_four_mutants_have_parents_by_roulette(play):
  config = dataclasses.replace(FAITHFUL, least_growth=-1.0)
  (played,), _ = play(epic_with(config), answers({1: 3}), budget=40)
  first, second, *others = generations(played)
  assert len(others) == 2  # four generations at most
  operators = [c['operator'] for c in second['candidates']]
  assert operators == ['survive'] + ['lexical'] * 4
  worth = dict(
    zip(
      (c['statement'] for c in first['candidates']),
      first['fitness'],
      strict=True,
    )
  )
  drawn = [c['parents'][0] for c in second['candidates']]
  assert all(worth[parent] > 0 for parent in drawn)
  survivor = second['candidates'][0]
  assert survivor['statement'] == survivor['parents'][0]
  # The original passes 1 test of 5, variant 1 passes 2: drawn twice as often.
  counts = dict.fromkeys(worth, 0)
  for seed in range(30):
    (played,), _ = play(
      epic_with(dataclasses.replace(config, generations=2)),
      answers({1: 3}),
      budget=40,
      seed=seed,
    )
    for candidate in generations(played)[1]['candidates']:
      counts[candidate['parents'][0]] += 1
  best = counts[f'{WORDS} 1.']
  assert best + counts[TASK.statement] == 150
  assert 0.55 < best / 150 < 0.78


def test_parents_are_uniform_if_nothing_passes(play):
  config = dataclasses.replace(FAITHFUL, generations=2, least_growth=-1.0)
  parents = set()
  for seed in range(8):
    (played,), _ = play(
      epic_with(config), answers({}, original=1), budget=40, seed=seed
    )
    second = generations(played)[1]
    parents |= {c['parents'][0] for c in second['candidates']}
  assert len(parents) == 6


@pytest.mark.parametrize(
  ('closing', 'others', 'expected'),
  [
    # One of two problems is closed in the first generation, so that the other
    # goes on after the second; in that one no more are closed.
    (1, 1, 3),
    # What is closed in the second is counted after the third, as released.
    (2, 1, 2),
    (None, 1, 2),
    # One in 67 is less than 1.5 %.
    (1, 66, 2),
  ],
)
def test_it_ends_where_few_problems_were_closed(
  play, closing, others, expected
):
  first, *rest = (
    dataclasses.replace(task, statement=f'Problem {i}: add to a number.')
    for i, task in enumerate([TASK] * (1 + others))
  )

  def program(request, number):
    del number
    statement = request.messages[-1].content
    solved = re.search(r'Clearer (\d+)', statement)
    return upto(9 if solved and int(solved[1]) == closing else 2)

  def clearer(generation):
    """Statements of the first problem are told from those of the others."""

    def reply(request, number):
      del number
      statement = request.messages[-1].content.split('\n\n')[-1]
      is_first = 'Problem 0' in statement
      return f'<task>Clearer {generation * is_first}: {statement}</task>'

    return reply

  config = dataclasses.replace(
    FAITHFUL, mutation='model', population=2, tests=SelfTestsConfig(count=4)
  )
  kinds = {
    'tests': in_turn(TESTS),
    'elaborate': clearer(1),
    'mutate': clearer(2),
    'program': program,
  }
  ended, _ = play(epic_with(config), kinds, tasks=[first, *rest], budget=40)
  assert len(rows_of(ended[0], 'close')) == (closing is not None)
  assert {len(generations(p)) for p in ended[1:]} == {expected}
  # What is still open is submitted as the original's program.
  assert all('x < 2' in p.submission for p in ended[1:])


@pytest.mark.parametrize(
  ('name', 'kinds', 'submitted'),
  [
    ('epic', answers({1: 3}), 'x < 2 '),
    ('epic_fixed', OPEN, "in '123'"),
    ('epic_words', OPEN, "in '123'"),
  ],
)
def test_an_open_problem_falls_back_to_the_original_or_to_the_best(
  play, name, kinds, submitted
):
  (played,), _ = play(name, kinds, budget=40)
  assert not rows_of(played, 'close')
  assert submitted in played.submission


# Fixed.


def test_the_best_fitness_never_decreases(play):
  def falls(strategy):
    count = 0
    for seed in range(6):
      (played,), _ = play(strategy, OPEN, budget=60, seed=seed)
      (valid,) = rows_of(played, 'validate_tests')
      assert len(valid['tests']) == 3
      best = [max(row['fitness']) for row in generations(played)]
      assert len(best) == 4
      count += best != sorted(best)
    return count

  assert falls('epic_fixed') == falls('epic_words') == 0
  assert falls(epic_with(dataclasses.replace(FIXED, elitism=False)))


@pytest.mark.parametrize('name', ['epic_fixed', 'epic_words'])
def test_a_program_that_fails_a_test_is_not_accepted(play, name):
  # Two of six programs pass each test, and the best ones four of five.
  kinds = answers({1: 1235, 2: 145}, original=1234, write=right_for)
  (played,), _ = play(name, kinds)
  assert not rows_of(played, 'close')


def test_tests_that_too_few_programs_pass_do_not_count(play):
  wrong = f'{TESTS}\nassert add(0) == 77'
  kinds = answers({1: 6, 3: 3}, tests=in_turn(wrong))
  (played,), _ = play('epic_fixed', kinds, budget=40)
  (row,) = rows_of(played, 'validate_tests')
  assert 'assert add(0) == 77' not in row['tests'] and len(row['tests']) == 4
  (closed,) = rows_of(played, 'close')
  assert closed['statement'].endswith('variant 1.')
  (played,), _ = play('epic', kinds, budget=40)
  assert not rows_of(played, 'validate_tests')


# Both.


@pytest.mark.parametrize('name', NAMES)
def test_without_tests_nothing_is_accepted(play, name):
  kinds = answers({}, original=9, tests=in_turn('None.'))
  (played,), model = play(name, kinds)
  assert not rows_of(played, 'close') and model.of_kind('elaborate')
  assert 'x < 9' in played.submission


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('budget', [1, 2, 4, 8, 16])
def test_the_budget_is_never_exceeded(play, name, budget):
  # No two children are the same, so that each takes a call for its program.
  (played,), model = play(name, OPEN | {'cross': described}, budget=budget)
  assert played.attempt.calls == len(model.asked) <= budget
  assert played.submission
  # Every description that was paid for has its program.
  asked = {kind for kind, _ in model.asked}
  words = sum(
    len(model.of_kind(kind)) for kind in ('elaborate', 'mutate', 'cross')
  )
  assert len(model.of_kind('program')) >= words + 1
  assert ('tests' in asked) == (budget >= 4)


@pytest.mark.parametrize('name', NAMES)
def test_nonsense_is_no_error_of_the_strategy(play, name):
  (played,), _ = play(name, {})
  assert played.attempt.error == 'submitted nothing'
  assert not played.attempt.lost and played.attempt.calls <= 16


@pytest.mark.parametrize('name', NAMES)
def test_the_seed_decides(play, name):
  def trace(seed):
    (played,), _ = play(name, answers({1: 3}), seed=seed, budget=40)
    return [
      [c['statement'] for c in row['candidates']] for row in generations(played)
    ]

  assert trace(1) == trace(1)
  if name == 'epic':
    assert trace(1) != trace(2)


def test_a_child_has_what_both_parents_say_and_they_stay_as_they_are(play):
  (played,), _ = play('epic_words', OPEN, budget=60)
  first, second, *_ = generations(played)
  assert [c['operator'] for c in second['candidates']] == [
    *('survive', 'mutate', 'mutate', 'cross', 'cross')
  ]
  statements = [c['statement'] for c in first['candidates']]
  assert statements == [TASK.statement, *(f'{WORDS} {i}.' for i in range(5))]
  for child in second['candidates'][3:]:
    first_parent, other = child['parents']
    assert first_parent != other and {first_parent, other} <= {*statements}
    assert child['statement'] == f'{first_parent} {other}'


KNOBS = {
  'tests': SelfTestsConfig(count=2),
  'population': 3,
  'generations': 3,
  'close_first': 0.2,
  'close_generation': 0.4,
  'least_growth': 0.5,
  'mutation': 'model',
  'crossovers': 2,
  'elitism': True,
  'validate': 0.3,
  'submit_best': True,
  'shown_tests': 1,
  'elaborate': WordingConfig(temperature=0.5),
  'words': WordingConfig(temperature=0.1),
  'lexical': LexicalConfig(probability=1.0),
  'islands': IslandsConfig(count=2, every=1),
}


def test_every_knob_changes_the_trace(play):
  assert KNOBS.keys() == {f.name for f in dataclasses.fields(EpicConfig)}
  base = dataclasses.replace(
    FAITHFUL, least_growth=-1.0, mutation='model', crossovers=1
  )
  bases = {
    'mutation': dataclasses.replace(base, mutation='lexical'),
    'lexical': dataclasses.replace(base, mutation='lexical'),
  }

  def trace(config):
    kinds = answers({1: 3}, mutate=described, cross=described)
    (played,), _ = play(epic_with(config), kinds, budget=40)
    return played.attempt.trace, played.submission

  for name, value in KNOBS.items():
    before = bases.get(name, base)
    after = dataclasses.replace(before, **{name: value})
    assert trace(after) != trace(before), name


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    ({'population': 0}, 'population=0'),
    ({'generations': 0}, 'generations=0'),
    ({'crossovers': 5}, 'crossovers=5'),
    ({'mutation': 'random'}, "mutation='random'"),
    ({'validate': 2.0}, 'validate=2.0'),
    ({'islands': IslandsConfig(3)}, 'islands=3, population=5'),
    ({'islands': IslandsConfig(2), 'crossovers': 2}, 'crossovers=2'),
  ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
  with pytest.raises(ValueError, match=f'{message}.*expected'):
    EpicConfig(**settings)
