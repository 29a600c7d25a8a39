"""Decoding with a key-value cache equals attention over the sequence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models.attention import attend
from promptrl_jax.models.cache import LayerCache, layout


@pytest.mark.parametrize('free', [3, 90, 200])  # one block, two and three
def test_attention_to_a_written_cache_equals_attention_to_the_sequence(free):
  b, prompt, k, u, h = 2, 5, 2, 3, 4
  rng = np.random.default_rng(0)
  normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  keys, values = normal(b, prompt + free, k, h), normal(b, prompt + free, k, h)
  cache = LayerCache.in_blocks(
    keys[:, :prompt], values[:, :prompt], *layout(prompt + free)
  )
  assert cache.num_slots >= prompt + free
  write = jax.jit(LayerCache.write)
  for slot in range(prompt, prompt + free):
    cache = write(cache, keys[:, slot], values[:, slot], slot)
  mask = jnp.asarray(rng.random((b, prompt + free)) < 0.5).at[:, 0].set(True)
  queries = normal(b, 1, k, u, h)
  expected = attend(queries, keys, values, mask[:, None])[:, 0]
  unused = ((0, 0), (0, cache.num_slots - mask.shape[1]))
  result = cache.attend(queries[:, 0], jnp.pad(mask, unused))
  np.testing.assert_allclose(result, expected, atol=1e-5)


def test_writing_rows_at_different_slots_equals_writing_them_one_by_one():
  b, k, h = 4, 2, 3
  rng = np.random.default_rng(0)
  normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  cache = LayerCache.in_blocks(
    normal(b, 5, k, h), normal(b, 5, k, h), *layout(200)
  )
  keys, values = normal(b, k, h), normal(b, k, h)
  slots = jnp.array([7, 0, 199, 66])  # the last one, and another block
  together = jax.jit(LayerCache.write)(cache, keys, values, slots)
  for row, slot in enumerate(slots):
    alone = cache.write(keys, values, slot)
    np.testing.assert_array_equal(together.keys[row], alone.keys[row])
    np.testing.assert_array_equal(together.values[row], alone.values[row])
