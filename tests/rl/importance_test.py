"""Importance weights of sampler and trainer: by hand, and unbiased means."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.rl.importance import LEVELS, truncated_importance_weights

F, T = False, True
MASK = jnp.array([[T, T], [T, F], [F, F]])
RATIOS = jnp.array([[2.0, 0.5], [4.0, jnp.nan], [jnp.nan, 1.0]])
SAMPLER = jnp.array([[-1.0, -2.0], [-3.0, jnp.nan], [-1.0, jnp.inf]])


def test_tokens_by_hand():
  weights, metrics = jax.jit(
    truncated_importance_weights, static_argnames=('level', 'cap')
  )(SAMPLER + jnp.log(RATIOS), SAMPLER, MASK, cap=3.0)
  np.testing.assert_allclose(
    weights, [[2.0, 0.5], [3.0, 0.0], [0.0, 0.0]], rtol=1e-6
  )
  k3 = [r - 1 - np.log(r) for r in (2.0, 0.5, 4.0)]
  expected = {
    'ratio_mean': 6.5 / 3,
    'ratio_max': 4.0,
    'truncated_share': 1 / 3,
    'effective_sample_share': 6.5**2 / (3 * (4 + 0.25 + 16)),
    'kl': sum(k3) / 3,
  }
  assert metrics.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_allclose(metrics[name], value, rtol=1e-6, err_msg=name)


def test_sequences_by_hand():
  weights, metrics = truncated_importance_weights(
    SAMPLER + jnp.log(RATIOS), SAMPLER, MASK, level='sequence', cap=3.0
  )
  # 2 * 0.5 and 4; the third sequence has no token and is not counted.
  np.testing.assert_allclose(
    weights, [[1.0, 1.0], [3.0, 0.0], [0.0, 0.0]], rtol=1e-6
  )
  np.testing.assert_allclose(metrics['ratio_mean'], 2.5, rtol=1e-6)
  np.testing.assert_allclose(metrics['truncated_share'], 0.5)
  np.testing.assert_allclose(
    metrics['effective_sample_share'], 25 / (2 * 17), rtol=1e-6
  )


@pytest.mark.parametrize('level', LEVELS)
def test_a_sampler_that_agrees_has_weight_one(level):
  logps = jax.random.normal(jax.random.key(0), (3, 2))
  weights, metrics = truncated_importance_weights(
    logps, logps, MASK, level=level
  )
  np.testing.assert_array_equal(weights, MASK)
  for name, value in metrics.items():
    expected = name in ('ratio_mean', 'ratio_max', 'effective_sample_share')
    np.testing.assert_allclose(value, expected, atol=1e-6, err_msg=name)


def test_weighted_samples_have_the_mean_of_the_trainer():
  logits, sampler_logits, x = jax.random.normal(jax.random.key(1), (3, 6))
  logps, sampler = (jax.nn.log_softmax(z) for z in (logits, sampler_logits))
  # One sequence for each token of the vocabulary: the expectation, exactly.
  weights, _ = truncated_importance_weights(
    logps[:, None], sampler[:, None], jnp.ones((6, 1), bool), cap=1e6
  )
  mean = jnp.sum(jnp.exp(sampler) * weights[:, 0] * x)
  np.testing.assert_allclose(mean, jnp.exp(logps) @ x, rtol=1e-5)


@pytest.mark.parametrize('level', LEVELS)
def test_huge_ratios_stay_finite(level):
  logps, sampler = jnp.zeros((2, 3)), jnp.full((2, 3), -60.0)
  weights, metrics = truncated_importance_weights(
    logps, sampler, jnp.ones((2, 3), bool), level=level, cap=2.0
  )
  np.testing.assert_array_equal(weights, 2.0)
  assert all(jnp.isfinite(x) for x in metrics.values())
  np.testing.assert_allclose(metrics['effective_sample_share'], 1.0, rtol=1e-5)


@pytest.mark.parametrize('level', LEVELS)
def test_a_batch_without_tokens_reports_zeros(level):
  weights, metrics = truncated_importance_weights(
    SAMPLER, SAMPLER, jnp.zeros((3, 2), bool), level=level
  )
  np.testing.assert_array_equal(weights, 0.0)
  assert all(x == 0 for x in metrics.values())


def test_no_gradient_flows_through_weights():
  sampler = jnp.full((3, 2), -1.0)

  def total(logps):
    weights, metrics = truncated_importance_weights(logps, sampler, MASK)
    return weights.sum() + sum(metrics.values())

  np.testing.assert_array_equal(jax.grad(total)(jnp.zeros((3, 2))), 0.0)


def test_vmap_over_batches():
  logps, sampler = jax.random.normal(jax.random.key(2), (2, 4, 3, 2))
  mask = jnp.broadcast_to(MASK, (4, 3, 2))
  weights, metrics = jax.vmap(truncated_importance_weights)(
    logps, sampler, mask
  )
  for i in range(4):
    one, own = truncated_importance_weights(logps[i], sampler[i], MASK)
    np.testing.assert_allclose(weights[i], one, rtol=1e-6)
    for name, value in own.items():
      np.testing.assert_allclose(metrics[name][i], value, rtol=1e-5)


def test_bad_settings_are_refused():
  x = jnp.zeros((3, 2))
  with pytest.raises(ValueError, match="level='word'.*token, sequence"):
    truncated_importance_weights(x, x, MASK, level='word')
  with pytest.raises(ValueError, match='cap=0'):
    truncated_importance_weights(x, x, MASK, cap=0)
  with pytest.raises(AssertionError):
    truncated_importance_weights(x, x[0], MASK)
