"""Programs of continuous batching: read prompts, give them slots, decode.

A row of the batch is a slot that prompts take in turn. Only the rows' logits
and caches stay on the devices; who sits in which row is told anew with every
call. What a row's cache holds is the business of its `Model`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.models.encoder_decoder_config import LanguageModelConfig
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling import loop, methods
from promptrl_jax.sampling.prepare import DecodeParams


@struct.dataclass
class Slots:
  """What rows have read so far.

  Attributes:
    logits: [B, V] of the token to be drawn.
    cache: what the model keeps of each row.
    seen: bool [B, V], tokens that the repetition penalty meets, or None.
  """

  logits: jax.Array
  cache: Any
  seen: jax.Array | None


@struct.dataclass
class Rows:
  """Who sits in each row; a row with `drawn >= limits` is free.

  Attributes:
    first: int32 [B], place of the first token of the prompt.
    lengths: int32 [B], tokens of the prompt.
    drawn: int32 [B], tokens drawn so far.
    limits: int32 [B], most tokens to draw.
    temperature: [B], 0 for greedy.
    top_p: [B], nucleus mass.
    seeds: uint32 [B]; token t of row b uses fold_in(key(seeds[b]), t).
  """

  first: Any
  lengths: Any
  drawn: Any
  limits: Any
  temperature: Any
  top_p: Any
  seeds: Any


@struct.dataclass
class _LoopState:
  drawn: loop.Drawn
  logits: jax.Array
  cache: Any


class Model(Protocol):
  """What the programs need of a kind of model."""

  @property
  def config(self) -> LanguageModelConfig: ...

  def blocks(self, prompt: int) -> int:
    """Blocks of the cache of rows with prompts of up to so many tokens."""
    ...

  def empty(self, rows: int, blocks: int) -> Any:
    """The cache of free rows; each leaf has the rows in front."""
    ...

  def read(
    self, params: DecodeParams, tokens: jax.Array, mask: jax.Array
  ) -> tuple[jax.Array, Any]:
    """Reads left-padded prompts [A, P].

    Returns:
      Logits [A, V] of the first token to be drawn, and the cache of A rows with
      no more blocks than the prompts take.
    """
    ...

  def step(
    self,
    params: DecodeParams,
    tokens: jax.Array,
    rows: Rows,
    drawn: jax.Array,
    cache: Any,
  ) -> tuple[jax.Array, Any]:
    """Reads a token of each row.

    Args:
      params: of the model.
      tokens: int [B].
      rows: who sits in them.
      drawn: int [B], tokens that each row had drawn before this one. A row that
        is done goes on behind its last token.
      cache: of the rows.

    Returns:
      Logits [B, V] of the next token, and the cache.
    """
    ...

  def context(
    self, tokens: jax.Array, mask: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Tokens and mask that the repetition penalty meets before any is drawn."""
    ...


def empty(
  model: Model, method: methods.Sampling, rows: int, blocks: int
) -> Slots:
  """Free rows with so many blocks."""
  nothing = jnp.zeros((rows, 1), jnp.int32)
  vocabulary = model.config.vocab_size
  return Slots(
    logits=jnp.zeros((rows, vocabulary)),
    cache=model.empty(rows, blocks),
    seen=methods.seen(method, nothing, nothing.astype(bool), vocabulary),
  )


def read(
  model: Model,
  method: methods.Sampling,
  params: DecodeParams,
  tokens: jax.Array,
  mask: jax.Array,
) -> Slots:
  """Reads prompts; `insert` then copies them into rows.

  Args:
    model: what reads them.
    method: filters of the sampled distribution.
    params: parameters of the model, from `prepare`.
    tokens: int [A, P], left-padded prompts.
    mask: bool [A, P].

  Returns:
    Slots of A rows.
  """
  logits, cache = model.read(params, tokens, mask)
  context = model.context(tokens, mask)
  return Slots(
    logits, cache, methods.seen(method, *context, model.config.vocab_size)
  )


def insert(
  slots: Slots,
  prompts: Slots,
  sources: jax.Array,
  targets: jax.Array,
  count: jax.Array,
) -> Slots:
  """Copies prompts into rows, in place if `slots` is donated.

  What a row held behind the prompt stays; nothing attends to it before it is
  written again.

  Args:
    slots: B rows.
    prompts: A rows, from `read`.
    sources: int [B], rows of `prompts`; the same one may come several times.
    targets: int [B], rows of `slots`.
    count: int [1], how many of the sources and targets are meant.
  """

  def copy(i: jax.Array, slots: Slots) -> Slots:
    def one(rows: jax.Array, source: jax.Array) -> jax.Array:
      row = jax.lax.dynamic_slice_in_dim(source, sources[i], 1, 0)
      start = (targets[i], *[0] * (row.ndim - 1))
      return jax.lax.dynamic_update_slice(rows, row, start)

    return jax.tree.map(one, slots, prompts)

  return jax.lax.fori_loop(0, count[0], copy, slots)


