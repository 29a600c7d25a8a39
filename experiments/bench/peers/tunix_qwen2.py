"""Qwen2 of Tunix with random weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import AxisType, Mesh
from tunix.models.qwen2.model import ModelConfig, Qwen2, ShardingConfig


def mesh(devices: int) -> Mesh:
  """The first devices along `tp`, over which weights are split."""
  return jax.make_mesh(
    (1, devices),
    ('fsdp', 'tp'),
    axis_types=(AxisType.Auto, AxisType.Auto),
    devices=jax.devices()[:devices],
  )


def config(
  shape: dict[str, int], dtype: str, param_dtype: str, sampling: bool
) -> ModelConfig:
  """The config of `Workload.shape`; `sampling` shards for that alone."""
  return ModelConfig(
    num_layers=shape['num_layers'],
    vocab_size=shape['vocab_size'],
    embed_dim=shape['hidden_size'],
    hidden_dim=shape['mlp_size'],
    num_heads=shape['num_heads'],
    head_dim=shape['head_size'],
    num_kv_heads=shape['num_kv_heads'],
    rope_theta=10_000,
    norm_eps=1e-6,
    shd_config=ShardingConfig.get_default_sharding(is_sampling=sampling),
    dtype=jnp.dtype(dtype),
    param_dtype=jnp.dtype(param_dtype),
  )


def make_model(config: ModelConfig, mesh: Mesh) -> Qwen2:
  """A model on a mesh. Half of Tunix's own kernels start as zeros."""
  model = Qwen2(config, rngs=nnx.Rngs(params=0))
  keys = nnx.Rngs(1)
  state = nnx.state(model)
  state = jax.tree.map(
    lambda leaf, sharding: jax.device_put(
      (0.02 * jax.random.normal(keys(), leaf.shape)).astype(leaf.dtype),
      sharding,
    ),
    state,
    nnx.get_named_sharding(state, mesh),
  )
  nnx.update(model, state)
  return model
