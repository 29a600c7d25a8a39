"""Prompts to completions: one prefill and one while_loop in one jitted program.

Prompts are left-padded to a bucketed length, so that generation starts in the
same slot for every row. On a mesh of data alone the batch is split with
`shard_map`: each device runs its own loop and stops when its own rows are done.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.models import transformer
from promptrl_jax.models.cache import LayerCache
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.encoder_decoder_config import EncoderDecoderConfig
from promptrl_jax.parallel.mesh import ROWS
from promptrl_jax.sampling import methods
from promptrl_jax.sampling.prepare import DecodeParams


@struct.dataclass
class Completions:
  """What `generate` returns.

  Attributes:
    tokens: int32 [B, N], pad after the stop token, which is included.
    logps: [B, N], log-probs of `tokens` under the sampled distribution; 0 on
      pad.
    mask: bool [B, N], which tokens were generated.
    stopped: bool [B], whether the row ended with the stop token.
  """

  tokens: jax.Array
  logps: jax.Array
  mask: jax.Array
  stopped: jax.Array


@struct.dataclass
class _LoopState:
  step: jax.Array  # scalar, tokens written so far
  logits: jax.Array  # [B, V] for the token to be drawn
  cache: tuple[LayerCache, ...]
  done: jax.Array  # bool [B]
  tokens: jax.Array  # [B, N]
  logps: jax.Array  # [B, N]


def prefill(
  config: TransformerConfig,
  params: DecodeParams,
  tokens: jax.Array,
  mask: jax.Array,
  new_tokens: int,
) -> tuple[jax.Array, tuple[LayerCache, ...]]:
  """Runs the prompts and lays out the cache.

  Args:
    config: the model.
    params: its parameters.
    tokens: int [B, P], left-padded.
    mask: bool [B, P], False on padding.
    new_tokens: N, slots to leave free behind the prompt.

  Returns:
    Logits [B, V] of the first new token, and the cache with at least P + N
    slots.
  """
  logits, cached = read_prompts(config, params, tokens, mask)
  return logits, tuple(
    LayerCache.from_prefill(keys, values, new_tokens, config.kv_cache)
    for keys, values in cached
  )


def read_prompts(
  config: TransformerConfig,
  params: DecodeParams,
  tokens: jax.Array,
  mask: jax.Array,
) -> tuple[jax.Array, list[tuple[jax.Array, jax.Array]]]:
  """Runs left-padded prompts [B, P]; `prefill` without the layout.

  Returns:
    Logits [B, V] of the first new token, and the keys and values of each layer,
    [B, P, K, H].
  """
  positions = jnp.maximum(jnp.cumsum(mask, axis=-1) - 1, 0)
  visible = transformer.causal_mask(mask, config.sliding_window)
  return transformer.prefill(
    config, params.top, params.layers, tokens, positions, visible
  )


def uniforms(seeds: jax.Array, steps: jax.Array) -> jax.Array:
  """Uniform numbers in [0, 1), one per row and token.

  All before the loop: hashing for one step costs as much as for a hundred.

  Args:
    seeds: uint32 [B].
    steps: int [N, B], how many tokens the row has before.

  Returns:
    [N, B]; entry (t, b) comes from fold_in(key(seeds[b]), steps[t, b]).
  """
  draw_one = lambda seed, step: jax.random.uniform(
    jax.random.fold_in(jax.random.key(seed), step)
  )
  return jax.vmap(jax.vmap(draw_one), (None, 0))(seeds, steps)


def draw_uniforms(seeds: jax.Array, count: int) -> jax.Array:
  """`uniforms` [N, B] of rows that all start with no token."""
  steps = jnp.broadcast_to(jnp.arange(count)[:, None], (count, len(seeds)))
  return uniforms(seeds, steps)


def next_tokens(
  config: TransformerConfig | EncoderDecoderConfig,
  method: methods.Sampling,
  logits: jax.Array,
  temperature: jax.Array,
  uniform: jax.Array,
  done: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Draws one token per row: int32 [B], and its log-probs [B].

  Args:
    config: the model.
    method: filters of the sampled distribution.
    logits: [B, V].
    temperature, uniform: [B].
    done: bool [B], rows that get the pad token, with log-prob 0.
  """
  logps = methods.log_distribution(logits, temperature, method)
  drawn = methods.draw(uniform, logps, temperature)
  drawn_logps = jnp.take_along_axis(logps, drawn[:, None], axis=1)[:, 0]
  drawn = jnp.where(done, config.pad_token_id, drawn)
  return drawn, jnp.where(done, 0.0, drawn_logps)


def ends(
  config: TransformerConfig | EncoderDecoderConfig, tokens: jax.Array
) -> jax.Array:
  """Which tokens end a text."""
  ids = jnp.asarray(config.eos_token_ids, jnp.int32)
  return jnp.any(tokens[..., None] == ids, axis=-1)


def to_completions(
  config: TransformerConfig | EncoderDecoderConfig,
  tokens: jax.Array,
  logps: jax.Array,
  written: jax.Array,
) -> Completions:
  """Completions of `tokens` and `logps` [B, N], pad and 0 after a stop token.

  Args:
    config: the model.
    tokens: int32 [B, N].
    logps: [B, N].
    written: bool [B, N], what the row got if no stop token came before.
  """
  # Padding may be a stop token: models without a pad token use one.
  ended = ends(config, tokens) & written
  before = jnp.cumsum(ended, axis=-1) - ended
  return Completions(
    tokens=tokens,
    logps=logps,
    mask=written & (before == 0),
    stopped=jnp.any(ended, axis=-1),
  )