def advance(
  model: Model,
  method: methods.Sampling,
  most: int,
  params: DecodeParams,
  slots: Slots,
  rows: Rows,
  enough: jax.Array,
  steps: jax.Array,
  together: bool = False,
) -> tuple[Slots, loop.Completions]:
  """Draws some tokens for every row that is not free.

  Args:
    model: what decodes.
    method: filters of the sampled distribution.
    most: N, most steps.
    params: parameters of the model, from `prepare`.
    slots: B rows.
    rows: who sits in them.
    enough: int [1]; returns early when so many rows are free.
    steps: int [1], after which the caller wants to look; no more than N.
    together: whether the groups of a mesh go on until all have enough. Where a
      group's devices share parameters they must: XLA lets them exchange data
      by collectives in which all groups take part.

  Returns:
    The rows after it, and what was drawn [B, N].
  """
  batch = len(rows.drawn)
  options = loop.Options(
    rows.temperature,
    loop.uniforms(rows.seeds, rows.drawn + jnp.arange(most)[:, None]),
    rows.limits - rows.drawn,
    rows.top_p,
  )

  def cond(state: _LoopState) -> jax.Array:
    free = jnp.sum(~state.drawn.active(options))
    more = free < jnp.minimum(enough[0], batch)
    if together:
      more = jax.lax.pmax(more.astype(jnp.int32), 'data') > 0
    return (state.drawn.step < jnp.minimum(steps[0], most)) & more

  def body(state: _LoopState) -> _LoopState:
    before = rows.drawn + state.drawn.step
    drawn = loop.draw(model.config, method, options, state.drawn, state.logits)
    logits, cache = model.step(params, drawn.last, rows, before, state.cache)
    return _LoopState(drawn, logits, cache)

  nothing = jnp.full(batch, model.config.pad_token_id, jnp.int32)
  drawn = loop.start(model.config, nothing, most, slots.seen)
  state = jax.lax.while_loop(
    cond, body, _LoopState(drawn, slots.logits, slots.cache)
  )
  after = Slots(state.logits, state.cache, state.drawn.seen)
  return after, state.drawn.completions()


@dataclasses.dataclass(frozen=True)
class Programs:
  """The functions above, jitted for the rows of a mesh.

  Attributes:
    empty_fn: (blocks) -> Slots.
    read_fn: (params, tokens, mask) -> Slots of the prompts.
    insert_fn: (slots, prompts, sources, targets, counts) -> slots; sources and
      targets count from the first row of their group, counts are [groups].
    advance_fn: (params, slots, rows, enough, steps) -> slots, burst; `enough`
      and `steps` are [groups].
  """

  empty_fn: Callable[[int], Slots]
  read_fn: Callable[..., Slots]
  insert_fn: Callable[..., Slots]
  advance_fn: Callable[..., tuple[Slots, loop.Completions]]

  def compiled(self) -> int:
    """Number of programs compiled so far."""
    fns: Any = (self.empty_fn, self.read_fn, self.insert_fn, self.advance_fn)
    return sum(fn._cache_size() for fn in fns)


def make_programs(
  model: Model,
  method: methods.Sampling,
  mesh: Mesh,
  rows: int,
  most: int,
) -> Programs:
  """Jits the programs with rows split over the axis `data` of a mesh.

  Along its other axes all devices of a group have the same rows, and each has
  the caches of its share of the heads.

  Args:
    model: what reads and decodes.
    method: filters of the sampled distribution.
    mesh: see `engine.make_engine`.
    rows: B of each group.
    most: N, steps of `advance`.
  """
  split, whole = P('data'), P()
  row: Any = NamedSharding(mesh, split)
  heads = P('data', 'tensor') if 'tensor' in mesh.shape else split
  cache: Any = NamedSharding(mesh, heads)
  slots = Slots(row, cache, row)

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

  def make_empty(blocks: int) -> Slots:
    fn = functools.partial(empty, model, method, rows, blocks)
    return jax.shard_map(fn, mesh=mesh, in_specs=(), out_specs=split)()

  return Programs(
    empty_fn=jax.jit(make_empty, out_shardings=slots, static_argnums=0),
    read_fn=jit(
      functools.partial(read, model, method),
      slots, whole, split, split,
    ),
    insert_fn=jit(insert, slots, *[split] * 5, donate_argnums=0),
    advance_fn=jit(
      functools.partial(
        advance, model, method, most,
        together=mesh_lib.splits_parameters(mesh),
      ),
      (slots, row), whole, *[split] * 4,
      donate_argnums=1,
    ),
  )  # fmt: skip
