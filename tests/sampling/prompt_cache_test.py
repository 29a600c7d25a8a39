"""Prefills that are kept, and forgotten."""

import jax.numpy as jnp

from promptrl_jax.sampling.programs import SlotState
from promptrl_jax.sampling.prompt_cache import PromptCache

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
