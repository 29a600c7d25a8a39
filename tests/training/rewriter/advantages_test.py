"""What tokens are worth, worked by hand for each method."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.training.rewriter import advantages as advantages_lib
from promptrl_jax.training.rewriter.advantages import AdvantageConfig, Scored

# Two prompts: rewards 1, 0, 0 and 2, 4; lengths 2, 1, 3, 1, 2. The sixth row is
# filled up and must not count.
REWARDS = np.array([1.0, 0, 0, 2, 4, 0], np.float32)
GROUPS = np.array([0, 0, 0, 1, 1, 0])
LENGTHS = np.array([2, 1, 3, 1, 2, 0])
MASK = np.arange(3) < LENGTHS[:, None]


def batch(**fields):
  return Scored(REWARDS, GROUPS, MASK, **fields)


def advantages(kind, scored=None, kl_coef=0.0, **settings):
  config = AdvantageConfig(kind, **settings)
  found, returns = advantages_lib.advantages(config, scored or batch(), kl_coef)
  assert found.shape == MASK.shape
  assert (np.asarray(found)[~MASK] == 0).all()
  return np.asarray(found), returns


def of_rows(values):
  """One number per completion, at each of its tokens."""
  return np.where(MASK, np.array([*values, 0.0])[:, None], 0.0)


@pytest.mark.parametrize(
  ('kind', 'expected'),
  [
    # Mean 1/3 and deviation sqrt(2)/3; mean 3 and deviation 1.
    ('grpo', [2**0.5, -(0.5**0.5), -(0.5**0.5), -1, 1]),
    ('dr_grpo', [2 / 3, -1 / 3, -1 / 3, -1, 1]),
    # Against the mean of the others: 0, 1/2, 1/2; 4, 2.
    ('rloo', [1, -0.5, -0.5, -2, 2]),
    # Against the mean of all five, 7/5.
    ('reinforce', [-0.4, -1.4, -1.4, 0.6, 2.6]),
  ],
)
def test_numbers_by_hand(kind, expected):
  found, returns = advantages(kind)
  np.testing.assert_allclose(found, of_rows(expected), atol=1e-5)
  assert returns is None


def test_the_deviation_may_be_that_of_a_sample():
  found, _ = advantages('grpo', deviation='sample')
  # Deviations sqrt(1/3) and sqrt(2).
  expected = [2 / 3**0.5, -1 / 3**0.5, -1 / 3**0.5, -(0.5**0.5), 0.5**0.5]
  np.testing.assert_allclose(found, of_rows(expected), atol=1e-5)


def test_reinforce_pp_is_normalised_over_the_tokens_of_the_batch():
  found, _ = advantages('reinforce_pp')
  rewards = of_rows(REWARDS[:5])[MASK]  # 1 1 0 0 0 0 2 4 4
  expected = (rewards - rewards.mean()) / rewards.std()
  np.testing.assert_allclose(found[MASK], expected, atol=1e-4)


def test_reinforce_pp_pays_for_the_divergence_that_is_to_come():
  logps = np.where(MASK, -1.0, 0.0).astype(np.float32)
  ref_logps = np.where(MASK, -1.5, 0.0).astype(np.float32)  # 0.5 nats a token
  scored = batch(logps=logps, ref_logps=ref_logps)
  found, _ = advantages('reinforce_pp', scored, kl_coef=0.1)
  to_come = np.where(MASK, LENGTHS[:, None] - np.arange(3), 0) * 0.5
  worth = (of_rows(REWARDS[:5]) - 0.1 * to_come)[MASK]
  expected = (worth - worth.mean()) / worth.std()
  np.testing.assert_allclose(found[MASK], expected, atol=1e-4)


def test_gae_by_hand():
  values = np.where(MASK, 0.5, 0.0).astype(np.float32)
  settings = {'gamma': 1.0, 'lam': 0.5, 'normalize': False}
  found, returns = advantages('gae', batch(values=values), **settings)
  # Before the last token delta is 0, at the last one it is R - 0.5; each token
  # further from the end halves it.
  last = REWARDS - 0.5
  halvings = np.where(MASK, LENGTHS[:, None] - 1 - np.arange(3), 0)
  expected = np.where(MASK, last[:, None] * 0.5**halvings, 0.0)
  np.testing.assert_allclose(found, expected, atol=1e-6)
  np.testing.assert_allclose(returns, np.where(MASK, found + 0.5, 0), atol=1e-6)


def test_gae_takes_the_divergence_as_a_reward_of_each_token():
  values = np.zeros(MASK.shape, np.float32)
  logps = np.where(MASK, -1.0, 0.0).astype(np.float32)
  scored = batch(values=values, logps=logps, ref_logps=logps - 0.5)
  settings = {'lam': 1.0, 'normalize': False}
  found, _ = advantages('gae', scored, kl_coef=0.1, **settings)
  to_come = np.where(MASK, LENGTHS[:, None] - np.arange(3), 0) * 0.05
  np.testing.assert_allclose(
    found, np.where(MASK, REWARDS[:, None] - to_come, 0), atol=1e-6
  )


def test_gae_is_normalised_over_the_tokens_of_the_batch():
  values = np.where(MASK, 0.5, 0.0).astype(np.float32)
  found, _ = advantages('gae', batch(values=values), lam=1.0)
  assert found[MASK].mean() == pytest.approx(0, abs=1e-5)
  assert found[MASK].std() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize('kind', ['grpo', 'dr_grpo', 'rloo', 'reinforce'])
def test_the_divergence_is_no_reward_where_it_is_a_term_of_the_loss(kind):
  logps = np.where(MASK, -1.0, 0.0).astype(np.float32)
  scored = batch(logps=logps, ref_logps=logps - 3)
  np.testing.assert_array_equal(
    advantages(kind, scored, kl_coef=1.0)[0], advantages(kind)[0]
  )


@pytest.mark.parametrize('kind', ['grpo', 'dr_grpo', 'rloo', 'reinforce'])
def test_the_divergence_of_a_completion_is_a_reward_if_it_is_asked_for(kind):
  logps = np.where(MASK, -1.0, 0.0).astype(np.float32)
  scored = batch(logps=logps, ref_logps=logps - 0.5)
  found, _ = advantages(kind, scored, kl_coef=0.2, charge_kl='reward')
  paid = Scored((REWARDS - 0.1 * LENGTHS).astype(np.float32), GROUPS, MASK)
  np.testing.assert_allclose(found, advantages(kind, paid)[0], atol=1e-6)


@pytest.mark.parametrize('kind', ['grpo', 'dr_grpo', 'rloo', 'reinforce'])
def test_each_token_pays_for_itself_if_that_is_asked_for(kind):
  logps = np.where(MASK, -1.0, 0.0).astype(np.float32)
  apart = np.arange(18, dtype=np.float32).reshape(MASK.shape) / 10
  scored = batch(logps=logps, ref_logps=logps - apart)
  found, _ = advantages(kind, scored, kl_coef=0.2, charge_kl='token')
  expected = np.where(MASK, advantages(kind)[0] - 0.2 * apart, 0)
  np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
  ('settings', 'price'),
  [
    ({'kl_estimator': 'k2'}, 0.125),
    ({'kl_estimator': 'k3'}, np.exp(-0.5) - 0.5),
    ({'kl_cap': 0.3}, 0.3),
    ({'kl_min_prob': 0.4}, 0.0),
    ({'kl_estimator': 'exact'}, 0.7),
    ({'kl_estimator': 'exact', 'kl_cap': 0.6}, 0.6),
  ],
)
def test_what_a_nat_is_measured_by_is_a_choice(settings, price):
  logps = np.where(MASK, -1.0, 0.0).astype(np.float32)
  scored = batch(
    values=0 * logps,
    logps=logps,
    ref_logps=logps - 0.5,
    exact_kl=np.full(MASK.shape, 0.7, np.float32),
  )
  plain = {'lam': 1.0, 'normalize': False}
  found, _ = advantages('gae', scored, kl_coef=0.1, **plain, **settings)
  to_come = np.where(MASK, LENGTHS[:, None] - np.arange(3), 0) * 0.1 * price
  np.testing.assert_allclose(
    found, np.where(MASK, REWARDS[:, None] - to_come, 0), atol=1e-6
  )


@pytest.mark.parametrize('kind', ['reinforce_pp', 'gae'])
def test_the_divergence_is_no_reward_if_it_is_to_be_a_term_of_the_loss(kind):
  logps = np.where(MASK, -1.0, 0.0).astype(np.float32)
  scored = batch(logps=logps, ref_logps=logps - 0.5, values=0 * logps)
  found, _ = advantages(kind, scored, kl_coef=1.0, charge_kl='loss')
  free, _ = advantages(kind, scored, kl_coef=0.0)
  np.testing.assert_array_equal(found, free)


def test_it_is_charged_once():
  for kind in set(advantages_lib.KINDS) - {'pairs'}:
    for charge in advantages_lib.CHARGES:
      if charge == 'token' and kind in ('gae', 'reinforce_pp'):
        with pytest.raises(ValueError, match='counts what is still to be paid'):
          AdvantageConfig(kind, charge_kl=charge)
        continue
      config = AdvantageConfig(kind, charge_kl=charge)
      assert config.kl_in_loss != config.pays_kl
  with pytest.raises(ValueError, match="'pairs': it is paid in the pair"):
    AdvantageConfig('pairs', charge_kl='loss')
  with pytest.raises(ValueError, match="charge_kl='both': expected one of"):
    AdvantageConfig(charge_kl='both')


@pytest.mark.parametrize('kind', advantages_lib.KINDS)
def test_equal_rewards_are_worth_nothing_to_policies(kind):
  if kind == 'gae':  # an untaught value head still has something to learn
    return
  logps = np.where(MASK, -1.0, 0.0).astype(np.float32)
  scored = Scored(np.full(6, 0.3, np.float32), GROUPS, MASK, logps)
  np.testing.assert_array_equal(advantages(kind, scored)[0], 0)


@pytest.mark.parametrize('kind', advantages_lib.KINDS)
def test_rows_without_a_token_have_no_influence(kind):
  zeros = np.zeros(MASK.shape, np.float32)
  fields = {'values': zeros, 'logps': zeros - 1}
  rewards = REWARDS.copy()
  rewards[5] = np.nan
  poisoned = Scored(rewards, GROUPS, MASK, **fields)
  np.testing.assert_array_equal(
    advantages(kind, poisoned)[0], advantages(kind, batch(**fields))[0]
  )


def test_it_is_compiled_once_for_a_method():
  config = AdvantageConfig('rloo', gamma=0.123)  # of this test alone
  before = advantages_lib.advantages._cache_size()
  for shift in range(3):
    advantages_lib.advantages(
      config, batch().replace(rewards=REWARDS + shift), jnp.float32(shift)
    )
  assert advantages_lib.advantages._cache_size() == before + 1


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    ({'kl_cap': 0.1}, 'and the divergence is no reward'),
    ({'kind': 'rloo', 'deviation': 'sample'}, 'only grpo divides by one'),
    (
      {'charge_kl': 'token', 'kl_estimator': 'exact'},
      'subtracting it has no effect',
    ),
  ],
)
def test_settings_without_an_effect_are_refused(settings, message):
  with pytest.raises(ValueError, match=message):
    AdvantageConfig(**settings)


def test_a_method_that_lacks_something_is_told():
  with pytest.raises(ValueError, match="'gae' needs a value head"):
    advantages('gae')
  with pytest.raises(ValueError, match="'pairs' needs log-probs"):
    advantages('pairs')
  with pytest.raises(ValueError, match="kind='td': expected one of grpo"):
    AdvantageConfig('td')


def test_gradients_do_not_flow_through_what_is_paid():
  values = np.zeros(MASK.shape, np.float32)

  def total(logps):
    scored = batch(values=values, logps=logps, ref_logps=logps - 1.0)
    found, _ = advantages_lib.advantages(
      AdvantageConfig('gae', normalize=False), scored, 0.5
    )
    return jnp.sum(found)

  np.testing.assert_array_equal(jax.grad(total)(values), 0)
