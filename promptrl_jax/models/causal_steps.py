"""Forward passes and decode steps of a causal model, one layer at a time.

The loop over layers is unrolled, and each layer updates its own cache in place.
A scan over layers would copy the stacked cache and the weights of each layer
once per token.
"""

from __future__ import annotations

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
  model, block = Transformer(config), Block(config)
  angles = rope.of_positions(config, positions)
  x: Any = model.apply(top, tokens, positions, method=Transformer.embed)
  cached = []
  for i, layer in enumerate(layers):
    x, keys_values = block.apply(
      layer,
      x,
      angles,
      mask,
      config.is_global(i),
      None if before is None else before[i],
    )
    cached.append(keys_values)
  return x, cached


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
  model, block = Transformer(config), Block(config)
  angles = rope.of_positions(config, positions)
  x: Any = model.apply(
    top, tokens[:, None], positions[:, None], method=Transformer.embed
  )
  new_cache = []
  for i, (layer, layer_cache) in enumerate(zip(layers, cache, strict=True)):
    is_global = config.is_global(i)
    x, layer_cache = block.apply(
      layer,
      x,
      attention.of_layer(angles, is_global),
      layer_cache,
      slot,
      attention.of_layer(mask, is_global),
      method=Block.decode_step,
    )
    new_cache.append(layer_cache)
  return logits(config, top, x[:, 0]), tuple(new_cache)


def logits(config: TransformerConfig, top: Any, x: jax.Array) -> Any:
  """Returns the logits [..., V] of hidden states [..., D] from `read`."""
  head = top.get('stored', {}).get(
    'embedding' if config.tie_embeddings else 'lm_head'
  )
  hidden = norm(config, threads_of(head)).apply(
    {'params': top['params']['final_norm']}, x
  )
  return Transformer(config).apply(top, hidden, method=Transformer.logits)
