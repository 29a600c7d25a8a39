"""Keys and values of one layer during decoding."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct

_NEG_INF = -1e30
_BLOCK = 96  # most slots of a block


def layout(slots: int) -> tuple[int, int]:
  """Blocks C and their width W with room for so many slots."""
  blocks = -(-slots // _BLOCK)
  return blocks, -(-slots // blocks)


@struct.dataclass
class LayerCache:
  """S = C * W slots in C blocks of W.

  In both products of a decode step the innermost axis is the one that is
  contiguous in memory, and a block stays in the nearest cache of a core: the
  product with one block of 176 keys took 1.7 times as long as with two of 88.
  """

  keys: jax.Array  # [B, K, C, H, W]
  values: jax.Array  # [B, K, C, W, H]

  @classmethod
  def from_prefill(
    cls, keys: jax.Array, values: jax.Array, free: int
  ) -> LayerCache:
    """Lays out `keys` and `values` [B, P, K, H] with `free` slots behind."""
    return cls.in_blocks(keys, values, *layout(keys.shape[1] + free))

  @classmethod
  def in_blocks(
    cls, keys: jax.Array, values: jax.Array, blocks: int, width: int
  ) -> LayerCache:
    """Lays out `keys` and `values` [B, P, K, H] in C blocks of W slots."""
    b, prompt, k, h = keys.shape
    padding = ((0, 0), (0, blocks * width - prompt), (0, 0), (0, 0))
    shape = (b, blocks, width, k, h)
    return cls(
      jnp.transpose(jnp.pad(keys, padding).reshape(shape), (0, 3, 1, 4, 2)),
      jnp.transpose(jnp.pad(values, padding).reshape(shape), (0, 3, 1, 2, 4)),
    )

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
    if jnp.ndim(slot):
      return self._scatter(keys[:, 0], values[:, 0], block, place)
    keys, values = keys[:, 0, :, None, :, None], values[:, 0, :, None, None]
    update = jax.lax.dynamic_update_slice
    return LayerCache(
      update(self.keys, keys, (0, 0, block, 0, place)),
      update(self.values, values, (0, 0, block, place, 0)),
    )

  def _scatter(self, keys, values, block, place) -> LayerCache:
    """Writes [B, K, H] at one block and place [B] per row, in place.

    As fast on CPU as one slot for all rows (2.5 ms for 4 layers of 16 rows
    with their attention, either way); selecting by a one-hot mask rewrites the
    whole cache, 0.6 ms more. Without the promises a bounds check is added.
    """
    rows = jnp.arange(len(keys))
    promises = {
      'mode': 'promise_in_bounds',
      'unique_indices': True,
      'indices_are_sorted': True,
    }
    return LayerCache(
      self.keys.at[rows, :, block, :, place].set(keys, **promises),
      self.values.at[rows, :, block, place].set(values, **promises),
    )

  def attend(
    self, queries: jax.Array, mask: jax.Array, bias: jax.Array | None = None
  ) -> jax.Array:
    """Attention of one token over the slots.

    Args:
      queries: [B, K, G, H], already scaled.
      mask: bool [B, S], slots that may be attended to; at least one per row.
      bias: [K, S], added to the scores.

    Returns:
      [B, K, G, H].
    """
    b, k, blocks, h, width = self.keys.shape
    queries = jnp.broadcast_to(
      queries[:, :, None], (b, k, blocks, queries.shape[2], h)
    )
    scores = jnp.einsum(
      'bkcgh,bkchw->bkcgw', queries, self.keys,
      preferred_element_type=jnp.float32,
    )  # fmt: skip
    if bias is not None:
      scores += bias.reshape(1, k, blocks, 1, width)
    mask = mask.reshape(b, 1, blocks, 1, width)
    scores = jnp.where(mask, scores, _NEG_INF)
    # The softmax is divided out after the product: H numbers instead of S.
    weights = jnp.exp(scores - jnp.max(scores, axis=(2, 4), keepdims=True))
    attended = jnp.einsum(
      'bkcgw,bkcwh->bkcgh', weights.astype(self.values.dtype), self.values,
      preferred_element_type=jnp.float32,
    )  # fmt: skip
    total = jnp.sum(weights, axis=(2, 4))
    attended = jnp.sum(attended, axis=2) / total[..., None]
    return attended.astype(self.values.dtype)
