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
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from promptrl_jax.models import attention, causal_steps
from promptrl_jax.models.cache import LayerCache
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling import loop, methods
from promptrl_jax.sampling.prepare import DecodeParams


@struct.dataclass
class _LoopState:
  drawn: loop.Drawn
  logits: jax.Array  # [B, V] for the token to be drawn
  cache: tuple[LayerCache, ...]


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
  visible = attention.causal_mask(mask, config.sliding_window)
  return causal_steps.prefill(
    config, params.top, params.layers, tokens, positions, visible
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
  top_p: jax.Array | None = None,
  *,
  group: int = 1,
) -> loop.Completions:
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
    top_p: [B], nucleus mass; None: 1 for every row.
    group: rows that follow one another and have the same prompt, which is read
      once.

  Returns:
    Completions of shape [B, N].
  """
  prompt_length = tokens.shape[1]
  logits, cache = jax.tree.map(
    lambda x: jnp.repeat(x, group, axis=0),
    prefill(config, params, tokens[::group], mask[::group], new_tokens),
  )
  shapes = jax.eval_shape(lambda: cache)
  is_native = cache[0].is_native(params.threads, config.dtype)
  carried = (lambda cache: cache) if is_native else _squeezed
  lengths = jnp.sum(mask, axis=-1)
  slots = jnp.arange(cache[0].num_slots)
  prompt_slots = jnp.pad(mask, ((0, 0), (0, len(slots) - prompt_length)))
  options = loop.Options(
    temperature,
    loop.uniforms(seeds, jnp.arange(new_tokens)[:, None]),
    jnp.where(lengths > 0, limits, 0),
    top_p,
  )

  def body(state: _LoopState) -> _LoopState:
    step = state.drawn.step
    drawn = loop.draw(config, method, options, state.drawn, state.logits)
    slot = prompt_length + step
    visible = prompt_slots | ((slots >= prompt_length) & (slots <= slot))
    if config.sliding_window is not None:
      visible &= slots > slot - config.sliding_window
    logits, cache = causal_steps.decode_step(
      config, params.top, params.layers, drawn.last, lengths + step,
      _unsqueezed(state.cache, shapes), slot, visible,
    )  # fmt: skip
    return _LoopState(drawn, logits, carried(cache))

  nothing = jnp.full(len(tokens), config.pad_token_id, jnp.int32)
  seen = methods.seen(method, tokens, mask, config.vocab_size)
  drawn = loop.start(config, nothing, new_tokens, seen)
  state = jax.lax.while_loop(
    lambda state: loop.goes_on(state.drawn, options),
    body,
    _LoopState(drawn, logits, carried(cache)),
  )
  return state.drawn.completions()


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
  group: int = 1,
) -> Callable[..., loop.Completions]:
  """Jits `generate` with the batch split over the mesh.

  Where every device has all parameters, each runs a loop of its own. Where
  parameters are split (axes `fsdp` and `tensor`), all run one loop together.

  Returns:
    A function of (params, tokens, mask, temperature, seeds, limits) and, if
    wanted, top_p. B must be a multiple of `group` times the devices that rows
    are split over; each shape (B, P) is compiled once.
  """
  run = functools.partial(generate, config, method, new_tokens, group=group)
  return jit_rows(run, mesh)


def jit_rows(run: Callable[..., Any], mesh: Mesh) -> Any:
  """Jits a function of parameters and arrays of rows.

  Args:
    run: (parameters, *rows) -> a tree of rows.
    mesh: over which rows are split; see `make_generate_fn`.
  """
  if mesh_lib.splits_parameters(mesh):
    split = mesh_lib.rows(mesh)

    def together(params: Any, *rows: Any) -> Any:
      return run(params, *jax.lax.with_sharding_constraint(rows, split))

    return jax.jit(together, out_shardings=split)
  apart = jax.shard_map(
    lambda params, rows: run(params, *rows),
    mesh=mesh,
    in_specs=(P(), P('data')),
    out_specs=P('data'),
    check_vma=False,  # the loop's trip count differs between devices
  )
  return jax.jit(lambda params, *rows: apart(params, rows))
