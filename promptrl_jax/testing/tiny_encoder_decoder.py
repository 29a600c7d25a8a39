"""A tiny encoder-decoder with random parameters, for tests."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.models import encoder_decoder
from promptrl_jax.models.encoder_decoder import EncoderDecoderConfig

CONFIG = EncoderDecoderConfig(
  vocab_size=99,
  hidden_size=24,
  num_layers=3,
  num_decoder_layers=2,
  num_heads=3,
  head_size=6,
  mlp_size=40,
  num_buckets=8,
  max_distance=20,
)
GATED = dataclasses.replace(
  CONFIG, is_gated=True, tie_embeddings=False, scaled=False
)


@functools.cache
def params(config: EncoderDecoderConfig = CONFIG, seed: int = 0) -> Any:
  """Returns random parameters whose next-token distributions are peaked.

  The values come from numpy, because compiling Flax's `init` takes longer than
  most tests.
  """
  rng = np.random.default_rng(seed)

  def draw(leaf: jax.ShapeDtypeStruct) -> jax.Array:
    stddev = 1.5 if config.vocab_size in leaf.shape else 0.25
    # The scales of stacked norms have two axes, [L, D].
    is_norm = leaf.ndim == 1 or leaf.shape[1:] == (config.hidden_size,)
    is_norm &= config.vocab_size not in leaf.shape
    values = is_norm + stddev * rng.normal(size=leaf.shape)
    return jnp.asarray(values, leaf.dtype)

  return jax.tree.map(draw, encoder_decoder.shapes(config))
