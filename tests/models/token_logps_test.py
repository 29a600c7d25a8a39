"""Chunked log-probs equal those of the whole logits, gradients too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models.token_logps import token_logps

R, K, D, V = 2, 7, 6, 11


@pytest.fixture
def inputs():
  rng = np.random.default_rng(0)
  hidden = rng.normal(size=(R, K, D)).astype(np.float32)
  head = rng.normal(size=(D, V)).astype(np.float32)
  return hidden, head, rng.integers(0, V, (R, K))


def naive(hidden, head, targets, temperature):
  logps = jax.nn.log_softmax(hidden @ head / temperature)
  chosen = jnp.take_along_axis(logps, targets[..., None], -1)[..., 0]
  return chosen, -jnp.sum(jnp.exp(logps) * logps, axis=-1)


@pytest.mark.parametrize('chunk', [None, 1, 3, 7, 100])
@pytest.mark.parametrize('tied', [False, True])
def test_equals_the_whole_softmax(inputs, chunk, tied):
  hidden, head, targets = inputs
  found = token_logps(
    hidden, head.T if tied else head, targets, 0.7,
    contracted=int(tied), chunk=chunk,
  )  # fmt: skip
  for a, b in zip(found, naive(hidden, head, targets, 0.7), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize('chunk', [None, 3])
def test_gradients_equal_those_of_the_whole_softmax(inputs, chunk):
  hidden, head, targets = inputs
  weights = np.random.default_rng(1).normal(size=(2, R, K))

  def loss(function, hidden, head):
    logps, entropies = function(hidden, head, targets, 0.7)
    return jnp.sum(weights[0] * logps + weights[1] * entropies)

  chunked = lambda *args: token_logps(*args, chunk=chunk)
  gradients = jax.grad(loss, (1, 2))
  for a, b in zip(
    gradients(chunked, hidden, head), gradients(naive, hidden, head),
    strict=True,
  ):  # fmt: skip
    np.testing.assert_allclose(a, b, atol=1e-5)


def test_the_program_holds_no_logits_of_the_whole_batch():
  k, v, chunk = 256, 4096, 16
  shapes = [(1, k, 8), (8, v)]
  hidden, head = (jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes)
  targets = jax.ShapeDtypeStruct((1, k), jnp.int32)

  def memory(chunk):
    def loss(hidden, head, targets):
      return jnp.sum(token_logps(hidden, head, targets, chunk=chunk)[0])

    program = jax.jit(jax.grad(loss, (0, 1))).lower(hidden, head, targets)
    return program.compile().memory_analysis().temp_size_in_bytes

  assert memory(None) > k * v * 4
  assert memory(chunk) < 4 * chunk * v * 4 + 8 * v * 4
