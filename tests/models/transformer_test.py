"""Shapes and invariances of the causal transformer."""

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.models import rope
from promptrl_jax.models.attention import attend
from promptrl_jax.models.transformer import Transformer
from promptrl_jax.testing import tiny


def logits(tokens, positions=None, mask=None):
  size = tokens.shape[1]
  if positions is None:
    positions = jnp.broadcast_to(jnp.arange(size), tokens.shape)
  if mask is None:
    mask = jnp.tril(jnp.ones((1, size, size), bool))
  return forward(tiny.params(), tokens, positions, mask)


@jax.jit
def forward(params, tokens, positions, mask):
  model = Transformer(tiny.CONFIG)
  hidden, _ = model.apply(params, tokens, positions, mask)
  return model.apply(params, hidden, method=Transformer.logits)


def test_parameter_count_is_what_the_config_says():
  leaves = jax.tree.leaves(tiny.params())
  assert sum(leaf.size for leaf in leaves) == tiny.CONFIG.num_params


def test_the_future_does_not_change_the_past():
  tokens = jnp.arange(3, 13)[None]
  changed = tokens.at[0, 7:].set(99)
  np.testing.assert_allclose(
    logits(tokens)[:, :7], logits(changed)[:, :7], atol=1e-5
  )
  assert not np.allclose(logits(tokens)[:, 7:], logits(changed)[:, 7:])


def test_rope_depends_on_distance_alone():
  rng = np.random.default_rng(0)
  query, key = rng.normal(size=(2, 1, 8)).astype(np.float32)

  def score(i, j):
    rotated = [
      rope.rotate(x, *rope.angles(jnp.array([p]), 8, 1e4))
      for x, p in ((query, i), (key, j))
    ]
    return float((rotated[0] * rotated[1]).sum())

  assert abs(score(3, 1) - score(10, 8)) < 1e-5
  assert abs(score(3, 1) - score(3, 2)) > 1e-3


def test_attention_equals_the_written_out_sum():
  rng = np.random.default_rng(1)
  b, t, s, k, g, h = 2, 3, 5, 2, 3, 4
  queries = rng.normal(size=(b, t, k, g, h)).astype(np.float32)
  keys, values = rng.normal(size=(2, b, s, k, h)).astype(np.float32)
  mask = rng.random((b, t, s)) < 0.7
  mask[..., 0] = True
  scores = np.einsum('btkgh,bskh->bkgts', queries, keys)
  scores = np.where(mask[:, None, None], scores, -np.inf)
  weights = np.exp(scores - scores.max(-1, keepdims=True))
  weights /= weights.sum(-1, keepdims=True)
  expected = np.einsum('bkgts,bskh->btkgh', weights, values)
  np.testing.assert_allclose(
    attend(queries, keys, values, mask), expected, atol=1e-5
  )


def test_packed_texts_do_not_see_each_other():
  first, second = jnp.array([[5, 6, 7]]), jnp.array([[9, 8]])
  segments = jnp.array([[1, 1, 1, 2, 2]])
  mask = jnp.tril(jnp.ones((5, 5), bool)) & (
    segments[:, :, None] == segments[:, None, :]
  )
  packed = logits(
    jnp.concatenate([first, second], axis=1),
    jnp.array([[0, 1, 2, 0, 1]]),
    mask,
  )
  np.testing.assert_allclose(packed[:, :3], logits(first), atol=1e-5)
  np.testing.assert_allclose(packed[:, 3:], logits(second), atol=1e-5)
