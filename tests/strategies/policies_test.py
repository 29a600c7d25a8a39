"""Strategies choose only what is available and repeat with their seed."""

import jax
import numpy as np
import pytest

from promptrl_jax.models.actor_critic import ActorCritic, ActorCriticConfig
from promptrl_jax.strategies import policies
from promptrl_jax.training.controller import update

ACTIONS = ('keep', 'lexical', 'semantic', 'submit')
MASKS = np.array(
  [
    [True, True, True, True],
    [True, False, True, False],
    [True, False, False, False],
  ]
)
OBSERVATIONS = np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5)


def test_a_fixed_action_falls_back_on_keep():
  decision = policies.fixed('lexical', ACTIONS)(OBSERVATIONS, MASKS, 0)
  assert decision.actions.tolist() == [1, 0, 0]
  assert not decision.logps.any() and not decision.values.any()


def test_an_action_that_the_environment_lacks_is_refused():
  with pytest.raises(ValueError, match='repair'):
    policies.fixed('repair', ACTIONS)


def test_uniform_takes_each_available_action_as_often():
  masks = np.repeat(MASKS[:2], 4000, axis=0)
  actions = policies.uniform(0)(masks, masks, 0).actions
  assert masks[np.arange(len(masks)), actions].all()
  shares = np.bincount(actions[:4000], minlength=4) / 4000
  np.testing.assert_allclose(shares, 0.25, atol=0.03)
  shares = np.bincount(actions[4000:], minlength=4) / 4000
  np.testing.assert_allclose(shares, [0.5, 0, 0.5, 0], atol=0.03)


def test_uniform_depends_on_seed_and_step_alone():
  masks = np.ones((50, 4), bool)
  draw = lambda seed, step: policies.uniform(seed)(masks, masks, step).actions
  np.testing.assert_array_equal(draw(3, 1), draw(3, 1))
  assert (draw(3, 1) != draw(3, 2)).any()
  assert (draw(3, 1) != draw(4, 1)).any()


@pytest.fixture(scope='module')
def network():
  model = ActorCritic(ActorCriticConfig(5, 4, (8,), (8,)))
  return model, model.init(jax.random.key(0), OBSERVATIONS)


def test_the_controller_samples_available_actions_by_seed_and_step(network):
  model, params = network
  act = update.make_act_fn(model.apply)
  observations = np.repeat(OBSERVATIONS, 40, axis=0)
  masks = np.repeat(MASKS, 40, axis=0)
  play = lambda seed, step: policies.controller(act, params, seed)(
    observations, masks, step
  )
  first, again = play(1, 0), play(1, 0)
  np.testing.assert_array_equal(first.actions, again.actions)
  assert masks[np.arange(120), first.actions].all()
  assert len(set(first.actions[:40])) > 1  # equal rows, keys of their own
  assert (first.actions != play(1, 1).actions).any()
  assert (first.actions != play(2, 0).actions).any()
  _, values = model.apply(params, observations)
  np.testing.assert_allclose(first.values, values, rtol=1e-5, atol=1e-6)
  assert (first.logps[80:] == 0).all()  # one action is all that was available


def test_the_greedy_controller_takes_the_likeliest_action(network):
  model, params = network
  act = update.make_act_fn(model.apply, greedy=True)
  decision = policies.controller(act, params, 0)(OBSERVATIONS, MASKS, 0)
  logits = np.where(MASKS, model.apply(params, OBSERVATIONS)[0], -np.inf)
  np.testing.assert_array_equal(decision.actions, logits.argmax(axis=1))
