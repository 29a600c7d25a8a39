"""A language model over packed rows: states that the next token is read from.

A causal model reads a row as it lies. An encoder-decoder reads the block of
prompts by its encoder and each lane by its decoder, which begins every
completion with a token of its own.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from promptrl_jax.models.attention import SharedPrefix
from promptrl_jax.models.encoder_decoder import EncoderDecoder
from promptrl_jax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  LanguageModelConfig,
)
from promptrl_jax.models.transformer import Transformer
from promptrl_jax.training.rewriter.packing import Packed


def states(
  model: LanguageModelConfig, mesh: Mesh | None, variables: Any, rows: Packed
) -> jax.Array:
  """What the next token is read from, for each token of the lanes.

  Args:
    model: its shape.
    mesh: if it splits parameters.
    variables: what the model runs with, see `lm_policy.variables`.
    rows: [R, ...].

  Returns:
    [R, S * C, D].
  """
  if isinstance(model, EncoderDecoderConfig):
    return _decoded(model, variables, rows)
  mask = visible(rows, model.sliding_window)
  found, _ = Transformer(model, mesh).apply(
    variables, rows.tokens, rows.positions, mask
  )
  return jnp.take_along_axis(found, rows.predictors[..., None], axis=1)


def visible(
  rows: Packed, sliding_window: int | None = None, both_ways: bool = False
) -> SharedPrefix:
  """Who may attend to whom: see `Packed`.

  Args:
    rows: [R, ...].
    sliding_window: how many tokens back a token sees, itself included.
    both_ways: whether a prompt is all there when it is read.
  """
  c = rows.completions
  size = rows.tokens.shape[1] - c.shape[1] * c.shape[2]
  prompts, followed = rows.segments[:, :size], rows.segments[:, size:]
  at, after = rows.positions[:, :size], rows.positions[:, size:]
  along = after.reshape(c.shape)

  def sees(query, key, query_at, key_at, ahead=False):
    same = (query[..., :, None] == key[..., None, :]) & (key > 0)[..., None, :]
    back = query_at[..., :, None] - key_at[..., None, :]
    near = True if sliding_window is None else back < sliding_window
    return same & (ahead | (back >= 0)) & near

  return SharedPrefix(
    prompts=sees(prompts, prompts, at, at, both_ways),
    prefix=sees(followed, prompts, after, at),
    lanes=sees(c, c, along, along),
  )


def _decoded(
  model: EncoderDecoderConfig, variables: Any, rows: Packed
) -> jax.Array:
  """`states` of an encoder-decoder.

  Its biases depend on how far apart tokens are, and those of one text lie side
  by side.
  """
  mask = visible(rows, both_ways=True)
  r, lanes, width = rows.completions.shape
  size = mask.prompts.shape[1]
  module = EncoderDecoder(model)
  encoded: Any = module.apply(
    variables, rows.tokens[:, :size], mask.prompts, method=EncoderDecoder.encode
  )
  # The token before a completion's first one is the last of its prompt.
  before = jnp.where(
    rows.predictors < size,
    model.decoder_start_token_id,
    jnp.take_along_axis(rows.tokens, rows.predictors, axis=1),
  )
  found: Any = module.apply(
    variables, encoded, mask.prefix, before.reshape(r * lanes, width),
    mask.lanes.reshape(r * lanes, width, width), method=EncoderDecoder.decode,
  )  # fmt: skip
  return found.reshape(r, lanes * width, -1)
