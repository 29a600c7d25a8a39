"""Reflexion: what it asks, what it remembers, and when it ends."""

import dataclasses
import json

import pytest

from promptrl_jax.evaluation import refusals
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.prompts import reflection
from promptrl_jax.strategies.reflexion import ReflexionConfig, reflexion_with
from promptrl_jax.strategies.reflexion_ucs import UcsConfig, reflexion_ucs_with
from promptrl_jax.strategies.self_tests import SelfTestsConfig
from tests.golden import strategies as golden
from tests.golden.strategies import REFLECTIONS, TESTS, in_turn, upto

RIGHT = upto(99)
VARIANTS = (
  *('reflexion', 'reflexion_ucs'),
  *('immediate_reflexion', 'immediate_refinement'),
)


def answers(*programs, tests=TESTS, reflections=REFLECTIONS):
  return {
    'tests': in_turn(tests),
    'reflect': in_turn(*reflections),
    'program': in_turn(*programs),
  }


def rows_of(played, action):
  return [row for row in played.attempt.trace if row['action'] == action]


def actions_of(played):
  return [row['action'] for row in played.attempt.trace]


@pytest.mark.parametrize('name', golden.CASES)
def test_decisions_are_those_that_are_recorded(name, pool):
  recorded = json.loads((golden.FOLDER / f'{name}.json').read_text())
  assert json.loads(json.dumps(golden.decisions(name, pool))) == recorded


def test_it_fails_reflects_and_succeeds_at_the_second_program(play):
  (played,), model = play('reflexion', answers(upto(3), RIGHT))
  assert actions_of(played) == ['write_tests', 'execute', 'reflect', 'execute']
  assert [kind for kind, _ in model.asked] == [
    *('tests', 'program', 'reflect', 'program')
  ]
  assert len(rows_of(played, 'reflect')) == 1
  assert played.attempt.calls == 4 and '99' in played.submission
  shown = model.of_kind('program')[1].messages[-1].content
  for part in (REFLECTIONS[0], 'x < 3', 'PASSED: assert add(2) == 5', 'FAILED'):
    assert part in shown
  # A test of the model's says what came back, too.
  assert 'the last call returned 0 in assert add(3) == 6' in shown


def test_three_reflections_stand_in_the_next_prompt_and_the_cap_holds(play):
  config = ReflexionConfig(memory=3, memory_tokens=100)
  programs = (upto(1), upto(2), upto(3), RIGHT)
  (played,), model = play(reflexion_with(config), answers(*programs))
  last = model.of_kind('program')[3].messages[-1].content
  assert all(text in last for text in REFLECTIONS)
  assert played.attempt.calls == 8

  for cap, count in ((100, 3), (17, 2), (8, 1), (3, 0)):
    config = ReflexionConfig(memory=3, memory_tokens=cap)
    _, model = play(reflexion_with(config), answers(*programs))
    last = model.of_kind('program')[3].messages[-1].content
    shown = [text for text in REFLECTIONS if text in last]
    assert len(shown) == count
    assert sum(model.count_tokens(text) for text in shown) <= cap


@pytest.mark.parametrize('tests', ['', 'assert True', 'I cannot write tests.'])
def test_no_tests_are_unknown_and_the_loop_goes_on(play, tests):
  (played,), _ = play('reflexion', answers(RIGHT, tests=tests), budget=6)
  assert rows_of(played, 'write_tests')[0]['tests'] == []
  statuses = [row['after'] for row in rows_of(played, 'reflect')]
  assert statuses == ['unknown', 'unknown']
  assert played.attempt.calls == 6 and '99' in played.submission


def test_five_of_twelve_tests_are_kept(play):
  right = [f'assert add({x}) == {x + 3}' for x in range(7)]
  lines = [
    *right[:4],
    *('assert add(1) ==', 'assert True', 'assert open("f")'),
    *(right[0], 'assert add( 2 )==5'),
    *right[4:],
  ]
  assert len(lines) == 12
  (played,), _ = play('reflexion', answers(RIGHT, tests='\n'.join(lines)))
  (row,) = rows_of(played, 'write_tests')
  # `add(1) == 4` is the visible test, so it counts as known.
  assert row['tests'] == [right[0], *right[2:6]]
  assert (row['invalid'], row['duplicates'], row['dropped']) == (3, 3, 1)


