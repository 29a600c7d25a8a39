"""The jitted programs of the engine: prefill, insert, decode.

Logits and KV caches stay on the devices between calls; which sequence a slot
holds comes from the host with every call, as an `InputBatch`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling import loop, methods
from promptrl_jax.sampling.model import InputBatch, Model
from promptrl_jax.sampling.packing import unpack
from promptrl_jax.sampling.prepare import DecodeParams


@struct.dataclass
class SlotState:
  """What the devices keep of B batch slots.

  Attributes:
    logits: [B, V] of the next token.
    seen: bool [B, V], tokens that the repetition penalty applies to, or None.
  """

  logits: jax.Array
  cache: Any
  seen: jax.Array | None


@struct.dataclass
class _LoopState:
  generated: loop.Generated
  logits: jax.Array
  cache: Any


def empty_slots(
  model: Model, method: methods.Sampling, slots: int, blocks: int
) -> SlotState:
  """The state of free slots whose caches have `blocks` blocks."""
  nothing = jnp.zeros((slots, 1), jnp.int32)
  vocabulary = model.config.vocab_size
  return SlotState(
    logits=jnp.zeros((slots, vocabulary)),
    cache=model.empty_cache(slots, blocks),
    seen=methods.seen(method, nothing, nothing.astype(bool), vocabulary),
  )


def prefill(
  model: Model,
  method: methods.Sampling,
  params: DecodeParams,
  tokens: jax.Array,
  mask: jax.Array,
  *before: jax.Array,
) -> SlotState:
  """Reads left-padded prompts [A, P]; `insert` copies them into batch slots.

  The state of A slots has only the cache blocks that P tokens need. What comes
  `before` the tokens that are read is known, see `CausalModel.prefill`.
  """
  logits, cache = model.prefill(params, tokens, mask, *before)
  context = model.context(tokens, mask)
  return SlotState(
    logits, cache, methods.seen(method, *context, model.config.vocab_size)
  )


def insert(
  slots: SlotState,
  prompts: SlotState,
  sources: jax.Array,
  targets: jax.Array,
  count: jax.Array,
) -> SlotState:
  """Copies prefilled prompts into slots, in place if `slots` is donated.

  The cache of a slot keeps its old content behind the prompt; nothing attends
  to a position before it is written again.

  Args:
    sources: int [B], rows of `prompts`, repeats allowed.
    targets: int [B], rows of `slots`.
    count: int [1], how many of the sources and targets are valid.
  """
  if jax.default_backend() != 'cpu':
    return insert_together(slots, prompts, sources, targets, count)

  def copy(i: jax.Array, slots: SlotState) -> SlotState:
    def copy_leaf(rows: jax.Array, source: jax.Array) -> jax.Array:
      row = jax.lax.dynamic_slice_in_dim(source, sources[i], 1, 0)
      start = (targets[i], *[0] * (row.ndim - 1))
      return jax.lax.dynamic_update_slice(rows, row, start)

    return jax.tree.map(copy_leaf, slots, prompts)

  return jax.lax.fori_loop(0, count[0], copy, slots)


def insert_together(
  slots: SlotState,
  prompts: SlotState,
  sources: jax.Array,
  targets: jax.Array,
  count: jax.Array,
  together: int = 32,
) -> SlotState:
  """Computes `insert`, several rows in one kernel.

  An accelerator takes as long to start a kernel as to copy a row, and a model
  of 30 layers has 60 arrays in its cache.
  """
  rows = len(targets)
  padding = (0, -rows % together)
  # What is not valid goes behind the last row, where nothing is written.
  targets = jnp.where(jnp.arange(rows) < count[0], targets, rows)
  targets = jnp.pad(targets, padding, constant_values=rows)
  sources = jnp.pad(sources, padding)

  def copy(i: jax.Array, slots: SlotState) -> SlotState:
    part = lambda x: jax.lax.dynamic_slice_in_dim(x, i * together, together)
    source, target = part(sources), part(targets)

    def copy_leaf(rows: jax.Array, prompt: jax.Array) -> jax.Array:
      where = (target, *map(slice, prompt.shape[1:]))
      return rows.at[where].set(prompt[source], mode='drop')

    return jax.tree.map(copy_leaf, slots, prompts)

  steps = (count[0] + together - 1) // together
  return jax.lax.fori_loop(0, steps, copy, slots)


def decode(
  model: Model,
  method: methods.Sampling,
  params: DecodeParams,
  slots: SlotState,
  batch: InputBatch,
  enough_free: jax.Array,
  steps: jax.Array,
  together: bool = False,
  certainty: bool = False,
) -> tuple[SlotState, loop.Completions]:
  """Generates up to `steps` tokens for every slot that is not free.

  Args:
    enough_free: int [1]; returns early once so many slots are free.
    steps: int [1], most steps of this call, at most N of the model.
    together: whether all groups of a mesh run until each has enough free slots.
      Groups whose devices share parameters must: XLA lets them exchange data by
      collectives in which all groups take part.
    certainty: also measure how sure the model is of each token.
  """
  rows, most = len(batch.generated), model.new_tokens
  options = loop.Options(
    batch.temperature,
    loop.uniforms(batch.seeds, batch.generated + jnp.arange(most)[:, None]),
    batch.max_tokens - batch.generated,
    batch.top_p,
  )

  def cond(state: _LoopState) -> jax.Array:
    free = jnp.sum(~state.generated.active(options))
    more = free < jnp.minimum(enough_free[0], rows)
    if together:
      more = jax.lax.pmax(more.astype(jnp.int32), 'data') > 0
    return (state.generated.step < jnp.minimum(steps[0], most)) & more

  def body(state: _LoopState) -> _LoopState:
    before = batch.generated + state.generated.step
    generated = loop.draw(
      model.config, method, options, state.generated, state.logits
    )
    logits, cache = model.decode_step(
      params, generated.last, batch, before, state.cache
    )
    return _LoopState(generated, logits, cache)

  generated = loop.start(model.config, rows, most, slots.seen, certainty)
  state = jax.lax.while_loop(
    cond, body, _LoopState(generated, slots.logits, slots.cache)
  )
  after = SlotState(state.logits, state.cache, state.generated.seen)
  return after, state.generated.completions()


@dataclasses.dataclass(frozen=True)
class Programs:
  """The functions above, jitted for the slots of a mesh.

  Attributes:
    empty_fn: (blocks, slots of a group) -> slots.
    prefill_fn: (params, tokens, mask) -> prompts.
    finish_fn: (params, tokens, mask, before) -> prompts, of a causal model.
    insert_fn: (slots, prompts, packed) -> slots, which are donated; packed are
      sources and targets, which count from the first row of their group, and
      the count of each group.
    decode_fn: (params, slots, packed) -> slots, which are donated, and
      completions; packed are the batch, `enough_free` and `steps`.
  """

  empty_fn: Callable[[int, int], SlotState]
  prefill_fn: Callable[..., SlotState]
  finish_fn: Callable[..., SlotState]
  insert_fn: Callable[..., SlotState]
  decode_fn: Callable[..., tuple[SlotState, loop.Completions]]

  def compiled(self) -> int:
    """Number of programs compiled so far."""
    fns: Any = vars(self).values()
    return sum(fn._cache_size() for fn in fns)


def make_programs(
  model: Model,
  method: methods.Sampling,
  mesh: Mesh,
  certainty: bool = False,
) -> Programs:
  """Jits the programs with slots that are split over `data` of a mesh.

  Along the other axes all devices of a group hold the same slots, and each
  holds the caches of its share of the heads.
  """
  split, replicated = P('data'), P()
  row: Any = NamedSharding(mesh, split)
  heads = P('data', 'tensor') if 'tensor' in mesh.shape else split
  cache: Any = NamedSharding(mesh, heads)
  state = SlotState(row, cache, row)

  def jit(fn: Callable, out: Any, *in_specs: P, **options: Any) -> Callable:
    mapped = jax.shard_map(
      fn,
      mesh=mesh,
      in_specs=in_specs,
      out_specs=split,
      axis_names={'data'},
      check_vma=False,  # the loops' trip counts differ between devices
    )
    return jax.jit(mapped, out_shardings=out, **options)

  def make_empty(blocks: int, slots: int) -> SlotState:
    fn = functools.partial(empty_slots, model, method, slots, blocks)
    return jax.shard_map(fn, mesh=mesh, in_specs=(), out_specs=split)()

  together = mesh_lib.splits_parameters(mesh)
  prefill_rows = functools.partial(prefill, model, method)
  of_batch = jax.tree.map(lambda row: row.dtype, InputBatch.free(1))

  def insert_rows(
    slots: SlotState, prompts: SlotState, packed: jax.Array
  ) -> SlotState:
    (sources, targets), (count,) = unpack(packed, (jnp.int32, jnp.int32), 1)
    return insert(slots, prompts, sources, targets, count)

  def decode_rows(
    params: DecodeParams, slots: SlotState, packed: jax.Array
  ) -> tuple[SlotState, loop.Completions]:
    batch, (enough_free, steps) = unpack(packed, of_batch, 2)
    return decode(
      *(model, method, params, slots, batch, enough_free, steps),
      together=together,
      certainty=certainty,
    )

  return Programs(
    empty_fn=jax.jit(make_empty, out_shardings=state, static_argnums=(0, 1)),
    prefill_fn=jit(prefill_rows, state, replicated, *[split] * 2),
    finish_fn=jit(prefill_rows, state, replicated, *[split] * 3),
    insert_fn=jit(insert_rows, state, *[split] * 3, donate_argnums=0),
    decode_fn=jit(
      decode_rows, (state, row), replicated, *[split] * 2, donate_argnums=1
    ),
  )
