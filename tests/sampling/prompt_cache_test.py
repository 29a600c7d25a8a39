"""Prefills that are kept, and forgotten."""

import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models.cache import LayerCache
from promptrl_jax.sampling.programs import SlotState
from promptrl_jax.sampling.prompt_cache import Beginning, PromptCache

STATE = SlotState(logits=jnp.zeros((1, 256)), cache=(), seen=None)
SIZE = STATE.logits.nbytes


def test_a_prompt_that_lies_in_two_prefills_goes_with_them_in_any_order():
  cache = PromptCache(2 * SIZE)
  cache.add(STATE, 8, [(0, 0, (1,)), (1, 0, (2,))])
  cache.add(STATE, 8, [(0, 0, (1,))])
  (place,) = cache.places((1,)).values()
  assert place.prefill == 1
  cache.state(0)  # So that the newer one is dropped first.
  cache.add(STATE, 8, [(0, 0, (3,))])
  assert set(cache.places((2,))) == {1} and not cache.places((1,))
  cache.add(STATE, 8, [(0, 0, (4,))])
  assert not cache.places((2,))
  assert set(cache.places((3,))) == set(cache.places((4,))) == {0}


def test_what_is_too_large_is_not_kept():
  cache = PromptCache(SIZE - 1)
  cache.add(STATE, 8, [(0, 0, (1,))])
  assert not cache.places((1,))


def test_beginnings_are_found_until_their_prefill_is_forgotten():
  cache = PromptCache(SIZE)
  prompt = tuple(range(40))
  cache.add(STATE, 48, [(0, 2, prompt)])
  place = cache.beginning((*prompt[:32], 99), 20)
  assert (place.row, place.first, place.padded) == (2, 8, 48)
  assert cache.beginning((*prompt[:31], 99), 20) is None  # of 32 tokens
  assert cache.beginning((*prompt[:31], 99), 16) == place
  cache.add(STATE, 48, [(0, 1, (*prompt[:16], *prompt))])
  assert cache.beginning(prompt, 17) is None
  assert cache.beginning(prompt, 16).row == 1
  cache.clear()
  assert cache.beginning(prompt, 16) is None


@pytest.mark.parametrize('kind', ['plain', 'bfloat16'])
def test_copies_hold_the_first_tokens_of_prompts_behind_padding(kind):
  rng = np.random.default_rng(0)
  draw = lambda: jnp.asarray(rng.normal(size=(3, 40, 2, 16)), jnp.bfloat16)
  layers = [[x.astype(jnp.float32) for x in (draw(), draw())] for _ in 'ab']
  stored = tuple(LayerCache.in_blocks(*kv, 3, 16, kind) for kv in layers)
  cache = PromptCache(1 << 20)
  prompts = [tuple(range(i, i + size)) for i, size in enumerate((40, 36, 34))]
  state = SlotState(jnp.zeros(1), stored, None)
  cache.add(state, 40, [(0, i, prompt) for i, prompt in enumerate(prompts)])
  place = cache.beginning(prompts[1], 31)
  assert place.row == 1 and place.first == 4
  copies = cache.copies(36, [None, Beginning(place, 31)])
  assert copies.shape == (2, 2, 2, 36, 2, 16) and not copies[0].any()
  numbers = copies
  if kind == 'bfloat16':
    numbers = copies.view(jnp.bfloat16).astype(np.float32)
  for layer, pair in zip(numbers[1], layers, strict=True):
    for found, whole in zip(layer, pair, strict=True):
      np.testing.assert_array_equal(found[5:], whole[1, 4:35])
      assert not found[:5].any()


def test_what_is_in_use_is_kept_and_leaves_newer_ones_no_room():
  cache = PromptCache(2 * SIZE)
  cache.add(STATE, 8, [(0, 0, (1,))])
  cache.add(STATE, 8, [(0, 0, (2,))])
  cache.hold([0, 1])
  cache.add(STATE, 8, [(0, 0, (3,))])
  assert cache.places((1,)) and cache.places((2,)) and not cache.places((3,))
  cache.release(1)
  cache.add(STATE, 8, [(0, 0, (4,))])
  assert cache.places((1,)) and not cache.places((2,)) and cache.places((4,))
  cache.hold([])
  cache.add(STATE, 8, [(0, 0, (5,))])
  assert not cache.places((1,))