@pytest.mark.parametrize('name', VARIANTS)
@pytest.mark.parametrize('budget', [1, 2, 4, 8, 16])
@pytest.mark.parametrize('programs', [(upto(2), upto(1)), ('Hm?',), (RIGHT,)])
def test_the_budget_is_never_exceeded(play, name, budget, programs):
  (played,), model = play(name, answers(*programs), budget=budget)
  assert played.attempt.calls == len(model.asked) <= budget
  assert played.attempt.error == ('submitted nothing' * (programs == ('Hm?',)))


@pytest.mark.parametrize('name', VARIANTS)
def test_nonsense_is_no_error_of_the_strategy(play, name):
  (played,), _ = play(name, {})
  assert played.attempt.error == 'submitted nothing'
  assert not played.attempt.lost and played.attempt.calls <= 16


@pytest.mark.parametrize('name', VARIANTS)
def test_the_seed_decides(play, name):
  def drawn(request, number):
    del number
    return upto(request.seed % 3) if request.temperature else upto(1)

  def trace(seed):
    kinds = {**answers(), 'program': drawn}
    (played,), _ = play(name, kinds, seed=seed)
    return [{**row, 'seed': 0} for row in played.attempt.trace]

  assert trace(1) == trace(1) != trace(2)


@pytest.mark.parametrize(
  ('reply', 'reason'),
  [
    ('the sum of ' * 30, 'repetition'),
    ('```\nx = 1\n```', 'malformed'),
    (f'I say what is wrong. {reflection.SYSTEM[40:]}', 'instruction'),
  ],
)
def test_a_reflection_that_says_nothing_is_refused(play, reply, reason):
  (played,), model = play(
    'reflexion',
    answers(upto(3), RIGHT, reflections=(reply,)),
  )
  (row,) = rows_of(played, 'reflect')
  assert (row['reflection'], row['refused']) == ('', reason)
  assert 'Keep in mind' not in model.of_kind('program')[1].messages[-1].content
  assert '99' in played.submission


def test_a_reflection_that_was_cut_is_refused_and_counted(play):
  (played,), model = play(
    'reflexion', answers(upto(3), RIGHT), cut=('reflect', 'program')
  )
  (row,) = rows_of(played, 'reflect')
  assert (row['reflection'], row['refused']) == ('', 'cut')
  assert 'Keep in mind' not in model.of_kind('program')[1].messages[-1].content
  # A program is run all the same.
  assert '99' in played.submission
  label = {'strategy': 'reflexion', 'protocol': 'visible1'}
  rows = refusals.Replies([row | label for row in played.attempt.trace]).rows()
  assert [(r['kind'], r['replies'], r['refused']) for r in rows] == [
    ('program', 2, {'cut': 2}),
    ('reflect', 1, {'cut': 1}),
  ]


def test_reflections_on_other_problems_are_shown_where_they_are_near(play):
  (first,), _ = play('reflexion', answers(upto(3), RIGHT))
  memory = reflection.from_trace(first.attempt.trace)
  assert [m.text for m in memory] == [REFLECTIONS[0]]
  _, model = play(
    'reflexion',
    answers(upto(2), RIGHT, reflections=('Another hint.',)),
    options={'reflections': memory},
  )
  shown = model.of_kind('program')[1].messages[-1].content
  assert 'Another hint.' in shown and REFLECTIONS[0] in shown


@pytest.mark.parametrize(
  'name', [*VARIANTS, 'epic', 'epic_fixed', 'epic_words']
)
def test_models_that_follow_no_instruction_are_refused_before_any_call(
  play, name
):
  with pytest.raises(ValueError, match="template 'plain'.*'chat' or 'code'"):
    play(name, {}, template=AskConfig().template)


def test_without_tests_the_last_program_is_submitted(play):
  programs = (RIGHT, upto(2), upto(3))
  (played,), model = play('immediate_reflexion', answers(*programs), budget=5)
  assert 'x < 3' in played.submission
  shown = model.of_kind('program')[1].messages[-1].content
  assert 'x < 99' in shown and 'PASSED' not in shown and 'FAILED' not in shown


