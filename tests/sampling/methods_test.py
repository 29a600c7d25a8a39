"""The next-token distribution and its draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.sampling.methods import Sampling, draw, log_distribution

LOGITS = jnp.log(jnp.array([[0.5, 0.3, 0.15, 0.05]]))


def probabilities(temperature=1.0, **filters):
  logps = log_distribution(
    LOGITS, jnp.array([temperature]), Sampling(**filters)
  )
  return np.exp(np.asarray(logps[0]))


def test_without_filters_it_is_the_softmax():
  np.testing.assert_allclose(probabilities(), [0.5, 0.3, 0.15, 0.05], rtol=1e-5)


def test_temperature_sharpens():
  expected = np.array([0.5, 0.3, 0.15, 0.05]) ** 2
  np.testing.assert_allclose(
    probabilities(0.5), expected / expected.sum(), rtol=1e-5
  )


def test_top_k_keeps_k_and_renormalises():
  np.testing.assert_allclose(
    probabilities(top_k=2), [0.625, 0.375, 0, 0], atol=1e-6
  )


@pytest.mark.parametrize(
  ('top_p', 'kept'), [(0.4, 1), (0.5, 1), (0.6, 2), (0.9, 3), (1.0, 4)]
)
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p, kept):
  assert (probabilities(top_p=top_p) > 1e-9).sum() == kept


def test_draws_follow_the_distribution():
  vocab, count = 70, 20_000  # more than one block of the sampler, and a rest
  rng = np.random.default_rng(0)
  probs = rng.dirichlet(np.full(vocab, 0.3))
  probs[40:50] = 0.0
  probs /= probs.sum()
  logps = jnp.log(jnp.tile(jnp.asarray(probs, jnp.float32), (count, 1)))
  uniform = jax.random.uniform(jax.random.key(1), count)
  drawn = np.asarray(draw(uniform, logps, jnp.ones(count)))
  shares = np.bincount(drawn, minlength=vocab) / count
  assert shares[40:50].sum() == 0
  assert np.abs(shares - probs).sum() < 0.05


def test_greedy_takes_the_first_maximum():
  logps = jnp.array([[0.1, 0.7, 0.7, 0.2]])
  assert draw(jnp.zeros(1), logps, jnp.zeros(1))[0] == 1


@pytest.mark.parametrize(
  'filters', [{'top_k': -1}, {'top_p': 0.0}, {'top_p': 2}]
)
def test_impossible_filters_are_refused(filters):
  with pytest.raises(ValueError, match='expected'):
    Sampling(**filters)
