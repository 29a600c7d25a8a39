"""Chunked log-probs and gradients equal those of full logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models.token_logps import Projected, token_logps
from tests.variants import mostly_slow

R, K, D, V = 2, 7, 6, 11


@pytest.fixture
def inputs():
  rng = np.random.default_rng(0)
  hidden = rng.normal(size=(R, K, D)).astype(np.float32)
  head = rng.normal(size=(D, V)).astype(np.float32)
  return hidden, head, rng.integers(0, V, (R, K))


@pytest.fixture
def other():
  """Another model, of another width, whose embedding is its head."""
  rng = np.random.default_rng(2)
  hidden = 0.2 * rng.normal(size=(R, K, D + 3)).astype(np.float32)
  return Projected(hidden, rng.normal(size=(V, D + 3)).astype(np.float32), 1)


def naive(hidden, head, targets, temperature, other):
  logps = jax.nn.log_softmax(hidden @ head / temperature)
  others = jax.nn.log_softmax(other.hidden @ other.head.T / temperature)
  chosen = jnp.take_along_axis(logps, targets[..., None], -1)[..., 0]
  mean = lambda values: jnp.sum(jnp.exp(logps) * values, axis=-1)
  return chosen, -mean(logps), mean(logps - others)


@pytest.mark.parametrize(
  'chunk', mostly_slow([None, 1, 3, 7, 100], [None, 3, 100])
)
@pytest.mark.parametrize('tied', [False, True])
def test_equals_the_whole_softmax(inputs, other, chunk, tied):
  hidden, head, targets = inputs
  policy = Projected(hidden, head.T if tied else head, int(tied))
  expected = naive(hidden, head, targets, 0.7, other)
  actual = token_logps(policy, targets, 0.7, chunk=chunk, reference=other)
  for a, b in zip(actual, expected, strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5)
  alone = token_logps(policy, targets, 0.7, chunk=chunk)
  np.testing.assert_array_equal(alone[:2], actual[:2])
  assert alone.divergences is None
  itself = token_logps(policy, targets, 0.7, chunk=chunk, reference=policy)
  np.testing.assert_allclose(itself.divergences, 0, atol=1e-6)


@pytest.mark.parametrize('chunk', [None, 3])
@pytest.mark.parametrize('compared', mostly_slow([False, True], [True]))
def test_gradients_equal_those_of_the_whole_softmax(
  inputs, other, chunk, compared
):
  hidden, head, targets = inputs
  weights = np.random.default_rng(1).normal(size=(3, R, K))

  def loss(function, hidden, head, other):
    actual = function(hidden, head, targets, 0.7, other)[: 2 + compared]
    return sum(jnp.sum(w * x) for w, x in zip(weights, actual, strict=False))

  def chunked(hidden, head, targets, temperature, other):
    return token_logps(
      Projected(hidden, head),
      targets,
      temperature,
      chunk=chunk,
      reference=other if compared else None,
    )

  gradients = jax.grad(loss, (1, 2))
  for a, b in zip(
    gradients(chunked, hidden, head, other),
    gradients(naive, hidden, head, other),
    strict=True,
  ):
    np.testing.assert_allclose(a, b, atol=1e-5)
  # None flow into the reference, whatever autodiff would make of it.
  of_other = jax.grad(
    lambda x: loss(chunked, hidden, head, other._replace(hidden=x))
  )
  assert not np.any(of_other(other.hidden))


def test_the_program_holds_no_logits_of_the_whole_batch():
  k, v, chunk = 256, 4096, 16
  shapes = [(1, k, 8), (8, v)]
  hidden, head = (jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes)
  targets = jax.ShapeDtypeStruct((1, k), jnp.int32)

  def memory(chunk):
    def loss(hidden, head, targets):
      return jnp.sum(
        token_logps(Projected(hidden, head), targets, chunk=chunk).logps
      )

    program = jax.jit(jax.grad(loss, (0, 1))).lower(hidden, head, targets)
    return program.compile().memory_analysis().temp_size_in_bytes

  assert memory(None) > k * v * 4
  assert memory(chunk) < 4 * chunk * v * 4 + 8 * v * 4
