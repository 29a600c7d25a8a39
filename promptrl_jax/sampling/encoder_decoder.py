"""Answers of an encoder-decoder: one encoding and one while_loop, jitted.

The counterpart of `decode` and `score`. The decoder starts in slot 0 of its own
cache for every row, so prompts may be padded on any side.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh

from promptrl_jax.models import encoder_decoder
from promptrl_jax.models.cache import LayerCache
from promptrl_jax.models.encoder_decoder import (
  EncoderDecoder,
  EncoderDecoderConfig,
)
from promptrl_jax.sampling import methods
from promptrl_jax.sampling.decode import (
  Completions,
  draw_uniforms,
  ends,
  jit_rows,
  next_tokens,
  to_completions,
)


@struct.dataclass
class _LoopState:
  step: jax.Array  # scalar, tokens written so far
  current: jax.Array  # int32 [B], the last token of each row
  cache: tuple[LayerCache, ...]
  done: jax.Array  # bool [B]
  tokens: jax.Array  # [B, N]
  logps: jax.Array  # [B, N]


def generate(
  config: EncoderDecoderConfig,
  method: methods.Sampling,
  new_tokens: int,
  params: Any,
  tokens: jax.Array,
  mask: jax.Array,
  temperature: jax.Array,
  seeds: jax.Array,
  limits: jax.Array,
) -> Completions:
  """Answers prompts; pure, jitted by `make_generate_fn`.

  Args:
    config: the model.
    method: filters of the sampled distribution.
    new_tokens: N, most tokens that any row may get.
    params: parameters of the model.
    tokens: int [B, P], prompts.
    mask: bool [B, P]; a row without any True is padding and ends at once.
    temperature: [B], 0 for greedy.
    seeds: uint32 [B]; token t of row b uses fold_in(key(seeds[b]), t).
    limits: int [B], most new tokens of each row.

  Returns:
    Completions of shape [B, N]; `decoder_start_token_id` is not part of them.
  """
  batch = tokens.shape[0]
  encoded = encoder_decoder.encode(config, params, tokens, mask)
  layers = encoder_decoder.unstack_decoder(config, params)
  cache, cross = encoder_decoder.start_cache(
    config, layers, encoded, batch, new_tokens
  )
  uniforms = draw_uniforms(seeds, new_tokens)
  is_prompt = jnp.any(mask, axis=-1)

  def cond(state: _LoopState) -> jax.Array:
    return (state.step < new_tokens) & ~jnp.all(state.done)

  def body(state: _LoopState) -> _LoopState:
    logits, cache = encoder_decoder.decode_step(
      config, params, layers, state.current, state.cache, cross, state.step,
      mask,
    )  # fmt: skip
    uniform = jax.lax.dynamic_index_in_dim(uniforms, state.step, 0, False)
    drawn, drawn_logps = next_tokens(
      config, method, logits, temperature, uniform, state.done
    )
    update = functools.partial(
      jax.lax.dynamic_update_slice_in_dim, start_index=state.step, axis=1
    )
    return _LoopState(
      step=state.step + 1,
      current=drawn,
      cache=cache,
      done=state.done | ends(config, drawn) | (state.step + 1 >= limits),
      tokens=update(state.tokens, drawn[:, None]),
      logps=update(state.logps, drawn_logps[:, None]),
    )

  shape = (batch, new_tokens)
  state = _LoopState(
    step=jnp.int32(0),
    current=jnp.full(batch, config.decoder_start_token_id, jnp.int32),
    cache=cache,
    done=~is_prompt | (limits <= 0),
    tokens=jnp.full(shape, config.pad_token_id, jnp.int32),
    logps=jnp.zeros(shape),
  )
  state = jax.lax.while_loop(cond, body, state)
  written = jnp.arange(new_tokens) < jnp.minimum(limits, state.step)[:, None]
  return to_completions(
    config, state.tokens, state.logps, written & is_prompt[:, None]
  )


def make_generate_fn(
  config: EncoderDecoderConfig,
  method: methods.Sampling,
  new_tokens: int,
  mesh: Mesh,
) -> Callable[..., Completions]:
  """Jits `generate` with the batch split over the mesh.

  Returns:
    A function of (params, tokens, mask, temperature, seeds, limits), split as
    by `decode.make_generate_fn`; each shape (B, P) is compiled once.
  """
  return jit_rows(
    functools.partial(generate, config, method, new_tokens), mesh, 5
  )


def score(
  config: EncoderDecoderConfig,
  method: methods.Sampling,
  params: Any,
  prompt_tokens: jax.Array,
  prompt_mask: jax.Array,
  tokens: jax.Array,
  mask: jax.Array,
  temperature: jax.Array,
) -> jax.Array:
  """Teacher-forced log-probs of answers, equal to the sampler's.

  Args:
    config: the model.
    method: the same filters that were sampled with.
    params: parameters of the model.
    prompt_tokens: int [B, P].
    prompt_mask: bool [B, P].
    tokens: int [B, N], completions as `generate` returns them.
    mask: bool [B, N], which of them count.
    temperature: [B], as it was sampled with.

  Returns:
    [B, N], 0 where `mask` is False.
  """
  start = jnp.full_like(tokens[:, :1], config.decoder_start_token_id)
  before = jnp.concatenate([start, tokens[:, :-1]], axis=1)
  logits: Any = EncoderDecoder(config).apply(
    params, prompt_tokens, prompt_mask, before
  )
  return methods.chosen_logps(logits, tokens, mask, temperature, method)


def make_score_fn(
  config: EncoderDecoderConfig, method: methods.Sampling
) -> Callable[..., jax.Array]:
  """Jits `score`; each shape (B, P, N) is compiled once."""
  return jax.jit(functools.partial(score, config, method))
