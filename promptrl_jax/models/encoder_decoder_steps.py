"""An encoder-decoder with its decoder's layers apart, token after token.

A prompt goes through `encode` once; its keys and values for the decoder's
cross-attention are computed once by `start_cache`; `decode_step` then runs one
token against both caches, cache in, cache out. Unrolled over the layers of the
decoder, for the reason given in `causal_steps`.
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


def encode(
  config: EncoderDecoderConfig,
  top: Any,
  tokens: jax.Array,
  mask: jax.Array,
) -> jax.Array:
  """Hidden states [B, P, D] of prompts.

  Args:
    config: the model.
    top: its variables but those of the decoder's layers.
    tokens: int [B, P], padded on any side.
    mask: bool [B, P], False on padding, where the result means nothing.
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
  """Teacher-forced logits with a tree for each layer of the decoder.

  Args:
    config: the model.
    top, layers: as for `decode_step`.
    encoded: [B, P, D], from `encode`.
    mask: bool [B, P].
    tokens: int [B, T], as in `EncoderDecoder.decode`.

  Returns:
    float32 [B, T, V].
  """
  tree, block = top['params'], DecoderLayer(config)
  bias = relative_bias.causal(
    tree['decoder_bias'], tokens.shape[1], config.max_distance
  )
  x: Any = tree['embedding'][tokens].astype(config.dtype)
  everything = jnp.ones(tokens.shape, bool)
  for layer in layers:
    x, _ = block.apply(layer, x, encoded, bias, mask, everything)
  return _logits(config, top, x)


def start_cache(
  config: EncoderDecoderConfig,
  layers: Sequence[Any],
  encoded: jax.Array,
  rows: int,
  slots: int,
  width: int | None = None,
) -> tuple[tuple[LayerCache, ...], tuple[LayerCache, ...]]:
  """Both caches before the first token, one `LayerCache` per decoder layer.

  Args:
    config: the model.
    layers: the variables of each layer of the decoder.
    encoded: [B, P, D], from `encode`.
    rows: B * G, where G rows share a prompt.
    slots: S, most tokens that the decoder will read.
    width: slots of a block of the cross-attention; None: as `cache.layout`.

  Returns:
    The empty cache of self-attention, B * G rows of at least S slots, and the
    filled one of cross-attention, B rows of at least P slots.
  """
  block = DecoderLayer(config)
  places = encoded.shape[1]
  width = width or cache.layout(places)[1]
  blocks = -(-places // width)
  cross = []
  for layer in layers:
    found: Any = block.apply(
      layer, encoded, method=DecoderLayer.cross_keys_values
    )
    keys, values = found
    cross.append(LayerCache.in_blocks(keys, values, blocks, width))
  return empty_cache(config, rows, *cache.layout(slots)), tuple(cross)


def empty_cache(
  config: EncoderDecoderConfig, rows: int, blocks: int, width: int
) -> tuple[LayerCache, ...]:
  """A cache of nothing yet: one `LayerCache` per decoder layer."""
  none = jnp.zeros((rows, 0, config.num_heads, config.head_size), config.dtype)
  layer = lambda: LayerCache.in_blocks(none, none, blocks, width)
  return tuple(layer() for _ in range(config.num_decoder_layers))


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
  """Logits of the token after `tokens`, and the cache with `tokens` in it.

  Args:
    config: the model.
    top: its variables but those of the decoder's layers.
    layers: the variables of each: its parameters, or some of them and kernels
      under `stored`, and adapters under `lora` if it has some.
    tokens: int [B * G], the last token of each row; rows i * G to i * G + G - 1
      answer prompt i.
    own, cross: from `start_cache`; `cross` never changes.
    slot: int, the position of `tokens`: 0 for `decoder_start_token_id`; a
      scalar, or [B * G].
    prompt_mask: bool [B, P].

  Returns:
    Logits [B * G, V] and the new cache.
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
  x = tree['embedding'][tokens][:, None].astype(config.dtype)
  new_cache = []
  for layer, mine, prompt in zip(layers, own, cross, strict=True):
    x, mine = block.apply(
      layer,
      x,
      bias,
      mine,
      prompt,
      slot,
      mask,
      prompt_mask,
      method=DecoderLayer.decode_step,
    )
    new_cache.append(mine)
  return _logits(config, top, x[:, 0]), tuple(new_cache)


def _logits(config: EncoderDecoderConfig, top: Any, x: jax.Array) -> Any:
  hidden = rms_norm(x, top['params']['decoder_norm'], config.norm_eps)
  model = EncoderDecoder(config)
  return model.apply(top, hidden, method=EncoderDecoder.logits)