def test_without_reflections_a_program_is_repaired_from_its_tests(play):
  programs = (upto(2), upto(4), RIGHT)
  (played,), model = play('immediate_refinement', answers(*programs), budget=8)
  kinds = [kind for kind, _ in model.asked]
  assert kinds == ['tests', 'program', 'program', 'program']
  shown = model.of_kind('program')[1].messages[-1].content
  assert 'x < 2' in shown and 'PASSED' in shown and 'FAILED' in shown
  assert '99' in played.submission


def test_the_search_submits_the_fewest_failures_without_a_goal(play):
  programs = (upto(2), upto(4), upto(3), upto(2))
  (played,), _ = play('reflexion_ucs', answers(*programs), budget=6)
  # The visible test is bit 0, those of the model follow; the first program
  # was expanded and is not again.
  states = [row['state'] for row in rows_of(played, 'state')]
  assert states == [0b00111, 0b00011, 0b00001]
  new = [row['is_new'] for row in rows_of(played, 'state')]
  assert new == [True, True, False]
  assert 'x < 4' in played.submission


def test_the_search_expands_the_cheapest_program_first(play):
  programs = (upto(1), upto(2), upto(4), upto(3), RIGHT)
  (played,), model = play('reflexion_ucs', answers(*programs))
  assert 'x < 4' in model.of_kind('program')[4].messages[-1].content
  assert '99' in played.submission


KNOBS = {
  'tests': SelfTestsConfig(count=2),
  'iterations': 2,
  'run_tests': False,
  'reflect': False,
  'memory': 1,
  'memory_tokens': 5,
  'reflection_temperature': 0.3,
  'reflection_tokens': 50,
  'submit': 'last',
}
UCS_KNOBS = {
  'reflexion': ReflexionConfig(iterations=1),
  'expansion': 1,
  'temperature': 0.2,
}


@pytest.mark.parametrize(
  ('make', 'config', 'knobs'),
  [
    (reflexion_with, ReflexionConfig(), KNOBS),
    (reflexion_ucs_with, UcsConfig(), UCS_KNOBS),
  ],
)
def test_every_knob_changes_the_trace(play, make, config, knobs):
  fields = {field.name for field in dataclasses.fields(config)}
  assert knobs.keys() == fields
  programs = (upto(1), upto(4), upto(2), upto(3))

  def trace(config):
    (played,), _ = play(make(config), answers(*programs), budget=12)
    return played.attempt.trace, played.submission

  usual = trace(config)
  for name, value in knobs.items():
    other = dataclasses.replace(config, **{name: value})
    assert trace(other) != usual, name
  # With few calls no tests are asked for, unless that is asked for.
  inner = {'count': 2, 'from_budget': 13}
  assert inner.keys() == {f.name for f in dataclasses.fields(SelfTestsConfig)}
  for name, value in inner.items():
    tests = dataclasses.replace(SelfTestsConfig(), **{name: value})
    assert trace(_with_tests(config, tests)) != usual, name


def _with_tests(config, tests):
  if isinstance(config, UcsConfig):
    step = dataclasses.replace(config.reflexion, tests=tests)
    return dataclasses.replace(config, reflexion=step)
  return dataclasses.replace(config, tests=tests)


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (lambda: ReflexionConfig(iterations=0), 'iterations=0: expected'),
    (lambda: ReflexionConfig(memory=-1), 'memory=-1.*expected'),
    (lambda: ReflexionConfig(submit='first'), "submit='first': expected"),
    (lambda: UcsConfig(expansion=0), 'expansion=0: expected'),
    (lambda: UcsConfig(temperature=0.0), 'temperature=0.0: expected'),
    (
      lambda: UcsConfig(ReflexionConfig(run_tests=False)),
      'run_tests=False: expected',
    ),
    (lambda: SelfTestsConfig(count=-1), 'count=-1: expected'),
    (lambda: SelfTestsConfig(from_budget=1), 'from_budget=1: expected'),
  ],
)
def test_settings_that_cannot_work_are_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()
