"""Keys and values of one layer during decoding."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from promptrl_jax.models import native
from promptrl_jax.models.kernels import quantize

_NEG_INF = -1e30
_BLOCK = 96  # most slots of a block
_MULTIPLE = 16  # of slots and of the head, for `cpp/attend.cc`


def layout(slots: int) -> tuple[int, int]:
  """Blocks C and their width W with room for so many slots."""
  blocks = -(-slots // _BLOCK)
  width = -(-slots // blocks)
  return blocks, -(-width // _MULTIPLE) * _MULTIPLE


@struct.dataclass
class LayerCache:
  """S = C * W slots in C blocks of W.

  In both products of a decode step the innermost axis is the one that is
  contiguous in memory, and a block stays in the nearest cache of a core: the
  product with one block of 176 keys took 1.7 times as long as with two of 88.

  In int8 each key and each value is a multiple of its largest magnitude over
  127; the scales are None otherwise.
  """

  keys: jax.Array  # [B, K, C, H, W]
  values: jax.Array  # [B, K, C, W, H]
  key_scales: jax.Array | None = None  # [B, K, C, W]
  value_scales: jax.Array | None = None  # [B, K, C, W]

  @classmethod
  def from_prefill(
    cls, keys: jax.Array, values: jax.Array, free: int, kind: str = 'plain'
  ) -> LayerCache:
    """Lays out `keys` and `values` [B, P, K, H] with `free` slots behind."""
    blocks, width = layout(keys.shape[1] + free)
    return cls.in_blocks(keys, values, blocks, width, kind)

  @classmethod
  def in_blocks(
    cls,
    keys: jax.Array,
    values: jax.Array,
    blocks: int,
    width: int,
    kind: str = 'plain',
  ) -> LayerCache:
    """Lays out `keys` and `values` [B, P, K, H] in C blocks of W slots.

    `kind` is `plain`, or `int8` to round them.
    """
    padding = (0, blocks * width - keys.shape[1])

    def lay_out(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
      widths = ((0, 0), padding, *[(0, 0)] * (x.ndim - 2))
      shape = (len(x), blocks, width, *x.shape[2:])
      return jnp.transpose(jnp.pad(x, widths).reshape(shape), axes)

    axes = ((0, 3, 1, 4, 2), (0, 3, 1, 2, 4), (0, 3, 1, 2), (0, 3, 1, 2))
    rounded = _rounded(keys, values, kind == 'int8')
    return cls(*[lay_out(*pair) for pair in zip(rounded, axes, strict=False)])

  @property
  def num_slots(self) -> int:
    return self.keys.shape[2] * self.keys.shape[4]

  def write(
    self, keys: jax.Array, values: jax.Array, slot: jax.Array
  ) -> LayerCache:
    """The cache with `keys` and `values` [B, 1, K, H] at `slot`.

    Args:
      keys, values: of one token per row.
      slot: a scalar, or [B] for rows that are not at the same slot; in
        [0, S), which nothing checks.
    """
    block, place = jnp.divmod(slot, self.keys.shape[-1])
    put = _scatter if jnp.ndim(slot) else _update
    new = _rounded(keys[:, 0], values[:, 0], self.key_scales is not None)
    axes = (4, 3, 3, 3)  # of the slots within a block
    return LayerCache(
      *[
        put(old, x, block, place, axis)
        for old, x, axis in zip(jax.tree.leaves(self), new, axes, strict=False)
      ]
    )

  def is_native(self, threads: int, dtype: Any) -> bool:
    """Whether `attend`, of queries of `dtype`, is that of `cpp/attend.cc`."""
    is_wide = dtype == self.keys.dtype == jnp.float32
    return threads > 0 and is_wide and self.keys.shape[3] % _MULTIPLE == 0

  def attend(
    self,
    queries: jax.Array,
    mask: jax.Array,
    bias: jax.Array | None = None,
    threads: int = 0,
  ) -> jax.Array:
    """Attention of one token over the slots.

    Args:
      queries: [B, K, G, H], already scaled.
      mask: bool [B, S], slots that may be attended to; at least one per row.
      bias: [K, S] or [B, K, S], added to the scores.
      threads: how many of XLA's share `cpp/attend.cc`; 0: not by it.

    Returns:
      [B, K, G, H].
    """
    b, k, blocks, h, width = self.keys.shape
    dtype = queries.dtype
    if bias is None and self.is_native(threads, dtype):
      return native.call(
        'attend', queries.shape, threads, queries, self.keys, self.values, mask
      )
    queries = jnp.broadcast_to(
      queries[:, :, None], (b, k, blocks, queries.shape[2], h)
    )
    scores = jnp.einsum(
      'bkcgh,bkchw->bkcgw',
      queries,
      self.keys.astype(dtype),
      preferred_element_type=jnp.float32,
    )
    if self.key_scales is not None:
      scores *= self.key_scales[:, :, :, None]
    if bias is not None:
      scores += bias.reshape(-1, k, blocks, 1, width)
    mask = mask.reshape(b, 1, blocks, 1, width)
    scores = jnp.where(mask, scores, _NEG_INF)
    # The softmax is divided out after the product: H numbers instead of S.
    weights = jnp.exp(scores - jnp.max(scores, axis=(2, 4), keepdims=True))
    total = jnp.sum(weights, axis=(2, 4))
    if self.value_scales is not None:
      weights *= self.value_scales[:, :, :, None]
    attended = jnp.einsum(
      'bkcgw,bkcwh->bkcgh',
      weights.astype(dtype),
      self.values.astype(dtype),
      preferred_element_type=jnp.float32,
    )
    attended = jnp.sum(attended, axis=2) / total[..., None]
    return attended.astype(dtype)


def _rounded(
  keys: jax.Array, values: jax.Array, to_int8: bool
) -> tuple[jax.Array, ...]:
  """The fields of a `LayerCache`, with scales if rounded."""
  if not to_int8:
    return keys, values
  (keys, key_scales), (values, value_scales) = quantize(keys), quantize(values)
  return keys, values, key_scales, value_scales


def _update(old, new, block, place, axis) -> jax.Array:
  """`old` [B, K, C, ...] with `new` [B, K, ...] at a block and place."""
  start = [0] * old.ndim
  start[2], start[axis] = block, place
  new = jnp.expand_dims(new, (2, axis))
  return jax.lax.dynamic_update_slice(old, new, start)


def _scatter(old, new, block, place, axis) -> jax.Array:
  """`_update` at one block and place [B] per row, in place.

  As fast on CPU as one slot for all rows (2.5 ms for 4 layers of 16 rows with
  their attention, either way); selecting by a one-hot mask rewrites the whole
  cache, 0.6 ms more. Without the promises a bounds check is added.
  """
  index = [slice(None)] * old.ndim
  index[0], index[2], index[axis] = jnp.arange(len(old)), block, place
  return old.at[tuple(index)].set(
    new,
    mode='promise_in_bounds',
    unique_indices=True,
    indices_are_sorted=True,
  )
