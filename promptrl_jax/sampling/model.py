"""One interface to causal and encoder-decoder models for every sampler.

The engine, the scorer and the reference sampler call a `Model` and never ask
which kind it is. A model owns the layout of its KV cache, one row of blocks per
batch slot; everything else of a slot is in `InputBatch` (on the host) and in
`programs.SlotState`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from promptrl_jax.models import attention, causal_steps, encoder_decoder_steps
from promptrl_jax.models import cache as cache_lib
from promptrl_jax.models.cache import LayerCache
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  LanguageModelConfig,
)
from promptrl_jax.sampling.prepare import DecodeParams

Layers = tuple[LayerCache, ...]


@struct.dataclass
class InputBatch:
  """The sequence in each batch slot; a slot is free if generated >= max_tokens.

  Attributes:
    prompt_start: int32 [B], index of the first prompt token in the cache.
    prompt_lengths: int32 [B], tokens of the prompt.
    generated: int32 [B], tokens generated so far.
    seeds: uint32 [B]; token t of slot b uses fold_in(key(seeds[b]), t).
  """

  prompt_start: Any
  prompt_lengths: Any
  generated: Any
  max_tokens: Any
  temperature: Any
  top_p: Any
  seeds: Any

  @classmethod
  def free(cls, slots: int) -> InputBatch:
    """Free slots, as arrays of the host."""
    return cls(
      prompt_start=np.zeros(slots, np.int32),
      prompt_lengths=np.zeros(slots, np.int32),
      generated=np.zeros(slots, np.int32),
      max_tokens=np.zeros(slots, np.int32),
      temperature=np.zeros(slots, np.float32),
      top_p=np.ones(slots, np.float32),
      seeds=np.zeros(slots, np.uint32),
    )


@dataclasses.dataclass(frozen=True)
class CausalModel:
  """A decoder-only model; prompt and completion share one cache.

  The left-padded prompt takes the first P positions of a row, and token t of
  the completion position P + t.

  Attributes:
    config: architecture, padding token and stop tokens.
    width: positions of a cache block, equal for rows of all lengths.
  """

  config: TransformerConfig
  width: int
  new_tokens: int

  def blocks(self, prompt: int) -> int:
    """Number of cache blocks for prompts of up to `prompt` tokens."""
    return -(-(prompt + self.new_tokens) // self.width)

  def empty_cache(self, rows: int, blocks: int) -> Layers:
    """A zero cache; every leaf has the rows as its first axis."""
    c = self.config
    none = jnp.zeros((rows, 0, c.num_kv_heads, c.head_size), c.dtype)
    layer = lambda: LayerCache.in_blocks(
      none, none, blocks, self.width, c.kv_cache
    )
    return tuple(layer() for _ in range(c.num_layers))

  def prefill(
    self,
    params: DecodeParams,
    tokens: jax.Array,
    mask: jax.Array,
    before: jax.Array | None = None,
  ) -> tuple[jax.Array, Layers]:
    """Reads left-padded prompts [A, P], where `mask` is False on padding.

    Args:
      before: keys and values of their first tokens, padding included, which
        are not read again: [A, L, 2, any, K, H], of the type of the cache.

    Returns:
      Logits [A, V] of the first new token, and a cache of A rows with only the
      blocks that the prompts need.
    """
    x, cached = self._read(params, tokens, mask, before)
    logits = causal_steps.logits(self.config, params.top, x[:, -1])
    blocks = -(-tokens.shape[1] // self.width)
    return logits, tuple(
      LayerCache.in_blocks(k, v, blocks, self.width, self.config.kv_cache)
      for k, v in cached
    )

  def decode_step(
    self,
    params: DecodeParams,
    tokens: jax.Array,
    batch: InputBatch,
    generated: jax.Array,
    cache: Layers,
  ) -> tuple[jax.Array, Layers]:
    """Reads `tokens` [B], the last token of each slot.

    `generated` [B] is the number of tokens of each slot before them. A finished
    slot writes behind its last token, where nothing attends.

    Returns:
      Logits [B, V] of the next token, and the updated cache.
    """
    positions = batch.prompt_lengths + generated
    places = jnp.arange(cache[0].num_slots)[None]
    # A finished row writes behind its last token, or waits at the end.
    slot = jnp.minimum(batch.prompt_start + positions, places.shape[1] - 1)
    behind = (places <= slot[:, None]) & (places >= batch.prompt_start[:, None])

    def seen(window: int | None) -> jax.Array:
      if window is None:
        return behind
      return behind & (places > slot[:, None] - window)

    return causal_steps.decode_step(
      self.config,
      params.top,
      params.layers,
      tokens,
      positions,
      cache,
      slot,
      attention.by_layer(self.config, seen),
    )

  def completion_logits(
    self,
    params: DecodeParams,
    prompt_tokens: jax.Array,
    prompt_mask: jax.Array,
    tokens: jax.Array,
    mask: jax.Array,
  ) -> jax.Array:
    """Teacher-forced logits [B, N, V] of each of the `tokens` [B, N]."""
    sequence = jnp.concatenate([prompt_tokens, tokens], axis=1)
    valid = jnp.concatenate([prompt_mask, mask], axis=1)
    x, _ = self._read(params, sequence[:, :-1], valid[:, :-1])
    first = prompt_tokens.shape[1] - 1
    return causal_steps.logits(self.config, params.top, x[:, first:])

  def _read(
    self,
    params: DecodeParams,
    tokens: jax.Array,
    mask: jax.Array,
    before: jax.Array | None = None,
  ) -> tuple[jax.Array, list[tuple[jax.Array, jax.Array]]]:
    """Hidden states [B, S, D], and each layer's keys and values."""
    known = 0 if before is None else before.shape[3]
    positions = jnp.maximum(jnp.cumsum(mask, axis=-1) - 1, 0)
    visible = attention.by_layer(
      self.config,
      functools.partial(attention.prompt_mask, mask, mask.shape[1] - known),
    )
    return causal_steps.read(
      self.config,
      params.top,
      params.layers,
      tokens[:, known:],
      positions[:, known:],
      visible,
      None if before is None else self._known(before),
    )

  def _known(self, before: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
    numbers = cache_lib.wide(before).astype(self.config.dtype)
    layers = range(self.config.num_layers)
    return [(numbers[:, i, 0], numbers[:, i, 1]) for i in layers]

  def context(
    self, tokens: jax.Array, mask: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Tokens [A, any] and mask that the repetition penalty starts from."""
    return tokens, mask


@dataclasses.dataclass(frozen=True)
class EncoderDecoderModel:
  """An encoder-decoder; a row has a cache of its own and one of its prompt.

  Position 0 of a row's own cache holds the token that the decoder starts with
  and position t + 1 token t of the completion. The cross-attention cache holds
  the encoded, left-padded prompt.

  The methods are those of `CausalModel`.

  Attributes:
    width: positions of a block of the cross-attention cache.
  """

  config: EncoderDecoderConfig
  width: int
  new_tokens: int

  def blocks(self, prompt: int) -> int:
    return -(-prompt // self.width)

  def empty_cache(self, rows: int, blocks: int) -> tuple[Layers, Layers]:
    empty = encoder_decoder_steps.empty_cache
    own = cache_lib.layout(self.new_tokens + 1)
    return (
      empty(self.config, rows, *own),
      empty(self.config, rows, blocks, self.width),
    )

  def prefill(
    self, params: DecodeParams, tokens: jax.Array, mask: jax.Array
  ) -> tuple[jax.Array, tuple[Layers, Layers]]:
    config, top, layers = self.config, params.top, params.layers
    encoded = encoder_decoder_steps.encode(config, top, tokens, mask)
    own, cross = encoder_decoder_steps.start_cache(
      config, layers, encoded, len(tokens), self.new_tokens + 1, self.width
    )
    first = jnp.full(len(tokens), config.decoder_start_token_id, jnp.int32)
    logits, own = encoder_decoder_steps.decode_step(
      config, top, layers, first, own, cross, jnp.int32(0), mask
    )
    return logits, (own, cross)

  def decode_step(
    self,
    params: DecodeParams,
    tokens: jax.Array,
    batch: InputBatch,
    generated: jax.Array,
    cache: tuple[Layers, Layers],
  ) -> tuple[jax.Array, tuple[Layers, Layers]]:
    own, cross = cache
    slot = jnp.minimum(generated + 1, own[0].num_slots - 1)
    places = jnp.arange(cross[0].num_slots)
    first = batch.prompt_start[:, None]
    end = first + batch.prompt_lengths[:, None]
    logits, own = encoder_decoder_steps.decode_step(
      self.config,
      params.top,
      params.layers,
      tokens,
      own,
      cross,
      slot,
      (places >= first) & (places < end),
    )
    return logits, (own, cross)

  def completion_logits(
    self,
    params: DecodeParams,
    prompt_tokens: jax.Array,
    prompt_mask: jax.Array,
    tokens: jax.Array,
    mask: jax.Array,
  ) -> jax.Array:
    # The decoder sees no padding before a token: padding follows the text.
    del mask
    first, _ = self.context(prompt_tokens, prompt_mask)
    before = jnp.concatenate([first, tokens[:, :-1]], axis=1)
    encoded = encoder_decoder_steps.encode(
      self.config, params.top, prompt_tokens, prompt_mask
    )
    return encoder_decoder_steps.decode(
      self.config, params.top, params.layers, encoded, prompt_mask, before
    )

  def context(
    self, tokens: jax.Array, mask: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    # As in transformers: the encoder's input is answered, not repeated.
    del mask
    start = self.config.decoder_start_token_id
    first = jnp.full((len(tokens), 1), start, jnp.int32)
    return first, jnp.ones(first.shape, bool)


Model = CausalModel | EncoderDecoderModel


def make_model(
  config: LanguageModelConfig, prompt: int, new_tokens: int
) -> Model:
  """The `Model` for prompts of up to P and completions of up to N tokens.

  Raises:
    ValueError: P + N exceeds the context window of the model.
  """
  longest = prompt + new_tokens
  if longest > config.max_positions:
    raise ValueError(
      f'prompt_lengths up to {prompt} and new_tokens={new_tokens} exceed the '
      f'context of {config.max_positions}'
    )
  if isinstance(config, EncoderDecoderConfig):
    return EncoderDecoderModel(config, cache_lib.layout(prompt)[1], new_tokens)
  return CausalModel(config, cache_lib.layout(longest)[1], new_tokens)
