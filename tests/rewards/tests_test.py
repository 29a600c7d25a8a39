"""Rewards from verdicts."""

import dataclasses

import pytest

from promptrl_jax.rewards import tests as rewards
from promptrl_jax.rewards.tests import StepRewardConfig

SHAPED = StepRewardConfig(call_cost=0.1, share_weight=0.5)


def shaped(config=SHAPED, **changes):
  step = {
    'done': False,
    'share': 0.0,
    'previous_share': 0.0,
    'calls': 1,
    'gamma': 0.9,
  }
  return rewards.shaped_reward(**(step | changes), config=config)


def test_legacy_reward_of_promis():
  config = StepRewardConfig(kind='legacy')
  assert rewards.legacy_reward(True, config) == 1.0
  assert rewards.legacy_reward(False, config) == -0.1


def test_the_scale_doubles_both():
  config = StepRewardConfig(kind='legacy', scale=2.0)
  assert rewards.legacy_reward(True, config) == 2.0
  assert rewards.legacy_reward(False, config) == -0.2


def test_two_of_three_tests_at_the_end():
  value = shaped(done=True, share=2 / 3)
  assert value == pytest.approx(0.5 * 2 / 3 - 0.1)


def test_all_tests_at_the_end_add_the_bonus():
  assert shaped(done=True, share=1.0) == pytest.approx(0.5 + 1.0 - 0.1)


def test_calls_cost_and_nothing_else_does_on_the_way():
  assert shaped(share=1.0, calls=2) == pytest.approx(-0.2)


def test_potential_shaping_telescopes_over_an_episode():
  gamma = 0.9
  config = dataclasses.replace(SHAPED, potential=True)
  shares = [0.0, 0.25, 0.25, 1.0]
  steps = list(zip(shares, shares[1:], strict=False))
  with_shaping, without = 0.0, 0.0
  for t, (before, after) in enumerate(steps):
    step = {
      'done': t == len(steps) - 1,
      'share': after,
      'previous_share': before,
      'gamma': gamma,
    }
    with_shaping += gamma**t * shaped(config, **step)
    without += gamma**t * shaped(SHAPED, **step)
  # phi of the end is 0 and phi of the start is 0, so the sums are equal.
  assert with_shaping == pytest.approx(without, abs=1e-6)


def test_potential_terms_telescope():
  gamma, potentials = 0.95, [0.3, 0.1, 0.8, 0.5]
  terms = [
    rewards.shaping(before, after, gamma)
    for before, after in zip(potentials, potentials[1:], strict=False)
  ]
  total = sum(gamma**t * term for t, term in enumerate(terms))
  assert total == pytest.approx(gamma**3 * 0.5 - 0.3, abs=1e-6)


def test_an_unknown_kind_is_refused():
  with pytest.raises(ValueError, match='sparse'):
    StepRewardConfig(kind='sparse')
