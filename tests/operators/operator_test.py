"""Operators: what a plug-in may be, and what follows from it."""

import pytest

from promptrl_jax import operators
from promptrl_jax.envs.editing import play as editing
from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation import play
from promptrl_jax.llm import ask
from promptrl_jax.llm.attempt import CODER
from promptrl_jax.operators import OPERATORS, Operator, Question
from promptrl_jax.operators.operator import OPERATORS as TABLE
from promptrl_jax.prompts import templates
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.types import Problem, UnitTests

PROBLEM = Problem(
  't/1', 'Add it.', UnitTests('f', 'def f(x):', ('assert f(1) == 1',))
)


def shout(episode, tools):
  episode.edit(episode.statement.upper())
  return Question(episode.prompt())


@pytest.fixture
def register():
  """Registers an operator `shout` until the test ends."""
  yield lambda apply: operators.register(Operator('shout', 1, apply))
  TABLE._plugins.pop('shout')


def test_masks_rivals_and_the_config_follow_from_the_table(register):
  shouting = register(shout)
  config = EditingConfig(actions=('keep', 'shout'))
  assert set(play.rivals(config)) == {
    *('direct', 'greedy_first', 'shout', 'random')
  }
  episode = operators.Episode(PROBLEM, budget=1)
  assert shouting.is_open(episode)
  episode.calls = 1
  assert not shouting.is_open(episode)


def test_one_name_stands_for_one_operator(register):
  register(shout)
  with pytest.raises(ValueError, match='registered already'):
    operators.register(Operator('shout', calls=1, apply=shout))


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'calls': -1, 'apply': shout}, 'calls=-1'),
    ({'calls': 1, 'apply': 'shout'}, "apply='shout'"),
    ({'calls': 1, 'apply': lambda episode: None}, r'apply must take'),
    (
      {'calls': 1, 'apply': shout, 'available': lambda: True},
      'available must take',
    ),
  ],
)
def test_a_field_that_cannot_work_is_refused(fields, message):
  with pytest.raises((TypeError, ValueError), match=message):
    Operator('shout', **fields)


def test_what_returns_no_question_is_told_by_name(register):
  register(lambda episode, tools: episode.prompt())
  config = EditingConfig(actions=('keep', 'shout'))
  episode = operators.Episode(PROBLEM, budget=4)
  tools = ask.Tools(
    templates.PLAIN, {CODER: ScriptedBackend(str)}, ask.AskConfig()
  )
  steps = editing.edit(episode, tools, config)
  next(steps)
  with pytest.raises(TypeError, match="'shout' returned CoderPrompt: expect"):
    steps.send('shout')


def test_missing_and_extra_fields_are_refused():
  with pytest.raises(TypeError, match='apply'):
    Operator('shout', calls=1)
  with pytest.raises(TypeError, match='cost'):
    Operator('shout', calls=1, apply=shout, cost=2)
  with pytest.raises(TypeError, match='expected an Operator'):
    TABLE.register('shout', shout)


def test_an_unknown_name_lists_the_known_ones():
  with pytest.raises(ValueError, match='keep, resample, lexical'):
    OPERATORS['shout']


def test_two_edits_then_undo_gives_the_first():
  episode = operators.Episode(PROBLEM, budget=4)
  for text in ('One.', 'Two.'):
    episode.edit(text)
    episode.rewrites += 1
  undo = OPERATORS['undo']
  assert undo.apply(episode, None).prompt.statement == 'One.'
  assert episode.rewrites == 1 and undo.is_open(episode)
  undo.apply(episode, None)
  assert episode.statement == PROBLEM.statement and not episode.rewrites
  assert not undo.is_open(episode)


def test_a_reset_undoes_all_edits():
  episode = operators.Episode(PROBLEM, budget=4)
  episode.edit('One.')
  episode.edit('Two.')
  OPERATORS['reset_prompt'].apply(episode, None)
  assert not episode.edited and not OPERATORS['undo'].is_open(episode)
