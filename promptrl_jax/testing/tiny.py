"""A tiny causal language model, its tokenizer and tasks, for tests."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from promptrl_jax.models import tokenizer as tokenizer_lib
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.transformer import Transformer
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
  """Returns random parameters whose next-token distributions are peaked."""
  tree = _init(config, jax.random.key(seed))
  return jax.tree.map(lambda x: x * 8 if x.ndim > 2 else x * 1.5, tree)


@functools.partial(jax.jit, static_argnums=0)
def _init(config: TransformerConfig, key: jax.Array) -> Any:
  tokens = jnp.zeros((1, 2), jnp.int32)
  mask = jnp.ones((1, 2, 2), bool)
  return Transformer(config).init(key, tokens, tokens, mask)


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
