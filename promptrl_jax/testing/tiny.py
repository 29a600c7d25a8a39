"""A tiny causal language model, its tokenizer and tasks, for tests."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.models import tokenizer as tokenizer_lib
from promptrl_jax.models import transformer
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.types import Task, UnitTests

CONFIG = TransformerConfig(
  vocab_size=300,
  hidden_size=32,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_size=8,
  mlp_size=48,
  max_positions=128,
)


@functools.cache
def params(config: TransformerConfig = CONFIG, seed: int = 0) -> Any:
  """Returns random parameters whose next-token distributions are peaked.

  The values come from numpy, because compiling Flax's `init` takes longer than
  most tests.
  """
  rng = np.random.default_rng(seed)

  def draw(path: Any, leaf: jax.ShapeDtypeStruct) -> jax.Array:
    name = path[-1].key
    if name == 'scale' or name.endswith('bias'):
      values = np.full(leaf.shape, 1.5 if name == 'scale' else 0.0)
    else:
      stddev = 0.03 if leaf.ndim == 2 else 0.08
      stddev *= 2 if name in ('qkv', 'gate_up') else 1
      values = rng.normal(0, stddev, leaf.shape)
    return jnp.asarray(values, leaf.dtype)

  return jax.tree_util.tree_map_with_path(draw, transformer.shapes(config))


def tokenizer() -> tokenizer_lib.Tokenizer:
  """Trains a byte-level tokenizer with the vocabulary size of `CONFIG`."""
  texts = [
    'def add(a, b):\n  return a + b\n',
    'Write a function to add numbers',
  ]
  return tokenizer_lib.train(texts, CONFIG.vocab_size)


def with_tests(task: Task, tests: Sequence[str]) -> Task:
  """Returns a programming task with other tests."""
  assert isinstance(task.checker, UnitTests)
  checker = dataclasses.replace(task.checker, tests=tuple(tests))
  return dataclasses.replace(task, checker=checker)


def tasks(count: int = 6, split: str = 'train') -> tuple[Task, ...]:
  """Returns `count` tasks; task k asks for a function that adds k."""
  return tuple(
    Task(
      task_id=f'tiny/{split}/{k}',
      statement=f'Write a function to add {k} to a number.',
      checker=UnitTests(
        entry_point='add',
        signature='def add(x):',
        tests=tuple(f'assert add({x}) == {x + k}' for x in (1, 5, 10)),
      ),
      reference=f'def add(x):\n  return x + {k}',
      split=split,
    )
    for k in range(count)
  )
