"""Divergences: by hand, against scipy, and their gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from promptrl_jax.rl import kl
from promptrl_jax.rl.losses import policy_loss
from promptrl_jax.rl.policy_losses import reinforce


@pytest.mark.parametrize(
  ('kind', 'expected'), [('k1', 0.2), ('k2', 0.02), ('k3', 0.0187308)]
)
def test_estimates_by_hand(kind, expected):
  estimate = kl.token_kl(jnp.array([-1.0]), jnp.array([-1.2]), kind=kind)
  np.testing.assert_allclose(estimate, [expected], atol=1e-7)


def test_k2_and_k3_are_never_negative():
  logps, ref_logps = jax.random.normal(jax.random.key(0), (2, 1000)) * 3
  # Close to the reference, exp(d) - 1 - d would be lost to rounding.
  near = logps + jax.random.normal(jax.random.key(1), (1000,)) * 1e-4
  for kind in ('k2', 'k3'):
    assert (kl.token_kl(logps, ref_logps, kind=kind) >= 0).all()
    assert (kl.token_kl(logps, near, kind=kind) >= 0).all()
  assert (kl.token_kl(logps, ref_logps, kind='k1') < 0).any()


def test_exact_divergence_equals_scipy():
  logits, ref_logits = jax.random.normal(jax.random.key(2), (2, 5, 7, 11)) * 2
  p, q = (
    scipy.special.softmax(np.asarray(x, np.float64), axis=-1)
    for x in (logits, ref_logits)
  )
  expected = scipy.stats.entropy(p, q, axis=-1)
  result = jax.jit(kl.exact_kl)(logits, ref_logits)
  np.testing.assert_allclose(result, expected, rtol=1e-4)
  rows = jax.vmap(kl.exact_kl)(logits, ref_logits)
  np.testing.assert_allclose(rows, result, rtol=1e-6)
  np.testing.assert_allclose(kl.exact_kl(logits, logits + 3), 0.0, atol=1e-6)


def test_k1_and_k3_have_the_exact_divergence_as_their_mean():
  logits, ref_logits = jax.random.normal(jax.random.key(3), (2, 11))
  logps, ref_logps = jax.nn.log_softmax(logits), jax.nn.log_softmax(ref_logits)
  exact = kl.exact_kl(logits, ref_logits)
  for kind in ('k1', 'k3'):
    # The expectation, summed over all tokens.
    mean = jnp.exp(logps) @ kl.token_kl(logps, ref_logps, kind=kind)
    np.testing.assert_allclose(mean, exact, rtol=1e-5)


def test_outcomes_that_cannot_happen():
  logits = jnp.array([0.0, 1.0, -jnp.inf])
  value, gradient = jax.value_and_grad(kl.exact_kl)(logits, jnp.zeros(3))
  p = np.array([1, np.e]) / (1 + np.e)
  expected = scipy.stats.entropy([*p, 0.0], np.ones(3) / 3)
  np.testing.assert_allclose(value, expected, rtol=1e-6)
  assert jnp.isfinite(gradient).all()
  assert kl.exact_kl(jnp.zeros(3), logits) == jnp.inf
  # Both leave the same outcome out.
  value, gradient = jax.value_and_grad(kl.exact_kl)(logits, 2 * logits)
  assert jnp.isfinite(value) and jnp.isfinite(gradient).all()


def test_truncation_bounds_a_token_and_its_gradient():
  logps = jnp.array([-1.0, -1.0, -200.0])
  ref_logps = jnp.array([-1.2, -5.0, -0.1])

  def total(logps, cap):
    estimates = kl.token_kl(logps, ref_logps, kind='k3', cap=cap)
    return estimates.sum(), estimates

  (_, estimates), gradient = jax.value_and_grad(total, has_aux=True)(logps, 1.0)
  np.testing.assert_allclose(estimates, [0.0187308, 1.0, 1.0], atol=1e-6)
  np.testing.assert_allclose(gradient, [1 - np.exp(-0.2), 0, 0], atol=1e-6)
  assert kl.token_kl(logps, ref_logps)[2] == jnp.inf


def test_only_likely_tokens_count_in_the_adaptive_divergence():
  logps = jnp.log(jnp.array([0.5, 0.1, 0.05]))
  ref_logps = jnp.log(jnp.array([0.25, 0.2, 0.2]))
  estimates = kl.token_kl(logps, ref_logps, kind='k1', min_prob=0.101)
  np.testing.assert_allclose(estimates, [np.log(2), 0, 0], rtol=1e-6)


@pytest.mark.parametrize('kind', kl.ESTIMATES)
@pytest.mark.parametrize('cap', [None, 0.5])
def test_padding_reaches_neither_values_nor_gradients(kind, cap):
  mask = jnp.array([True, False, False])
  logps = jnp.array([-1.0, jnp.nan, -2.0])
  ref_logps = jnp.array([-1.5, -1.0, jnp.inf])

  def total(logps):
    return kl.token_kl(logps, ref_logps, mask, kind=kind, cap=cap).sum()

  value, gradient = jax.jit(jax.value_and_grad(total))(logps)
  short = kl.token_kl(logps[:1], ref_logps[:1], kind=kind, cap=cap)[0]
  np.testing.assert_allclose(value, short, rtol=1e-6)
  assert gradient[0] != 0
  np.testing.assert_array_equal(gradient[1:], 0.0)


def test_no_gradient_reaches_the_reference():
  gradient = jax.grad(lambda ref: kl.token_kl(jnp.zeros(2), ref).sum())
  np.testing.assert_array_equal(gradient(jnp.ones(2)), 0.0)


def expected_gradient(token_loss_fn):
  """Differentiates the mean over tokens drawn from the policy, exactly.

  Args:
    token_loss_fn: logps -> [V] loss of each token, were it drawn.

  Returns:
    The gradient in the logits, and that of the exact divergence.
  """
  logits, ref_logits = jax.random.normal(jax.random.key(4), (2, 7))
  ref_logps = jax.nn.log_softmax(ref_logits)
  p = jax.nn.softmax(logits)

  def mean(logits):
    return p @ token_loss_fn(jax.nn.log_softmax(logits), ref_logps)

  return jax.grad(mean)(logits), jax.grad(kl.exact_kl)(logits, ref_logits)


def test_k1_as_a_loss_has_no_expected_gradient():
  gradient, _ = expected_gradient(lambda x, y: kl.token_kl(x, y, kind='k1'))
  np.testing.assert_allclose(gradient, 0.0, atol=1e-6)


def test_k2_as_a_loss_has_the_gradient_of_the_divergence():
  gradient, exact = expected_gradient(lambda x, y: kl.token_kl(x, y, kind='k2'))
  np.testing.assert_allclose(gradient, exact, atol=1e-6)


def test_the_exact_divergence_in_the_advantages_has_no_expected_gradient():
  def token_loss(logps, ref_logps):
    penalty = jnp.full(7, kl.exact_kl(logps, ref_logps))
    mask = jnp.ones(logps.shape, bool)
    return -kl.penalize(jnp.zeros(7), penalty, mask, 1.0) * logps

  gradient, exact = expected_gradient(token_loss)
  np.testing.assert_allclose(gradient, 0.0, atol=1e-6)
  assert np.abs(exact).max() > 0.01


def test_k1_in_the_advantages_has_the_gradient_of_the_divergence():
  def token_loss(logps, ref_logps):
    mask = jnp.ones(logps.shape, bool)
    penalty = kl.token_kl(logps, ref_logps, kind='k1')
    advantages = kl.penalize(jnp.zeros(7), penalty, mask, 1.0)
    return -advantages * logps

  gradient, exact = expected_gradient(token_loss)
  np.testing.assert_allclose(gradient, exact, atol=1e-6)


def test_penalized_reinforce_follows_advantage_and_k2():
  logps, ref_logps, advantages = jax.random.normal(jax.random.key(5), (3, 2, 4))
  mask = jnp.array([[True, True, False, True], [True, False, False, False]])
  advantages = jnp.where(mask, advantages, jnp.nan)

  def penalized(logps):
    penalty = kl.token_kl(logps, ref_logps, mask, kind='k1')
    shaped = kl.penalize(advantages, penalty, mask, 0.3)
    return policy_loss(reinforce, logps, logps, shaped, mask)[0]

  def apart(logps):
    loss, _ = policy_loss(reinforce, logps, logps, advantages, mask)
    return loss + 0.3 * kl.token_kl(logps, ref_logps, mask, kind='k2').sum()

  np.testing.assert_allclose(
    jax.grad(penalized)(logps), jax.grad(apart)(logps), atol=1e-6
  )


def test_the_exact_divergence_is_masked_and_capped_like_an_estimate():
  logps, exact = jnp.log(jnp.array([0.5, 0.1, 0.5, 0.5])), jnp.arange(4.0)
  mask = jnp.array([True, True, True, False])

  def total(exact, **settings):
    return kl.token_kl(
      logps, logps - 1, mask, kind='exact', exact=exact, **settings
    )

  np.testing.assert_array_equal(total(exact), [0, 1, 2, 0])
  np.testing.assert_array_equal(total(exact, cap=1.5), [0, 1, 1.5, 0])
  np.testing.assert_array_equal(total(exact, min_prob=0.2), [0, 0, 2, 0])
  gradient = jax.grad(lambda x: total(x, cap=1.5).sum())(exact)
  np.testing.assert_array_equal(gradient, [1, 1, 0, 0])
  with pytest.raises(ValueError, match="kind='exact' without `exact`"):
    total(None)


def test_k3_as_a_loss_has_the_gradient_of_the_other_direction():
  logits = jnp.array([0.3, -1.0, 0.8, 0.1])
  reference = jax.nn.log_softmax(jnp.array([-0.5, 0.6, 0.2, 1.0]))

  def expected(logits):  # over the vocabulary, drawn from the policy
    logps = jax.nn.log_softmax(logits)
    drawn = jax.lax.stop_gradient(jnp.exp(logps))
    return jnp.sum(drawn * kl.token_kl(logps, reference, kind='k3'))

  def other_direction(logits):
    logps = jax.nn.log_softmax(logits)
    return jnp.sum(jnp.exp(reference) * (reference - logps))

  np.testing.assert_allclose(
    jax.grad(expected)(logits), jax.grad(other_direction)(logits), atol=1e-6
  )


def test_bad_settings_are_refused():
  x = jnp.zeros(2)
  with pytest.raises(ValueError, match="kind='k4': expected one of k1, k2, k3"):
    kl.token_kl(x, x, kind='k4')
  with pytest.raises(ValueError, match='cap=0'):
    kl.token_kl(x, x, cap=0)
  with pytest.raises(AssertionError):
    kl.token_kl(x, jnp.zeros((2, 1)))
  with pytest.raises(AssertionError):
    kl.exact_kl(x, jnp.zeros(3))
