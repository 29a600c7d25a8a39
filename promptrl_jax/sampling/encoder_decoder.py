"""Answers of an encoder-decoder: one encoding and one while_loop, jitted.

The counterpart of `decode` and `score`. The decoder starts in slot 0 of its own
cache for every row, so prompts may be padded on any side.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh

from promptrl_jax.models import encoder_decoder_steps
from promptrl_jax.models.cache import LayerCache
from promptrl_jax.models.encoder_decoder_config import EncoderDecoderConfig
from promptrl_jax.sampling import loop, methods
from promptrl_jax.sampling.decode import jit_rows
from promptrl_jax.sampling.prepare import DecodeParams


@struct.dataclass
class _LoopState:
  drawn: loop.Drawn
  cache: tuple[LayerCache, ...]


def generate(
  config: EncoderDecoderConfig,
  method: methods.Sampling,
  new_tokens: int,
  params: DecodeParams,
  tokens: jax.Array,
  mask: jax.Array,
  temperature: jax.Array,
  seeds: jax.Array,
  limits: jax.Array,
  top_p: jax.Array | None = None,
) -> loop.Completions:
  """Answers prompts; pure, jitted by `make_generate_fn`.

  Args:
    config: the model.
    method: filters of the sampled distribution.
    new_tokens: N, most tokens that any row may get.
    params: parameters of the model, from `prepare`.
    tokens: int [B, P], prompts.
    mask: bool [B, P]; a row without any True is padding and ends at once.
    temperature: [B], 0 for greedy.
    seeds: uint32 [B]; token t of row b uses fold_in(key(seeds[b]), t).
    limits: int [B], most new tokens of each row.
    top_p: [B], nucleus mass; None: 1 for every row.

  Returns:
    Completions of shape [B, N]; `decoder_start_token_id` is not part of them.
  """
  batch = tokens.shape[0]
  top, layers = params.top, params.layers
  encoded = encoder_decoder_steps.encode(config, top, tokens, mask)
  cache, cross = encoder_decoder_steps.start_cache(
    config, layers, encoded, batch, new_tokens
  )
  options = loop.Options(
    temperature,
    loop.uniforms(seeds, jnp.arange(new_tokens)[:, None]),
    jnp.where(jnp.any(mask, axis=-1), limits, 0),
    top_p,
  )

  def body(state: _LoopState) -> _LoopState:
    drawn = state.drawn
    logits, cache = encoder_decoder_steps.decode_step(
      config, top, layers, drawn.last, state.cache, cross, drawn.step, mask
    )
    return _LoopState(loop.draw(config, method, options, drawn, logits), cache)

  first, there = context(config, batch)
  seen = methods.seen(method, first, there, config.vocab_size)
  drawn = loop.start(config, first[:, 0], new_tokens, seen)
  state = jax.lax.while_loop(
    lambda state: loop.goes_on(state.drawn, options),
    body,
    _LoopState(drawn, cache),
  )
  return state.drawn.completions()


def make_generate_fn(
  config: EncoderDecoderConfig,
  method: methods.Sampling,
  new_tokens: int,
  mesh: Mesh,
) -> Callable[..., loop.Completions]:
  """Jits `generate` with the batch split over the mesh.

  Returns:
    A function as of `decode.make_generate_fn`; each shape (B, P) is compiled
    once.
  """
  return jit_rows(functools.partial(generate, config, method, new_tokens), mesh)


def score(
  config: EncoderDecoderConfig,
  method: methods.Sampling,
  params: DecodeParams,
  prompt_tokens: jax.Array,
  prompt_mask: jax.Array,
  tokens: jax.Array,
  mask: jax.Array,
  temperature: jax.Array,
  top_p: jax.Array | None = None,
) -> jax.Array:
  """Teacher-forced log-probs of answers, equal to the sampler's.

  Args:
    config: the model.
    method: the same filters that were sampled with.
    params: parameters of the model, from `prepare`.
    prompt_tokens: int [B, P].
    prompt_mask: bool [B, P].
    tokens: int [B, N], completions as `generate` returns them.
    mask: bool [B, N], which of them count.
    temperature: [B], as it was sampled with.
    top_p: [B], as it was sampled with; None: 1 for every row.

  Returns:
    [B, N], 0 where `mask` is False.
  """
  start = context(config, len(tokens))
  before = jnp.concatenate([start[0], tokens[:, :-1]], axis=1)
  encoded = encoder_decoder_steps.encode(
    config, params.top, prompt_tokens, prompt_mask
  )
  logits = encoder_decoder_steps.decode(
    config, params.top, params.layers, encoded, prompt_mask, before
  )
  return methods.chosen_logps(
    logits, start, tokens, mask, temperature, method, top_p
  )


def context(
  config: EncoderDecoderConfig, rows: int
) -> tuple[jax.Array, jax.Array]:
  """What the decoder reads at first, int [B, 1], and that it is no padding.

  The repetition penalty meets it as in transformers, and not what the encoder
  reads: that is not repeated but answered.
  """
  first = jnp.full((rows, 1), config.decoder_start_token_id, jnp.int32)
  return first, jnp.ones((rows, 1), bool)


def make_score_fn(
  config: EncoderDecoderConfig, method: methods.Sampling
) -> Callable[..., jax.Array]:
  """Jits `score`; each shape (B, P, N) is compiled once."""
  return jax.jit(functools.partial(score, config, method))
