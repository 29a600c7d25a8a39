"""Decode steps of an encoder-decoder model, one decoder layer at a time.

The loop over the decoder's layers is unrolled for the reason given in
`causal_steps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from promptrl_jax.models import cache, relative_bias
from promptrl_jax.models.cache import LayerCache
from promptrl_jax.models.encoder_decoder import EncoderDecoder
from promptrl_jax.models.encoder_decoder_config import EncoderDecoderConfig
from promptrl_jax.models.encoder_decoder_layers import DecoderLayer, rms_norm
from promptrl_jax.models.kernels import rows_of


def encode(
  config: EncoderDecoderConfig, top: Any, tokens: jax.Array, mask: jax.Array
) -> jax.Array:
  """Computes the encoder's hidden states [B, P, D] of prompts [B, P].

  They are padded on either side, where `mask` [B, P] is False and the result
  is undefined.
  """
  model = EncoderDecoder(config)
  encoded: Any = model.apply(top, tokens, mask, method=EncoderDecoder.encode)
  return encoded


def decode(
  config: EncoderDecoderConfig,
  top: Any,
  layers: Sequence[Any],
  encoded: jax.Array,
  mask: jax.Array,
  tokens: jax.Array,
) -> Any:
  """Computes logits float32 [B, C, V] of tokens [B, C] with teacher forcing."""
  tree, block = top['params'], DecoderLayer(config)
  bias = relative_bias.causal(
    tree['decoder_bias'], tokens.shape[1], config.max_distance
  )
  x: Any = rows_of(tree['embedding'], tokens).astype(config.dtype)
  own_mask = jnp.ones(tokens.shape, bool)
  for layer in layers:
    x, _ = block.apply(layer, x, encoded, bias, mask, own_mask)
  return _logits(config, top, x)


def start_cache(
  config: EncoderDecoderConfig,
  layers: Sequence[Any],
  encoded: jax.Array,
  rows: int,
  slots: int,
  width: int | None = None,
) -> tuple[tuple[LayerCache, ...], tuple[LayerCache, ...]]:
  """Builds both caches before the first token.

  Args:
    rows: B * G, where G rows share a prompt.
    slots: upper limit on the tokens that the decoder will read.
    width: cache slots per block of the cross-attention cache; None: as in
      `cache.layout`.
  """
  block = DecoderLayer(config)
  prompt_size = encoded.shape[1]
  width = width or cache.layout(prompt_size)[1]
  blocks = -(-prompt_size // width)
  cross = []
  for layer in layers:
    keys_values: Any = block.apply(
      layer, encoded, method=DecoderLayer.cross_keys_values
    )
    keys, values = keys_values
    cross.append(LayerCache.in_blocks(keys, values, blocks, width))
  return empty_cache(config, rows, *cache.layout(slots)), tuple(cross)


def empty_cache(
  config: EncoderDecoderConfig, rows: int, blocks: int, width: int
) -> tuple[LayerCache, ...]:
  """Builds an empty self-attention cache, one `LayerCache` per layer."""
  empty = jnp.zeros((rows, 0, config.num_heads, config.head_size), config.dtype)
  return tuple(
    LayerCache.in_blocks(empty, empty, blocks, width)
    for _ in range(config.num_decoder_layers)
  )


def decode_step(
  config: EncoderDecoderConfig,
  top: Any,
  layers: Sequence[Any],
  tokens: jax.Array,
  own: tuple[LayerCache, ...],
  cross: tuple[LayerCache, ...],
  slot: jax.Array,
  prompt_mask: jax.Array,
) -> tuple[jax.Array, tuple[LayerCache, ...]]:
  """Runs one token per row and appends it to the self-attention cache.

  Args:
    tokens: int [B * G], the last token of each row; rows i * G to i * G + G - 1
      belong to prompt i.
    slot: int scalar or [B * G], the position of `tokens`; 0 for
      `decoder_start_token_id`.
  """
  tree, block = top['params'], DecoderLayer(config)
  slots = own[0].num_slots
  bias = relative_bias.row(
    tree['decoder_bias'], slots, slot, config.max_distance
  )
  mask = jnp.arange(slots) <= slot[..., None]
  mask = jnp.broadcast_to(mask, (tokens.shape[0], slots))
  unused = cross[0].num_slots - prompt_mask.shape[1]
  prompt_mask = jnp.pad(prompt_mask, ((0, 0), (0, unused)))
  x = rows_of(tree['embedding'], tokens)[:, None].astype(config.dtype)
  new_cache = []
  for layer, own_cache, prompt_cache in zip(layers, own, cross, strict=True):
    x, own_cache = block.apply(
      layer,
      x,
      bias,
      own_cache,
      prompt_cache,
      slot,
      mask,
      prompt_mask,
      method=DecoderLayer.decode_step,
    )
    new_cache.append(own_cache)
  return _logits(config, top, x[:, 0]), tuple(new_cache)


def _logits(config: EncoderDecoderConfig, top: Any, x: jax.Array) -> Any:
  hidden = rms_norm(x, top['params']['decoder_norm'], config.norm_eps)
  model = EncoderDecoder(config)
  return model.apply(top, hidden, method=EncoderDecoder.logits)
