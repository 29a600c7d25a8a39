"""Builds Tunix's Qwen2 with random weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import AxisType, Mesh
from tunix.models.qwen2.model import ModelConfig, Qwen2, ShardingConfig


def mesh(devices: int) -> Mesh:
  """Returns a mesh of the first devices along `tp`, which splits weights."""
  return jax.make_mesh(
    (1, devices),
    ('fsdp', 'tp'),
    axis_types=(AxisType.Auto, AxisType.Auto),
    devices=jax.devices()[:devices],
  )


def config(
  shape: dict[str, int], dtype: str, param_dtype: str, sampling: bool
) -> ModelConfig:
  """Returns the config of `Workload.shape`.

  Args:
    shape: fields of the model.
    dtype: dtype of the activations.
    param_dtype: dtype of the parameters.
    sampling: whether shardings are those of sampling or of training.
  """
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
  """Returns a model with random weights.

  Tunix initialises half of its kernels with zeros, so all are replaced.
  """
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