def generate(
  config: TransformerConfig,
  method: methods.Sampling,
  new_tokens: int,
  params: DecodeParams,
  tokens: jax.Array,
  mask: jax.Array,
  temperature: jax.Array,
  seeds: jax.Array,
  limits: jax.Array,
) -> Completions:
  """Completes left-padded prompts; pure, jitted by `make_generate_fn`.

  Args:
    config: the model.
    method: filters of the sampled distribution.
    new_tokens: N, most tokens that any row may get.
    params: parameters of the model, from `prepare`.
    tokens: int [B, P], left-padded prompts.
    mask: bool [B, P]; a row without any True is padding and ends at once.
    temperature: [B], 0 for greedy.
    seeds: uint32 [B]; token t of row b uses fold_in(key(seeds[b]), t).
    limits: int [B], most new tokens of each row.

  Returns:
    Completions of shape [B, N].
  """
  batch, prompt_length = tokens.shape
  logits, cache = prefill(config, params, tokens, mask, new_tokens)
  shapes = jax.eval_shape(lambda: cache)
  lengths = jnp.sum(mask, axis=-1)
  draws = draw_uniforms(seeds, new_tokens)
  slots = jnp.arange(cache[0].num_slots)
  prompt_slots = jnp.pad(mask, ((0, 0), (0, len(slots) - prompt_length)))

  def cond(state: _LoopState) -> jax.Array:
    return (state.step < new_tokens) & ~jnp.all(state.done)

  def body(state: _LoopState) -> _LoopState:
    uniform = jax.lax.dynamic_index_in_dim(draws, state.step, 0, False)
    drawn, drawn_logps = next_tokens(
      config, method, state.logits, temperature, uniform, state.done
    )
    done = state.done | ends(config, drawn) | (state.step + 1 >= limits)
    slot = prompt_length + state.step
    visible = prompt_slots | ((slots >= prompt_length) & (slots <= slot))
    if config.sliding_window is not None:
      visible &= slots > slot - config.sliding_window
    logits, cache = transformer.decode_step(
      config, params.top, params.layers, drawn, lengths + state.step,
      _unsqueezed(state.cache, shapes), slot, visible,
    )  # fmt: skip
    update = functools.partial(
      jax.lax.dynamic_update_slice_in_dim, start_index=state.step, axis=1
    )
    return _LoopState(
      step=state.step + 1,
      logits=logits,
      cache=_squeezed(cache),
      done=done,
      tokens=update(state.tokens, drawn[:, None]),
      logps=update(state.logps, drawn_logps[:, None]),
    )

  shape = (batch, new_tokens)
  state = _LoopState(
    step=jnp.int32(0),
    logits=logits,
    cache=_squeezed(cache),
    done=(lengths == 0) | (limits <= 0),
    tokens=jnp.full(shape, config.pad_token_id, jnp.int32),
    logps=jnp.zeros(shape),
  )
  state = jax.lax.while_loop(cond, body, state)
  written = jnp.arange(new_tokens) < jnp.minimum(limits, state.step)[:, None]
  return to_completions(
    config, state.tokens, state.logps, written & (lengths > 0)[:, None]
  )


def _squeezed(cache: Any) -> Any:
  """Without axes of size 1, in which state a loop carries it.

  XLA takes them from the factors of a product. If the loop keeps them there are
  two arrays to update, and both are copied: 3 to 7 of 25 ms at batch 1.
  """
  return jax.tree.map(jnp.squeeze, cache)


def _unsqueezed(cache: Any, shapes: Any) -> Any:
  return jax.tree.map(lambda x, s: x.reshape(s.shape), cache, shapes)


def make_generate_fn(
  config: TransformerConfig,
  method: methods.Sampling,
  new_tokens: int,
  mesh: Mesh,
) -> Callable[..., Completions]:
  """Jits `generate` with the batch split over the mesh.

  Where every device has all parameters, each runs a loop of its own. Where
  parameters are split (axes `fsdp` and `tensor`), all run one loop together.

  Returns:
    A function of (params, tokens, mask, temperature, seeds, limits). B must be
    a multiple of the devices that rows are split over; each shape (B, P) is
    compiled once.
  """
  return jit_rows(
    functools.partial(generate, config, method, new_tokens), mesh, 5
  )


def jit_rows(run: Callable[..., Any], mesh: Mesh, count: int) -> Any:
  """Jits a function of parameters and `count` arrays of rows.

  Args:
    run: (parameters, *rows) -> a tree of rows.
    mesh: over which rows are split; see `make_generate_fn`.
    count: arrays of rows that `run` takes.
  """
  if mesh.size > mesh.shape['data']:
    rows = NamedSharding(mesh, ROWS)
    return jax.jit(
      run,
      in_shardings=(None, *[rows] * count),
      out_shardings=rows,
    )
  rows = P('data')
  sharded = jax.shard_map(
    run,
    mesh=mesh,
    in_specs=(P(), *[rows] * count),
    out_specs=rows,
    check_vma=False,  # the loop's trip count differs between devices
  )
  return jax.jit(sharded)
