"""Rotary position embeddings (RoPE, arXiv 2104.09864)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from promptrl_jax.models import attention
from promptrl_jax.models.config import RopeScaling, TransformerConfig

Angles = tuple[jax.Array, jax.Array]  # cosines and sines [..., H/2]


def of_positions(
  config: TransformerConfig, positions: jax.Array
) -> Angles | attention.ByLayer | None:
  """Returns the cosine and sine for RoPE; None for learned positions."""
  c = config
  if c.positions != 'rope':
    return None
  whole = angles(positions, c.head_size, c.rope_theta, c.rope_scaling)
  if c.local_rope_theta is None:
    return whole
  local = angles(positions, c.head_size, c.local_rope_theta)
  return attention.ByLayer(windowed=local, full=whole)


def angles(
  positions: jax.Array,
  head_size: int,
  theta: float,
  scaling: RopeScaling | None = None,
) -> Angles:
  """Returns cos and sin [..., H/2] at positions, int [...]."""
  turned = positions[..., None].astype(jnp.float32) * frequencies(
    head_size, theta, scaling
  )
  return jnp.cos(turned), jnp.sin(turned)


def frequencies(
  head_size: int, theta: float, scaling: RopeScaling | None = None
) -> jax.Array:
  """Returns the turns per position, in radians, of each pair: [H/2]."""
  exponent = jnp.arange(0, head_size, 2, dtype=jnp.float32) / head_size
  plain = theta**-exponent
  return plain if scaling is None else _scaled(plain, scaling)


def _scaled(plain: jax.Array, scaling: RopeScaling) -> jax.Array:
  """Returns the frequencies of `RopeScaling`."""
  slow = plain / scaling.factor
  if scaling.kind == 'linear':
    return slow
  # The number of turns within the original context decides the share of the
  # unscaled frequency: 0 for low frequencies, 1 for high ones.
  turns = scaling.original_positions * plain / (2 * math.pi)
  low, high = scaling.low_freq_factor, scaling.high_freq_factor
  share = jnp.clip((turns - low) / (high - low), 0.0, 1.0)
  return (1 - share) * slow + share * plain


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
  """Rotates pairs of `x` [..., H], split in halves as by Hugging Face."""
  first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  rotated = [first * cos - second * sin, second * cos + first * sin]
  return jnp.concatenate(rotated, axis=-1).astype(x.dtype)


def heads(
  qkv: jax.Array, angles: Angles | None, scale: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Takes apart [..., K, U + 2, H]: U queries, a key and a value for each of K.

  Returns:
    Queries [..., K, U, H], rotated and scaled, rotated keys [..., K, H], and
    values.
  """
  rotated, values = qkv[..., :-1, :], qkv[..., -1, :]
  if angles is not None:
    rotated = rotate(rotated, *(x[..., None, None, :] for x in angles))
  return rotated[..., :-1, :] * scale, rotated[..., -1, :], values
