"""The two kinds of models whose rows an engine refills."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from promptrl_jax.models import cache as cache_lib
from promptrl_jax.models import causal_steps, encoder_decoder_steps
from promptrl_jax.models.cache import LayerCache
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  LanguageModelConfig,
)
from promptrl_jax.sampling import decode, encoder_decoder
from promptrl_jax.sampling.prepare import DecodeParams
from promptrl_jax.sampling.slots import Rows

Layers = tuple[LayerCache, ...]


@dataclasses.dataclass(frozen=True)
class Causal:
  """Rows of S places: the left-padded prompt in the first P, token t at P + t.

  Attributes:
    config: the model.
    width: places of a block of the cache, the same for rows of all lengths.
    new_tokens: most tokens of a completion.
  """

  config: TransformerConfig
  width: int
  new_tokens: int

  def blocks(self, prompt: int) -> int:
    return -(-(prompt + self.new_tokens) // self.width)

  def empty(self, rows: int, blocks: int) -> Layers:
    c = self.config
    none = jnp.zeros((rows, 0, c.num_kv_heads, c.head_size), c.dtype)
    layer = lambda: LayerCache.in_blocks(
      none, none, blocks, self.width, c.kv_cache
    )
    return tuple(layer() for _ in range(c.num_layers))

  def read(
    self, params: DecodeParams, tokens: jax.Array, mask: jax.Array
  ) -> tuple[jax.Array, Layers]:
    logits, cached = decode.read_prompts(self.config, params, tokens, mask)
    blocks = -(-tokens.shape[1] // self.width)
    return logits, tuple(
      LayerCache.in_blocks(k, v, blocks, self.width, self.config.kv_cache)
      for k, v in cached
    )

  def step(
    self,
    params: DecodeParams,
    tokens: jax.Array,
    rows: Rows,
    drawn: jax.Array,
    cache: Layers,
  ) -> tuple[jax.Array, Layers]:
    positions = rows.lengths + drawn
    places = jnp.arange(cache[0].num_slots)[None]
    # A row that is done goes on behind its last token, or waits in the end.
    slot = jnp.minimum(rows.first + positions, places.shape[1] - 1)
    visible = (places <= slot[:, None]) & (places >= rows.first[:, None])
    if self.config.sliding_window is not None:
      visible &= places > slot[:, None] - self.config.sliding_window
    return causal_steps.decode_step(
      self.config, params.top, params.layers, tokens, positions, cache, slot,
      visible,
    )  # fmt: skip

  def context(
    self, tokens: jax.Array, mask: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    return tokens, mask


@dataclasses.dataclass(frozen=True)
class EncoderDecoder:
  """Rows with two caches: of their own tokens, and of the encoded prompt.

  In the first, place 0 has the token that the decoder starts with and place
  t + 1 token t. The prompt is left-padded in the second.

  Attributes:
    config: the model.
    width: places of a block of the prompts' cache.
    new_tokens: most tokens of a completion.
  """

  config: EncoderDecoderConfig
  width: int
  new_tokens: int

  def blocks(self, prompt: int) -> int:
    return -(-prompt // self.width)

  def empty(self, rows: int, blocks: int) -> tuple[Layers, Layers]:
    make = encoder_decoder_steps.empty_cache
    own = cache_lib.layout(self.new_tokens + 1)
    return (
      make(self.config, rows, *own),
      make(self.config, rows, blocks, self.width),
    )

  def read(
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

  def step(
    self,
    params: DecodeParams,
    tokens: jax.Array,
    rows: Rows,
    drawn: jax.Array,
    cache: tuple[Layers, Layers],
  ) -> tuple[jax.Array, tuple[Layers, Layers]]:
    own, cross = cache
    slot = jnp.minimum(drawn + 1, own[0].num_slots - 1)
    places = jnp.arange(cross[0].num_slots)
    first = rows.first[:, None]
    prompt = (places >= first) & (places < first + rows.lengths[:, None])
    logits, own = encoder_decoder_steps.decode_step(
      self.config, params.top, params.layers, tokens, own, cross, slot, prompt
    )
    return logits, (own, cross)

  def context(
    self, tokens: jax.Array, mask: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    del mask
    return encoder_decoder.context(self.config, len(tokens))


def of(
  config: LanguageModelConfig,
  prompt: int,
  new_tokens: int,
) -> Causal | EncoderDecoder:
  """The kind that a config is of, for prompts of up to so many tokens.

  Raises:
    ValueError: they and their completions exceed the context of the model.
  """
  if isinstance(config, EncoderDecoderConfig):
    return EncoderDecoder(config, cache_lib.layout(prompt)[1], new_tokens)
  longest = prompt + new_tokens
  if longest > config.max_positions:
    raise ValueError(
      f'prompt_lengths up to {prompt} and new_tokens={new_tokens} exceed the '
      f'context of {config.max_positions}'
    )
  return Causal(config, cache_lib.layout(longest)[1], new_tokens)
