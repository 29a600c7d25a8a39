"""The programs of a model, compiled from shapes: what `plan` asks the compiler.

Nothing here allocates a parameter: `params` are `jax.ShapeDtypeStruct`s that
know where they would lie.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from promptrl_jax.models import (
  attention,
  encoder_decoder,
  pretrained,
  transformer,
)
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  LanguageModelConfig,
)
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling import prepare
from promptrl_jax.sampling.lowering import CompiledEngine, compile_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.requests import EngineConfig


@dataclasses.dataclass(frozen=True)
class Batch:
  """Sizes of a batch over all devices.

  Attributes:
    rows: B.
    prompt: P, tokens of a prompt.
    new_tokens: N, tokens of a completion.
  """

  rows: int
  prompt: int
  new_tokens: int


def compile_training(
  config: LanguageModelConfig, mesh: Mesh, params: Any, batch: Batch
) -> Any:
  """The gradient of the mean log-loss, with layers computed twice."""
  config = dataclasses.replace(config, remat=True)
  b, p, n = batch.rows, batch.prompt, batch.new_tokens
  if isinstance(config, EncoderDecoderConfig):
    loss = _encoder_decoder_loss(config)
    sizes = ((b, p), (b, p), (b, n))
  else:
    loss = _causal_loss(config)
    sizes = ((b, p + n), (b, p + n))
  dtypes = (jnp.int32, jnp.bool_, jnp.int32)
  rows = [
    _row_array(mesh, size, dtype)
    for size, dtype in zip(sizes, dtypes, strict=False)
  ]
  return jax.jit(jax.grad(loss)).lower(params, *rows).compile()


def compile_sampling(
  config: LanguageModelConfig, mesh: Mesh, params: Any, batch: Batch
) -> CompiledEngine:
  """The engine's prefill and decode, with a slot for each row."""
  rules = pretrained.family(config.family).partition
  params = prepare.abstract(params, mesh, rules)
  shapes = EngineConfig(batch.rows, (batch.prompt,), batch.new_tokens)
  return compile_engine(config, Sampling(), params, mesh, shapes)


def cache_bytes(config: LanguageModelConfig, mesh: Mesh, batch: Batch) -> int:
  """Bytes of keys and values on one device while it samples."""
  # A decoder keeps those of the prompt beside its own: as many slots.
  slots = batch.prompt + batch.new_tokens
  if isinstance(config, EncoderDecoderConfig):
    heads, layers = config.num_heads, config.num_decoder_layers
  else:
    heads, layers = config.num_kv_heads, config.num_layers
  here = batch.rows // mesh_lib.num_row_shards(mesh)
  heads = math.ceil(heads / mesh.shape['tensor'])
  each = 2 * config.head_size * jnp.dtype(config.dtype).itemsize
  return here * slots * heads * each * layers


def _causal_loss(config: TransformerConfig) -> Callable[..., jax.Array]:
  def loss(params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    positions = jnp.cumsum(mask, axis=-1) - 1
    visible = attention.causal_mask(mask, config.sliding_window)
    model = transformer.Transformer(config)
    hidden: Any = model.apply(params, tokens, positions, visible)
    logits: Any = model.apply(
      params, hidden[0][:, :-1], method=transformer.Transformer.logits
    )
    return _log_loss(logits, tokens[:, 1:])

  return loss


def _encoder_decoder_loss(
  config: EncoderDecoderConfig,
) -> Callable[..., jax.Array]:
  def loss(
    params: Any, prompts: jax.Array, mask: jax.Array, answers: jax.Array
  ) -> jax.Array:
    # The first token stands for the one that the decoder starts with.
    model = encoder_decoder.EncoderDecoder(config)
    logits: Any = model.apply(params, prompts, mask, answers)
    return _log_loss(logits[:, :-1], answers[:, 1:])

  return loss


def _log_loss(logits: jax.Array, targets: jax.Array) -> jax.Array:
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
  return jnp.mean(losses)


def _row_array(
  mesh: Mesh, shape: tuple[int, ...], dtype: Any
) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, dtype, sharding=mesh_lib.rows(mesh))
