"""Compiles programs of a model from shapes, for `plan` and `communication`.

No parameter is allocated: `params` are `jax.ShapeDtypeStruct`s with shardings.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from promptrl_jax.models import presets, pretrained
from promptrl_jax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  LanguageModelConfig,
)
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.parallel import sharding
from promptrl_jax.sampling import prepare
from promptrl_jax.sampling.lowering import CompiledEngine, compile_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.requests import EngineConfig
from promptrl_jax.training import optim
from promptrl_jax.training import state as state_lib
from promptrl_jax.training.rewriter import packing
from promptrl_jax.training.rewriter import update as update_lib
from promptrl_jax.training.rewriter.config import LossConfig
from promptrl_jax.training.rewriter.policy import PolicyConfig


@dataclasses.dataclass(frozen=True)
class Batch:
  """Sizes of a batch over all devices.

  Attributes:
    rows: B, the number of rows.
    prompt: P, the tokens of a prompt.
    new_tokens: N, the tokens of a completion.
  """

  rows: int
  prompt: int
  new_tokens: int


def find_config(name: str, dtype: str) -> LanguageModelConfig:
  """Returns the config of a preset or of a model folder.

  Args:
    name: name of a preset, or path of a folder.
    dtype: dtype of the parameters.

  Raises:
    ValueError: there is no such preset, or the folder holds a model that
      generates no text.
  """
  if pathlib.Path(name).is_dir():
    config = pretrained.load_config(name)
    if not isinstance(config, LanguageModelConfig):
      raise ValueError(
        f'{name} is a {config.family} model, which writes no text: expected a '
        'causal or an encoder-decoder language model'
      )
  else:
    config = presets.find(name).config
  return dataclasses.replace(config, dtype=dtype)


def param_shapes(config: LanguageModelConfig, mesh: Mesh) -> Any:
  """Returns the model's parameters as shapes in its dtype, with shardings.

  Raises:
    ValueError: the mesh does not divide a parameter.
  """
  family = pretrained.family(config.family)
  dtype = jnp.dtype(config.dtype)
  shapes = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype), family.shapes(config)
  )
  return _with_shardings(
    shapes, sharding.shardings(shapes, family.partition, mesh)
  )


def num_bytes(tree: Any) -> int:
  """Returns the bytes of a tree of arrays or shapes on one device."""
  return sum(
    math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
    for leaf in jax.tree.leaves(tree)
  )


def split_bytes(tree: Any) -> int:
  """Returns the bytes, over all devices, of the leaves that are sharded."""
  return sum(
    leaf.size * leaf.dtype.itemsize
    for leaf in jax.tree.leaves(tree)
    if not leaf.sharding.is_fully_replicated
  )


def lower_update(
  config: LanguageModelConfig,
  mesh: Mesh,
  batch: Batch,
  loss: LossConfig = LossConfig(),
  logits_chunk: int | None = None,
) -> Any:
  """Lowers one update of the rewriter, with one completion per row.

  The optimizer is AdamW without a clip: it works on each parameter where it is,
  and a clip would send no more than the norm of the gradients.

  Args:
    config: the model that is trained; its parameters have its `dtype`.
    mesh: devices, simulated or not.
    batch: sizes of the batch over all devices.
    loss: the loss and its micro-batches.
    logits_chunk: see `PolicyConfig`.

  Returns:
    `jax.stages.Lowered`; call `compile()` on it.

  Raises:
    ValueError: the mesh does not divide the model, or the rows cannot be split
      into micro-batches and over devices.
  """
  shards = mesh_lib.num_row_shards(mesh)
  if batch.rows % (loss.pieces * shards):
    raise ValueError(
      f'{batch.rows} rows cannot be split into {loss.pieces} micro-batches '
      f'on {shards} devices each: expected a multiple of '
      f'{loss.pieces * shards}'
    )
  optimizer = optim.make_optimizer(
    optim.OptimizerConfig(max_grad_norm=None), steps=1
  )
  replicated = NamedSharding(mesh, PartitionSpec())
  params = param_shapes(config, mesh)
  shardings = state_lib.state_shardings(params, optimizer, replicated)
  state = jax.eval_shape(
    lambda params: state_lib.initial_state(
      lambda _: params, optimizer, jax.random.key(0)
    ),
    params,
  )
  update = update_lib.make_update_fn(
    PolicyConfig(config, logits_chunk=logits_chunk, mesh=mesh),
    optimizer,
    loss,
    shardings,
  )
  rows = update_batch(batch)
  return update.lower(
    _with_shardings(state, shardings),
    {},
    _with_shardings(rows, jax.tree.map(lambda _: mesh_lib.rows(mesh), rows)),
    jax.ShapeDtypeStruct((), jnp.float32, sharding=replicated),
  )


def update_batch(batch: Batch) -> update_lib.UpdateBatch:
  """Packs a batch of full-length rows, each with one prompt and completion."""
  packed = packing.pack(
    [[1] * batch.prompt] * batch.rows,
    [[1] * batch.new_tokens] * batch.rows,
    range(batch.rows),
    packing.PackingConfig(
      prompt_size=batch.prompt,
      lanes=1,
      lane_size=batch.new_tokens,
      sequences=1,
      row_multiple=batch.rows,
    ),
  )
  values = jnp.asarray(
    packing.spread(packed, np.zeros((batch.rows, batch.new_tokens), np.float32))
  )
  return update_lib.UpdateBatch(packed, values, values)


def _with_shardings(tree: Any, shardings: Any) -> Any:
  """Returns a tree as shapes with the given shardings."""
  return jax.tree.map(
    lambda leaf, where: jax.ShapeDtypeStruct(
      leaf.shape, leaf.dtype, sharding=where
    ),
    tree,
    shardings,
  )


def compile_sampling(
  config: LanguageModelConfig, mesh: Mesh, params: Any, batch: Batch
) -> CompiledEngine:
  """Compiles the engine's prefill and decode, with a slot for each row."""
  rules = pretrained.family(config.family).partition
  params = prepare.abstract(params, mesh, rules)
  shapes = EngineConfig(batch.rows, (batch.prompt,), batch.new_tokens)
  return compile_engine(config, Sampling(), params, mesh, shapes)


def cache_bytes(config: LanguageModelConfig, mesh: Mesh, batch: Batch) -> int:
  """Returns the bytes of the key-value cache on one device."""
  # The decoder of an encoder-decoder also caches the keys and values of the
  # prompt, for cross-attention: as many positions as a causal model caches.
  slots = batch.prompt + batch.new_tokens
  if isinstance(config, EncoderDecoderConfig):
    heads, layers = config.num_heads, config.num_decoder_layers
  else:
    heads, layers = config.num_kv_heads, config.num_layers
  rows = batch.rows // mesh_lib.num_row_shards(mesh)
  heads = math.ceil(heads / mesh.shape['tensor'])
  head_bytes = 2 * config.head_size * jnp.dtype(config.dtype).itemsize
  return rows * slots * heads * head_bytes * layers
