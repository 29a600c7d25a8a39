"""Each setting of the controller and its rivals changes what is computed.

A field that is added without a row here fails `test_every_setting_has_a_row`.
"""

import dataclasses
import functools
import re

import jax
import numpy as np
import pytest

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.models.actor_critic import ActorCritic, ActorCriticConfig
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.training.controller import bandit, cloning
from promptrl_jax.training.controller import learner as learner_lib
from promptrl_jax.training.controller.config import (
  BanditConfig,
  CloneConfig,
  ControllerConfig,
)
from promptrl_jax.training.state import initial_state
from tests.training.controller.learner_test import (
  CONFIG,
  PPO,
  PROBLEMS,
  answer,
)

EDITING = EditingConfig(max_steps=3, budget=3, sees_price=True)
LISTS = {1: ('keep',), 3: ('resample', 'lexical', 'keep')}
# Settings of the controller, by what they change.
ROLLOUT_CHANGES = {
  'episodes': 8,
  'budgets': (2,),
  'bootstrap_truncated': True,
  'worlds': 2,
  'continuations': 2,
  'shuffle_rewards': True,
  'token_prices': (0.1, 1.0),
}
UPDATE_CHANGES = {'iterations': 5, 'trunk': (4,), 'head': (4,)}
# These are tested in `tests/experiments/controllers_test.py`.
START_CHANGES = {'solvable_by', 'clone'}
CLONE_CHANGES = {'episodes': 4, 'steps': 5, 'lr': 1e-2, 'entropy_coef': 0.0}
BANDIT_CHANGES = {'exploration': 0.0, 'scale': 0.0}


@pytest.mark.parametrize(
  ('config', 'names'),
  [
    (
      ControllerConfig,
      {*ROLLOUT_CHANGES, *UPDATE_CHANGES, *START_CHANGES},
    ),
    (CloneConfig, {*CLONE_CHANGES}),
    (BanditConfig, {*BANDIT_CHANGES}),
  ],
)
def test_every_setting_has_a_row(config, names):
  assert {field.name for field in dataclasses.fields(config)} == names


@pytest.fixture(scope='module')
def env(pool):
  return EditingEnv(
    ScriptedBackend(answer),
    ScriptedBackend(lambda request: ' Add it, please.'),
    MemoPool(pool),
    EDITING,
  )


def program(function, *arguments):
  """What a function computes, as text; nothing is compiled."""
  text = str(jax.make_jaxpr(function)(*arguments))
  return re.sub('0x[0-9a-f]+', '', text)  # addresses of functions


def values(tree):
  return [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(tree)]


@pytest.fixture(scope='module')
def iteration(env):
  """Plays an iteration: what is learned from, and the program of its update.

  Parameters have shapes alone, and actions are drawn without them.
  """

  def shapes(init_fn, optimizer, key):
    create_fn = functools.partial(initial_state, init_fn, optimizer)
    return jax.eval_shape(create_fn, key)

  def play(**changes):
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(learner_lib, 'create_train_state', shapes)
      learner = learner_lib.make_learner(
        dataclasses.replace(CONFIG, **changes), PPO, EDITING, seed=1
      )
    rng = np.random.default_rng(0)

    def act(params, observations, masks, keys):
      noise = rng.random(masks.shape)
      return np.where(masks, noise, -1).argmax(-1), noise[:, 0], noise[:, 1]

    def update_fn(state, rollout):
      updated.append(rollout)
      return state, {}

    updated = []
    state = learner.initial.replace(step=0)
    watched = dataclasses.replace(learner, act=act, update_fn=update_fn)
    rollout, _ = watched.sample(state, env, PROBLEMS, seed=1)
    watched.update(state, rollout)
    return updated[0], lambda: program(learner.update_fn, state, rollout)

  return play


@pytest.fixture(scope='module')
def usual(iteration):
  rollout, program_fn = iteration()
  return values(rollout), program_fn()


def test_an_iteration_is_a_function_of_its_settings(iteration, usual):
  rollout, program_fn = iteration()
  assert (values(rollout), program_fn()) == usual


@pytest.mark.parametrize('name', ROLLOUT_CHANGES)
def test_each_setting_of_episodes_changes_what_is_learned(
  name, iteration, usual
):
  rollout, _ = iteration(**{name: ROLLOUT_CHANGES[name]})
  assert values(rollout) != usual[0]


@pytest.mark.parametrize('name', UPDATE_CHANGES)
def test_each_setting_of_learning_changes_the_update(name, iteration, usual):
  rollout, program_fn = iteration(**{name: UPDATE_CHANGES[name]})
  assert values(rollout) == usual[0] and program_fn() != usual[1]


def test_each_setting_of_cloning_changes_it(env):
  size = EDITING.observation_size
  network = ActorCritic(
    ActorCriticConfig(size, len(EDITING.actions), (4,), (4,))
  )
  key, observation = jax.random.key(0), np.zeros((1, size))
  params = jax.eval_shape(network.init, key, observation)

  def clone(**changes):
    config = CloneConfig(**{'episodes': 6, **changes})
    played, _ = cloning.demonstrate(env, PROBLEMS, LISTS, config, 0)
    clone_fn = lambda params: cloning.clone(network, params, played, config)
    return values(played), program(clone_fn, params)

  usual = clone()
  assert usual == clone()
  for name, value in CLONE_CHANGES.items():
    assert clone(**{name: value}) != usual, name


@pytest.fixture(scope='module')
def learned(env):
  """A bandit after a batch."""
  start = bandit.start(env)
  return bandit.train(start, env, PROBLEMS, CONFIG, BanditConfig(), 0, calls=1)


@pytest.mark.parametrize(
  ('name', 'thompson'), [('exploration', False), ('scale', True)]
)
def test_each_setting_of_a_bandit_changes_what_it_plays(
  name, thompson, env, learned
):
  kind = bandit.Kind(thompson=thompson)
  most = learned.calls + 1

  def play(**changes):
    config = BanditConfig(**changes)
    bandit.train(
      learned, env, PROBLEMS, CONFIG, config, 0, calls=most, kind=kind
    )
    return env.trace

  usual = play()
  assert usual == play()
  assert usual != play(**{name: BANDIT_CHANGES[name]})
