"""Each setting of the strategies that pick among samples changes the trace."""

import dataclasses
import itertools

import pytest

from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.strategies.codet import CodeTConfig, codet_with
from promptrl_jax.strategies.mbr_exec import MBRConfig, mbr_exec_with
from tests.strategies.selection_test import CHAT, play

REPLY = '\n'.join(f'assert add({x}) == {x + 2}' for x in range(20, 30))


@pytest.mark.parametrize(
  ('make', 'config', 'knobs'),
  [
    (codet_with, CodeTConfig(), {'test_share': 0.5, 'tests_per_call': 3}),
    (mbr_exec_with, MBRConfig(), {'inputs': 3, 'enough': 1}),
  ],
)
def test_every_knob_changes_the_trace(make, config, knobs, pool):
  assert knobs.keys() == {field.name for field in dataclasses.fields(config)}
  memo = MemoPool(pool)

  def trace(config):
    replies = itertools.repeat(REPLY)
    run, requests = play(
      make(config),
      *(memo, ['x', 'x + 2', '2 + x'], 8),
      tests=replies,
      config=CHAT,
    )
    return run.trace, requests

  usual = trace(config)
  for name, value in knobs.items():
    other = dataclasses.replace(config, **{name: value})
    assert trace(other) != usual, name
