"""Qwen2-shaped models with random weights, for benchmarks."""

from __future__ import annotations

import jax

from promptrl_jax.models import transformer
from promptrl_jax.models.config import TransformerConfig

_COMMON = {
  'family': 'qwen2',
  'head_size': 64,
  'max_positions': 2048,
  'norm_eps': 1e-6,
  'qkv_bias': True,
  'tie_embeddings': False,
  'eos_token_ids': (),
}
SIZES = {
  'small': TransformerConfig(
    vocab_size=4096,
    hidden_size=256,
    num_layers=4,
    num_heads=4,
    num_kv_heads=4,
    mlp_size=704,
    **_COMMON,
  ),
  'large': TransformerConfig(
    vocab_size=32000,
    hidden_size=768,
    num_layers=12,
    num_heads=12,
    num_kv_heads=12,
    mlp_size=2048,
    **_COMMON,
  ),
}

# Fields of the config that the drivers of peers receive.
SHAPE = (
  'vocab_size',
  'hidden_size',
  'num_layers',
  'num_heads',
  'num_kv_heads',
  'head_size',
  'mlp_size',
  'max_positions',
)


def random_params(config: TransformerConfig, dtype: str):
  """Returns the weights of `normal` for key 0."""
  return jax.jit(lambda key: normal(config, key, dtype))(jax.random.key(0))


def normal(config: TransformerConfig, key: jax.Array, dtype: str = 'float32'):
  """Returns normal weights of scale 0.02 in a tree with the root `params`."""
  leaves, tree = jax.tree.flatten(transformer.shapes(config))
  keys = jax.random.split(key, len(leaves))
  return tree.unflatten(
    [
      (0.02 * jax.random.normal(k, leaf.shape)).astype(dtype)
      for k, leaf in zip(keys, leaves, strict=True)
    ]
  )
