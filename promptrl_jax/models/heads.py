"""Small heads on hidden states: a value per token, a reward per text."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from promptrl_jax.models import encoder_weights
from promptrl_jax.models.encoder import Encoder, EncoderConfig

# Leaf of a `RewardModel` -> axes of the mesh that it is split over.
PARTITION: tuple[tuple[str, P], ...] = (
  *((f'encoder/{leaf}', spec) for leaf, spec in encoder_weights.PARTITION),
  (r'head/(kernel|bias)', P()),
)


class ValueHead(nn.Module):
  """Expected return of each token of a language model.

  Attributes:
    zero_init: the first values are 0 everywhere, so that the first advantages
      are the returns themselves and not the noise of a random projection.
  """

  zero_init: bool = True

  @nn.compact
  def __call__(self, hidden: jax.Array) -> jax.Array:
    """Hidden states [..., T, D] of any float type -> values float32 [..., T].

    The value at a place is that of the state after its token was read.
    """
    return _score(self, hidden, 0.0 if self.zero_init else 0.02)


class RewardHead(nn.Module):
  """Dropout, a linear layer, a sigmoid: the rating of a text, in [0, 1].

  Attributes:
    dropout: share of the features that are left out in training.
  """

  dropout: float = 0.1

  @nn.compact
  def __call__(
    self, pooled: jax.Array, deterministic: bool = True
  ) -> jax.Array:
    """Rates texts.

    Args:
      pooled: [..., D], one vector per text.
      deterministic: no dropout; else `apply` needs `rngs={'dropout': key}`.

    Returns:
      float32 [...], in [0, 1].
    """
    pooled = nn.Dropout(self.dropout)(pooled, deterministic=deterministic)
    return nn.sigmoid(_score(self, pooled, 0.02))


class RewardModel(nn.Module):
  """An encoder and a reward head, as one tree: `encoder` and `head`.

  To start from a trained encoder, put its tree (below `params`) in the place of
  `encoder`.

  Attributes:
    config: of the encoder.
    pooling: one of `encoder.POOLINGS`.
    dropout: of the head.
  """

  config: EncoderConfig
  pooling: str = 'mean'
  dropout: float = 0.1

  def setup(self):
    self.encoder = Encoder(self.config)
    self.head = RewardHead(self.dropout)

  def __call__(
    self,
    tokens: jax.Array,
    mask: jax.Array,
    token_types: jax.Array | None = None,
    deterministic: bool = True,
  ) -> jax.Array:
    """Rates texts, or pairs of texts such as a prompt and its answer.

    Args:
      tokens: int [B, T], padded on the right.
      mask: bool [B, T], False where padded.
      token_types: int [B, T], 1 in the second text of a pair; None: all 0.
      deterministic: no dropout; else `apply` needs `rngs={'dropout': key}`.

    Returns:
      float32 [B], in [0, 1].
    """
    pooled = self.encoder.embed(tokens, mask, token_types, self.pooling)
    return self.head(pooled, deterministic)


def shapes(
  config: EncoderConfig, pooling: str = 'mean', dropout: float = 0.1
) -> Any:
  """Tree of a `RewardModel` as `jax.ShapeDtypeStruct`, `params` at the top."""
  tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
  mask = jax.ShapeDtypeStruct((1, 1), jnp.bool_)
  model = RewardModel(config, pooling, dropout)
  return jax.eval_shape(model.init, jax.random.key(0), tokens, mask)


def _score(module: nn.Module, x: jax.Array, stddev: float) -> jax.Array:
  """x w + b in float32: [..., D] -> [...]; `w` starts normal, `b` at 0."""
  kernel = module.param('kernel', nn.initializers.normal(stddev), x.shape[-1:])
  bias = module.param('bias', nn.initializers.zeros, ())
  return x.astype(jnp.float32) @ kernel.astype(jnp.float32) + bias
