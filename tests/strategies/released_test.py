"""Reflexion and EPiC decide as their released code does.

What that code decides on the scripts of `tests.golden.released` is recorded
there. Here the same scripts are played by the strategies of this library.
"""

import collections
import dataclasses
import json
import re

import pytest

from promptrl_jax.operators.lexical import LexicalConfig
from promptrl_jax.strategies.epic import epic_with
from promptrl_jax.strategies.epic_config import EpicConfig
from promptrl_jax.strategies.reflexion import ReflexionConfig, reflexion_with
from promptrl_jax.strategies.reflexion_ucs import UcsConfig, reflexion_ucs_with
from promptrl_jax.testing import tiny
from tests.golden import released
from tests.golden.strategies import TESTS, in_turn, upto

RECORDED = json.loads(released.PATH.read_text())
# Of the released code, the latest reflection is shown and the last program is
# submitted.
LATEST = {'memory': 1, 'submit': 'last'}
SEARCH = UcsConfig(reflexion=ReflexionConfig(memory=1))
PLAYED = {
  'reflexion': reflexion_with(ReflexionConfig(**LATEST)),
  'immediate_reflexion': reflexion_with(
    ReflexionConfig(run_tests=False, **LATEST)
  ),
  'immediate_refinement': reflexion_with(
    ReflexionConfig(reflect=False, **LATEST)
  ),
  'reflexion_ucs': reflexion_ucs_with(SEARCH),
}


def limits_of(text):
  return [int(limit) for limit in re.findall(r'x < (\d+)', text)]


def loop_answers(script):
  def reflect(request, number):
    del number
    (limit,) = set(limits_of(request.messages[-1].content))
    return f'Stops at {limit}.'

  # The first test of the script is visible here.
  return {
    'tests': in_turn(TESTS),
    'program': in_turn(*map(upto, script)),
    'reflect': reflect,
  }


def decisions(asked):
  """What was asked for, as it is recorded of the released code."""
  known = set()
  for kind, request in asked:
    text = request.messages[-1].content
    if kind == 'tests':
      yield {'tests': len(released.TESTS)}
    elif kind == 'reflect':
      yield {'reflect': limits_of(text)[0]}
    else:
      # What is asked again word by word is sampled, since the greedy answer is
      # known; the search samples all programs but the first.
      is_again = text in known and request.temperature != SEARCH.temperature
      known.add(text)
      yield {
        'program': next(iter(limits_of(text)), None),
        'temperature': 0.0 if is_again else request.temperature,
        'reflected': 'Stops at' in text,
      }


def when_expanded(rows):
  """Without reflections on programs that are never expanded; the others later.

  The released code reflects on each program that it finds, and this library on
  those that are expanded, right before that.
  """
  *asked, end = rows
  moved, expanded = [], None
  for row in asked:
    if 'reflect' in row:
      continue
    if row.get('program') is not None and row['program'] != expanded:
      expanded = row['program']
      moved.append({'reflect': expanded})
    moved.append(row)
  return [*moved, end]


@pytest.mark.parametrize(
  ('name', 'script'),
  [
    (name, script)
    for name in PLAYED
    for script in (
      released.SEARCHES if name == 'reflexion_ucs' else released.LOOPS
    )
  ],
)
def test_reflexion_asks_and_submits_the_same(play, name, script):
  is_search = name == 'reflexion_ucs'
  programs = (released.SEARCHES if is_search else released.LOOPS)[script]
  (played,), model = play(PLAYED[name], loop_answers(programs), budget=40)
  submits = {'submits': released.limit_of(played.submission)}
  rows = [*decisions(model.asked), submits]
  recorded = RECORDED[name][script]
  assert rows == (when_expanded(recorded) if is_search else recorded)


def evolve(play, strategy, script, tests=TESTS, budget=80):
  """Plays one problem for each part of the script."""
  (task,) = tiny.tasks(4, 'test')[3:]  # to add 3
  tasks = [
    dataclasses.replace(task, statement=f'{task.statement} statement-{place}-0')
    for place in range(len(script))
  ]
  described = collections.Counter()

  def named(request):
    text = request.messages[-1].content
    place, number = re.findall(r'statement-(\d)-(\d)', text)[-1]
    return int(place), int(number)

  def describe(request, number):
    del number
    place, _ = named(request)
    described[place] += 1
    words = f'statement-{place}-{described[place]}'
    return f'<task>Add 3 to the number, as {words} says.</task>'

  def write(request, number):
    del number
    place, number = named(request)
    original, others = script[place]
    return upto((original, *others)[number])

  answers = {'tests': in_turn(tests), 'elaborate': describe, 'program': write}
  return play(strategy, answers, budget=budget, tasks=tasks)


@pytest.mark.parametrize('name', released.EVOLUTIONS)
def test_epic_scores_and_submits_the_same(play, name):
  # Children have the words of their parents.
  config = EpicConfig(lexical=LexicalConfig(probability=0.0))
  plays, _ = evolve(play, epic_with(config), released.EVOLUTIONS[name])
  assert [scored(one) for one in plays] == RECORDED['epic'][name]


@pytest.mark.parametrize(
  ('budget', 'asks_for_tests'), [(1, False), (2, False), (3, False), (9, True)]
)
def test_epic_without_tests_submits_the_same_after_more_calls(
  play, budget, asks_for_tests
):
  """The released code takes no test for a pass, and ends after one call."""
  (recorded,) = RECORDED['epic_untested']
  assert not recorded['generations']
  (played,), model = evolve(play, 'epic', released.UNTESTED, 'None.', budget)
  assert released.limit_of(played.submission) == recorded['submits']
  assert bool(model.of_kind('tests')) == asks_for_tests
  assert played.attempt.calls == budget
  assert not [row for row in played.attempt.trace if row['action'] == 'close']


def scored(played):
  trace = played.attempt.trace
  first = next(row for row in trace if row['action'] == 'execute')
  generations = []
  for row in trace:
    if row['action'] == 'generation':
      limits = [round(5 * share) + 1 for share in row['fitness']]
      right = limits.index(6) if 6 in limits else len(limits)
      generations.append(limits[: right + 1])
  return {
    'first': released.limit_of(first['code']),
    'generations': generations,
    'submits': released.limit_of(played.submission),
  }
