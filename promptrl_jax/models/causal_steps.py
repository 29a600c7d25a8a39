"""Forward passes and decode steps of a causal model, one layer at a time.

The loop over layers is unrolled, and each layer updates its own cache in place.
A scan over layers would copy the stacked cache and the weights of each layer
once per token. Layers that are alike are traced once: `inline` puts what was
traced into the program, without a call.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax

from promptrl_jax.models import attention, rope
from promptrl_jax.models.cache import LayerCache
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.kernels import threads_of
from promptrl_jax.models.transformer import Block, Transformer, norm


def read(
  config: TransformerConfig,
  top: Any,
  layers: Sequence[Any],
  tokens: jax.Array,
  positions: jax.Array,
  mask: jax.Array | attention.PromptMask | attention.ByLayer,
  before: Sequence[tuple[jax.Array, jax.Array]] | None = None,
) -> tuple[jax.Array, list[tuple[jax.Array, jax.Array]]]:
  """Runs full sequences as `Transformer.__call__`, with one tree per layer.

  Args:
    top: variables of the model outside of its layers.
    layers: variables of each layer: parameters, kernels in the collection
      `stored` and, optionally, adapters in the collection `lora`.
    before: keys and values of each layer, [B, any, K, H], of tokens that were
      read before these.

  Returns:
    Hidden states [B, S, D] before the last norm, and the keys and values of
    each layer, [B, any + S, K, H].
  """
  angles = rope.of_positions(config, positions)
  x: Any = Transformer(config).apply(
    top, tokens, positions, method=Transformer.embed
  )
  cached = []
  for i, layer in enumerate(layers):
    earlier = None if before is None else before[i]
    x, keys_values = _read_layer(
      config, config.is_global(i), layer, x, angles, mask, earlier
    )
    cached.append(keys_values)
  return x, cached


_traced_once = functools.partial(jax.jit, static_argnums=(0, 1), inline=True)


@_traced_once
def _read_layer(
  config: TransformerConfig, is_global: bool | None, layer: Any, *args: Any
) -> Any:
  x, angles, mask, before = args
  return Block(config).apply(layer, x, angles, mask, is_global, before)


def decode_step(
  config: TransformerConfig,
  top: Any,
  layers: Sequence[Any],
  tokens: jax.Array,
  positions: jax.Array,
  cache: tuple[LayerCache, ...],
  slot: jax.Array,
  mask: jax.Array | attention.ByLayer,
) -> tuple[jax.Array, tuple[LayerCache, ...]]:
  """Runs one token per row and appends it to the cache.

  Args:
    tokens: int [B], the last token of each row.
    slot: int scalar or [B], the cache slot for the keys and values of `tokens`.
    mask: bool [B, M], cache slots that may be attended to, including `slot`;
      for each kind of layer if the model has two.

  Returns:
    Logits [B, V] of the next token, and the new cache.
  """
  angles = rope.of_positions(config, positions)
  x: Any = Transformer(config).apply(
    top, tokens[:, None], positions[:, None], method=Transformer.embed
  )
  new_cache = []
  for i, (layer, layer_cache) in enumerate(zip(layers, cache, strict=True)):
    x, layer_cache = _decode_layer(
      config, config.is_global(i), layer, x, angles, layer_cache, slot, mask
    )
    new_cache.append(layer_cache)
  return logits(config, top, x[:, 0]), tuple(new_cache)


@_traced_once
def _decode_layer(
  config: TransformerConfig, is_global: bool | None, layer: Any, *args: Any
) -> Any:
  x, angles, cache, slot, mask = args
  angles, mask = (attention.of_layer(y, is_global) for y in (angles, mask))
  return Block(config).apply(
    layer, x, angles, cache, slot, mask, method=Block.decode_step
  )


def logits(config: TransformerConfig, top: Any, x: jax.Array) -> Any:
  """Returns the logits [..., V] of hidden states [..., D] from `read`."""
  head = top.get('stored', {}).get(
    'embedding' if config.tie_embeddings else 'lm_head'
  )
  hidden = norm(config, threads_of(head)).apply(
    {'params': top['params']['final_norm']}, x
  )
  return Transformer(config).apply(top, hidden, method=Transformer.logits)
