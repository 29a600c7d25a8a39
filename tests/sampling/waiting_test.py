"""Prompts that wait for a prefill."""

import jax.numpy as jnp

from promptrl_jax.sampling.programs import SlotState
from promptrl_jax.sampling.prompt_cache import PromptCache
from promptrl_jax.sampling.requests import EngineConfig
from promptrl_jax.sampling.waiting import WaitingPrompts

CONFIG = EngineConfig(8, (40, 80), 4, ends=(16, 32))
SHORT = tuple(range(30))
LONG = tuple(range(100, 164))


def items(taken) -> str:
  return ''.join(one.item for one in taken)


def test_the_one_that_waits_longest_is_taken_with_others_of_its_length():
  waiting = WaitingPrompts(CONFIG)
  for prompt, item in ((SHORT, 'a'), (LONG, 'b'), (SHORT, 'c'), (SHORT, 'd')):
    waiting.add(prompt, item)
  length, end, taken = waiting.take(2)
  assert (length, end, items(taken), len(waiting)) == (40, 40, 'ac', 2)
  length, end, taken = waiting.take(2)
  assert (length, end, items(taken), len(waiting)) == (80, 80, 'b', 1)
  assert items(waiting.take(2)[2]) == 'd' and not waiting


def test_ends_are_read_together_where_the_beginnings_are_known():
  known = PromptCache(1 << 20)
  state = SlotState(jnp.zeros((1, 8)), (), None)
  known.add(state, 80, [(0, 0, LONG)])
  waiting = WaitingPrompts(CONFIG, known)
  near, far = (*LONG[:60], 1, 2), (*LONG[:32], *SHORT)
  for prompt, item in ((near, 'a'), (far, 'b'), (SHORT * 2, 'c'), (near, 'd')):
    waiting.add(prompt, item)
  length, end, taken = waiting.take(4)
  assert (length, end, items(taken)) == (80, 16, 'ad')
  assert all(one.beginning.count == len(near) - 16 for one in taken)
  assert [waiting.take(4)[1:] for _ in 'bc'] == [
    (32, [(far, 'b', taken[0].beginning._replace(count=len(far) - 32))]),
    (80, [(SHORT * 2, 'c', None)]),
  ]


def test_prompts_that_begin_alike_wait_for_the_first_of_them():
  waiting = WaitingPrompts(CONFIG, PromptCache(1 << 20))
  for prompt, item in ((LONG, 'a'), ((*LONG[:62], 1), 'b'), (SHORT * 2, 'c')):
    waiting.add(prompt, item)
  assert items(waiting.take(4)[2]) == 'ac'
  assert items(waiting.take(4)[2]) == 'b'
