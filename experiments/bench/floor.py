"""The least time in which this machine could generate tokens."""

from __future__ import annotations

import functools

import jax.numpy as jnp

from experiments.bench.rates import memory_rate, packed_rate, product_rate
from promptrl_jax.models.config import TransformerConfig

_RUNS = 3
_BITS = {'int8': 8, 'gguf': 4}
# Bytes of a weight; those of packed ones have the scale of their block, too.
_BYTES = {'float32': 4.0, 'bfloat16': 2.0, 'int8': 17 / 16, 'gguf': 5 / 8}


def step_bytes(
  config: TransformerConfig, rows: int, length: float, dtype: str
) -> float:
  """Returns the bytes that a decoding step reads: weights and cache.

  Args:
    config: the model; the cache has the dtype of its activations.
    rows: rows of the batch.
    length: cached positions of each row.
    dtype: of the weights: `float32`, `bfloat16`, `int8` or `gguf` (4 bits).
  """
  weights = config.num_matmul_params * _BYTES[dtype]
  slot = 2 * config.num_layers * config.num_kv_heads * config.head_size
  return weights + rows * length * slot * jnp.dtype(config.dtype).itemsize


def floor_s(
  config: TransformerConfig,
  dtype: str,
  slots: int,
  prompt_tokens: int,
  new_tokens: int,
  length: float = 0.0,
) -> float:
  """Returns the seconds that some tokens take at least.

  All products run at the rate of the fastest large product of the format on
  this machine, which is measured once in a process. If that is longer, all
  weights are read once for each step of as many slots, and the cache with them.

  Args:
    config: of the model.
    dtype: of the weights, as in `step_bytes`.
    slots: rows that decode together.
    prompt_tokens, new_tokens: of all rows.
    length: cached positions of each row, on average; 0 leaves the cache out.
  """
  product_s = 2 * config.num_matmul_params / _product_rate(dtype)
  read_s = step_bytes(config, slots, length, dtype) / _copy_rate()
  steps = new_tokens / slots
  return product_s * prompt_tokens + max(product_s * new_tokens, read_s * steps)


@functools.cache
def _product_rate(dtype: str) -> float:
  """Operations per second of large products with weights of a format."""
  if dtype in _BITS:
    return max(_product_rate('bfloat16'), packed_rate(_BITS[dtype], _RUNS))
  return product_rate(dtype, _RUNS)


@functools.cache
def _copy_rate() -> float:
  return memory_rate(_RUNS)
