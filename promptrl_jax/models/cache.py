"""The key-value cache of one layer during decoding."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from promptrl_jax.models import native, rope
from promptrl_jax.models.kernels import quantize

_NEG_INF = -1e30
_BLOCK = 96  # upper limit on the cache slots of a block
# A bfloat16 cache is kept as bits: on CPU, XLA would widen all of it to write
# one token, which took twice the time of the whole step.
_BITS = jnp.uint16


def layout(slots: int) -> tuple[int, int]:
  """Returns the blocks X and their width W for a number of cache slots."""
  blocks = -(-slots // _BLOCK)
  width = -(-slots // blocks)
  return blocks, -(-width // native.LANES) * native.LANES


@struct.dataclass
class LayerCache:
  """Keys [B, K, X, H, W] and values [B, K, X, W, H] of one layer.

  M = X * W cache slots lie in X blocks of W, and each holds the key and the
  value of one token. In both products of a decode step the innermost axis is
  contiguous in memory, and a block fits into the first-level cache of a core:
  the product with one block of 176 keys took 1.7 times as long as with two
  blocks of 88.

  An int8 cache stores each key and each value as multiples of its largest
  magnitude over 127, its scale [B, K, X, W].
  """

  keys: jax.Array
  values: jax.Array
  key_scales: jax.Array | None = None
  value_scales: jax.Array | None = None

  @classmethod
  def in_blocks(
    cls,
    keys: jax.Array,
    values: jax.Array,
    blocks: int,
    width: int,
    kind: str = 'plain',
  ) -> LayerCache:
    """Stores prefilled keys and values [B, P, K, H] in a new cache.

    X blocks of width W must hold P; `kind` is `TransformerConfig.kv_cache`.
    """
    padding = (0, blocks * width - keys.shape[1])

    def lay_out(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
      widths = ((0, 0), padding, *[(0, 0)] * (x.ndim - 2))
      shape = (len(x), blocks, width, *x.shape[2:])
      return jnp.transpose(jnp.pad(x, widths).reshape(shape), axes)

    axes = ((0, 3, 1, 4, 2), (0, 3, 1, 2, 4), (0, 3, 1, 2), (0, 3, 1, 2))
    fields = _fields(keys, values, kind)
    return cls(*[lay_out(*pair) for pair in zip(fields, axes, strict=False)])

  @property
  def _kind(self) -> str:
    if self.key_scales is not None:
      return 'int8'
    return 'bfloat16' if self.keys.dtype == _BITS else 'plain'

  @property
  def num_slots(self) -> int:
    """Number of cache slots, M."""
    return self.keys.shape[2] * self.keys.shape[4]

  def copy_to(self, to: np.ndarray, group: int, row: int, first: int) -> None:
    """Copies keys and values of N tokens to [2, N, K, H], on the host.

    Args:
      to: of the type of the cache, which has no scales.
      group, row: the group of devices, and the row among those of the group.
      first: the cache slot of the first token.
    """
    count, start = to.shape[1], 0
    width = self.keys.shape[-1]
    keys, values = (_of_group(x, group)[row] for x in (self.keys, self.values))
    while start < count:
      block, offset = divmod(first + start, width)
      end = min(count, start + width - offset)
      slots = slice(offset, offset + end - start)
      to[0, start:end] = keys[:, block, :, slots].transpose(2, 0, 1)
      to[1, start:end] = values[:, block, slots].transpose(1, 0, 2)
      start = end

  def write(
    self, keys: jax.Array, values: jax.Array, slot: jax.Array
  ) -> LayerCache:
    """Returns the cache with the keys and values [B, K, H] of a token.

    Its cache slot in [0, M), which is not checked, is a scalar, or [B] if it
    differs between rows.
    """
    block, offset = jnp.divmod(slot, self.keys.shape[-1])
    write = _scatter if jnp.ndim(slot) else _update
    new = _fields(keys, values, self._kind)
    axes = (4, 3, 3, 3)  # the axis W of each field
    return LayerCache(
      *[
        write(old, x, block, offset, axis)
        for old, x, axis in zip(jax.tree.leaves(self), new, axes, strict=False)
      ]
    )

  def step(
    self,
    qkv: jax.Array,
    angles: rope.Angles | None,
    scale: float,
    slot: jax.Array,
    mask: jax.Array,
    threads: int = 0,
  ) -> tuple[jax.Array, LayerCache]:
    """Writes a token of each row, see `write`, and attends to it, see `attend`.

    Args:
      qkv, angles, scale: of the token, as of `rope.heads`, [B, K, U + 2, H].
      threads: most of XLA's threads for `cpp/attend.cc`, which does all of it
        at once; 0: XLA does.
    """
    is_native = threads > 0 and self.keys.dtype.name in native.CACHES
    if is_native and native.fits(qkv.shape[-1], qkv.dtype):
      rows, half = len(qkv), qkv.shape[-1] // 2
      if angles is None:
        angles = jnp.ones((rows, half)), jnp.zeros((rows, half))
      slots = jnp.broadcast_to(jnp.asarray(slot, jnp.int32), rows)
      attended, *fields = native.attend(
        qkv, *angles, slots, self.keys, self.values, mask, scale, threads
      )
      return attended, LayerCache(*fields)
    queries, keys, values = rope.heads(qkv, angles, scale)
    cache = self.write(keys, values, slot)
    return cache.attend(queries, mask), cache

  def attend(
    self, queries: jax.Array, mask: jax.Array, bias: jax.Array | None = None
  ) -> jax.Array:
    """Computes the attention of queries [B, K, U, H] of one token per row.

    Args:
      mask: bool [B, M], cache slots that may be attended to; at least one per
        row.
      bias: [K, M] or [B, K, M], added to the scores.
    """
    b, k, blocks, h, width = self.keys.shape
    dtype = queries.dtype
    queries = jnp.broadcast_to(
      queries[:, :, None], (b, k, blocks, queries.shape[2], h)
    )
    scores = jnp.einsum(
      'bkxuh,bkxhw->bkxuw',
      queries,
      wide(self.keys).astype(dtype),
      preferred_element_type=jnp.float32,
    )
    if self.key_scales is not None:
      scores *= self.key_scales[:, :, :, None]
    if bias is not None:
      scores += bias.reshape(-1, k, blocks, 1, width)
    mask = mask.reshape(b, 1, blocks, 1, width)
    scores = jnp.where(mask, scores, _NEG_INF)
    # The softmax is normalised after the product, on H numbers instead of M.
    weights = jnp.exp(scores - jnp.max(scores, axis=(2, 4), keepdims=True))
    total = jnp.sum(weights, axis=(2, 4))
    if self.value_scales is not None:
      weights *= self.value_scales[:, :, :, None]
    attended = jnp.einsum(
      'bkxuw,bkxwh->bkxuh',
      weights.astype(dtype),
      wide(self.values).astype(dtype),
      preferred_element_type=jnp.float32,
    )
    attended = jnp.sum(attended, axis=2) / total[..., None]
    return attended.astype(dtype)


def _fields(
  keys: jax.Array, values: jax.Array, kind: str
) -> tuple[jax.Array, ...]:
  """Returns the fields of a `LayerCache`, with scales if quantized."""
  if kind == 'plain':
    return keys, values
  if kind == 'bfloat16':
    return tuple(
      jax.lax.bitcast_convert_type(x.astype(jnp.bfloat16), _BITS)
      for x in (keys, values)
    )
  (keys, key_scales), (values, value_scales) = quantize(keys), quantize(values)
  return keys, values, key_scales, value_scales


def _of_group(x: jax.Array, group: int) -> np.ndarray:
  """The rows of a group of devices, without a copy on CPU."""
  shards = {s.index[0].start or 0: s.data for s in x.addressable_shards}
  return np.asarray(shards[sorted(shards)[group]])


def wide(x: jax.Array) -> jax.Array:
  """Keys or values as numbers."""
  if x.dtype == _BITS:
    return jax.lax.bitcast_convert_type(x, jnp.bfloat16)
  return x


def _update(old, new, block, offset, axis) -> jax.Array:
  """Writes `new` [B, K, ...] into `old` [B, K, X, ...] at one cache slot."""
  start = [0] * old.ndim
  start[2], start[axis] = block, offset
  new = jnp.expand_dims(new, (2, axis))
  return jax.lax.dynamic_update_slice(old, new, start)


def _scatter(old, new, block, offset, axis) -> jax.Array:
  """Writes as `_update`, at a block and an offset [B] for each row.

  On CPU this is as fast as one cache slot for all rows: 2.5 ms for 4 layers of
  16 rows, including attention. Selecting by a one-hot mask rewrites the whole
  cache and takes 0.6 ms more. The index promises avoid a bounds check.
  """
  index = [slice(None)] * old.ndim
  index[0], index[2], index[axis] = jnp.arange(len(old)), block, offset
  return old.at[tuple(index)].set(
    new, mode='promise_in_bounds', unique_indices=True, indices_are_sorted=True
  )
