"""Times Tunix's own sampler on JAX; see `workload` for input and output.

On one device, whose products XLA spreads over the cores, and with weights split
over two. Rows are not split: Tunix constrains no activation on CPU devices, and
with copies of the weights both devices do all the work.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import workload
from flax import nnx
from jax.sharding import AxisType
from tunix.generate.sampler import CacheConfig, Sampler
from tunix.models.qwen2.model import ModelConfig, Qwen2, ShardingConfig


class Ids:
  """A tokenizer for prompts that are lists of ids; no id ends or pads."""

  def encode(self, ids):
    return ids

  def decode(self, ids):
    return ''

  def bos_id(self):
    return None

  def eos_id(self):
    return -2

  def pad_id(self):
    return -1


def make_sampler(work: workload.Workload, dtype: str, devices: int) -> Sampler:
  """A sampler of random weights; its cache holds the work and no more."""
  shape = work.shape
  config = ModelConfig(
    num_layers=shape['num_layers'],
    vocab_size=shape['vocab_size'],
    embed_dim=shape['hidden_size'],
    hidden_dim=shape['mlp_size'],
    num_heads=shape['num_heads'],
    head_dim=shape['head_size'],
    num_kv_heads=shape['num_kv_heads'],
    rope_theta=10_000,
    norm_eps=1e-6,
    shd_config=ShardingConfig.get_default_sharding(is_sampling=True),
    dtype=jnp.dtype(dtype),
    param_dtype=jnp.dtype(dtype),
  )
  model = Qwen2(config, rngs=nnx.Rngs(params=0))
  mesh = jax.make_mesh(
    (1, devices),
    ('fsdp', 'tp'),
    axis_types=(AxisType.Auto, AxisType.Auto),
    devices=jax.devices()[:devices],
  )
  # Half of its kernels start as zeros.
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
  cache = CacheConfig(
    cache_size=work.prompt + work.new,
    num_layers=config.num_layers,
    num_kv_heads=config.num_kv_heads,
    head_dim=config.head_dim,
  )
  return Sampler(model, Ids(), cache)


def main() -> None:
  work = workload.read()
  jax.config.update('jax_platforms', 'cpu')
  jax.config.update('jax_num_cpu_devices', 2)
  for dtype, devices in itertools.product(work.dtypes, (1, 2)):
    sampler = make_sampler(work, dtype, devices)
    seeds = itertools.count()

    def sample(prompts, sampler=sampler, seeds=seeds):
      return sampler(
        prompts,
        max_generation_steps=work.new,
        max_prompt_length=work.prompt,
        temperature=1.0,
        top_p=1.0,  # without it, Tunix is greedy
        seed=next(seeds),
      ).tokens

    workload.measure(work, 'tunix', sample, dtype=dtype, devices=devices)


if __name__ == '__main__':
  main()
