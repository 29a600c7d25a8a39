import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models.cache import LayerCache
from promptrl_jax.models.transformer import attend


@pytest.mark.parametrize('free', [3, 90, 200])  # one block, two and three
def test_attention_over_written_slots_is_that_over_the_sequence(free):
  b, prompt, k, g, h = 2, 5, 2, 3, 4
  rng = np.random.default_rng(0)
  normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  keys, values = normal(b, prompt + free, k, h), normal(b, prompt + free, k, h)
  cache = LayerCache.from_prefill(keys[:, :prompt], values[:, :prompt], free)
  assert cache.num_slots >= prompt + free
  write = jax.jit(LayerCache.write)
  for slot in range(prompt, prompt + free):
    one = slice(slot, slot + 1)
    cache = write(cache, keys[:, one], values[:, one], slot)
  mask = jnp.asarray(rng.random((b, prompt + free)) < 0.5).at[:, 0].set(True)
  queries = normal(b, 1, k, g, h)
  expected = attend(queries, keys, values, mask[:, None])[:, 0]
  unused = ((0, 0), (0, cache.num_slots - mask.shape[1]))
  result = cache.attend(queries[:, 0], jnp.pad(mask, unused))
  np.testing.assert_allclose(result, expected, atol=1e-5)
