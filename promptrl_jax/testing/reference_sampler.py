"""The reference for the engine: one padded batch until its longest row ends.

It runs the same model functions without slots that are refilled: all prompts
are prefilled at once and every row decodes from the first step on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh

from promptrl_jax.models.encoder_decoder_config import LanguageModelConfig
from promptrl_jax.sampling import loop, methods, programs
from promptrl_jax.sampling.jit_rows import jit_rows
from promptrl_jax.sampling.model import InputBatch, Model, make_model
from promptrl_jax.sampling.prepare import DecodeParams


@struct.dataclass
class _LoopState:
  generated: loop.Generated
  logits: jax.Array
  cache: Any


def generate(
  model: Model,
  method: methods.Sampling,
  params: DecodeParams,
  tokens: jax.Array,
  mask: jax.Array,
  temperature: jax.Array,
  seeds: jax.Array,
  limits: jax.Array,
  top_p: jax.Array | None = None,
) -> loop.Completions:
  """Completes prompts; pure, jitted by `make_generate_fn`.

  Args:
    model: the model; its `new_tokens` is N.
    method: filters of the sampled distribution.
    params: parameters of the model, from `prepare`.
    tokens: int [B, P], prompts, left-padded for a causal model.
    mask: bool [B, P]; a row without any True is padding and ends at once.
    temperature: [B], 0 for greedy.
    seeds: uint32 [B]; token t of row b uses fold_in(key(seeds[b]), t).
    limits: int [B], most new tokens of each row.
    top_p: [B], nucleus mass; None: 1 for every row.

  Returns:
    Completions of shape [B, N].
  """
  rows = len(tokens)
  if top_p is None:
    top_p = jnp.ones(rows)
  sizes = jnp.sum(mask, axis=-1)
  batch = InputBatch(
    prompt_start=jnp.argmax(mask, axis=-1),
    prompt_lengths=sizes,
    generated=jnp.zeros(rows, jnp.int32),
    max_tokens=jnp.where(sizes > 0, limits, 0),
    temperature=temperature,
    top_p=top_p,
    seeds=seeds,
  )
  slots = _prefilled(model, method, params, tokens, mask)
  draws = loop.uniforms(seeds, jnp.arange(model.new_tokens)[:, None])
  options = loop.Options(temperature, draws, batch.max_tokens, top_p)

  def cond(state: _LoopState) -> jax.Array:
    steps_left = state.generated.step < model.new_tokens
    return steps_left & jnp.any(state.generated.active(options))

  def body(state: _LoopState) -> _LoopState:
    step = jnp.broadcast_to(state.generated.step, (rows,))
    generated = loop.draw(
      model.config, method, options, state.generated, state.logits
    )
    logits, cache = model.decode_step(
      params, generated.last, batch, step, state.cache
    )
    return _LoopState(generated, logits, cache)

  start = loop.start(model.config, rows, model.new_tokens, slots.seen)
  state = _LoopState(start, slots.logits, slots.cache)
  state = jax.lax.while_loop(cond, body, state)
  return state.generated.completions()


def _prefilled(
  model: Model,
  method: methods.Sampling,
  params: DecodeParams,
  tokens: jax.Array,
  mask: jax.Array,
) -> programs.SlotState:
  """Returns one slot per prompt, all of them filled."""
  rows, length = tokens.shape
  everyone = jnp.arange(rows)
  return programs.insert(
    programs.empty_slots(model, method, rows, model.blocks(length)),
    programs.prefill(model, method, params, tokens, mask),
    everyone,
    everyone,
    jnp.full(1, rows),
  )


def make_generate_fn(
  config: LanguageModelConfig,
  method: methods.Sampling,
  prompt: int,
  new_tokens: int,
  mesh: Mesh,
) -> Callable[..., loop.Completions]:
  """Jits `generate` with the rows split over a mesh.

  Args:
    config: the model.
    method: filters of the sampled distribution.
    prompt: most tokens of a prompt.
    new_tokens: N.
    mesh: see `jit_rows`.

  Returns:
    A function of (params, tokens, mask, temperature, seeds, limits) and, if
    wanted, top_p; compiled once per shape.
  """
  model = make_model(config, prompt, new_tokens)
  return jit_rows(functools.partial(generate, model, method), mesh)
