"""Value head per token, and reward model per text."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from promptrl_jax.models import encoder_weights
from promptrl_jax.models.encoder import Encoder, EncoderConfig

# (Regular expression of a leaf's path, mesh axes that the leaf is split over).
PARTITION: tuple[tuple[str, P], ...] = (
  *((f'encoder/{leaf}', spec) for leaf, spec in encoder_weights.PARTITION),
  (r'head/(kernel|bias)', P()),
)


class ValueHead(nn.Module):
  """A linear value head on the hidden states of a language model.

  Attributes:
    zero_init: whether all values start at 0, so that the first advantages equal
      the returns and contain no noise of a random projection.
  """

  zero_init: bool = True

  @nn.compact
  def __call__(self, hidden: jax.Array) -> jax.Array:
    """Returns values float32 [...] of hidden states [..., D].

    A token's value is that of the state after the token.
    """
    return _score(self, hidden, 0.0 if self.zero_init else 0.02)


class RewardHead(nn.Module):
  """Dropout, a linear layer and a sigmoid, for a rating in [0, 1].

  Attributes:
    dropout: dropout rate of the features in training.
  """

  dropout: float = 0.1

  @nn.compact
  def __call__(
    self, pooled: jax.Array, deterministic: bool = True
  ) -> jax.Array:
    """Rates texts.

    Args:
      pooled: [..., D], one vector per text.
      deterministic: turns dropout off; otherwise, `apply` needs
        `rngs={'dropout': key}`.

    Returns:
      float32 [...], in [0, 1].
    """
    pooled = nn.Dropout(self.dropout)(pooled, deterministic=deterministic)
    return nn.sigmoid(_score(self, pooled, 0.02))


class RewardModel(nn.Module):
  """A reward model: an encoder with a reward head, `encoder` and `head`.

  To start from a trained encoder, replace the subtree `encoder` of the
  parameters by the encoder's own tree.

  Attributes:
    config: configuration of the encoder.
    pooling: one of `encoder.POOLINGS`.
    dropout: dropout rate of the head.
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
      tokens: int [B, S], padded on the right.
      mask: bool [B, S], False on padding.
      token_types: int [B, S], 1 in the second text of a pair; None: all 0.
      deterministic: as in `RewardHead`.

    Returns:
      float32 [B], in [0, 1].
    """
    pooled = self.encoder.embed(tokens, mask, token_types, self.pooling)
    return self.head(pooled, deterministic)


def shapes(
  config: EncoderConfig, pooling: str = 'mean', dropout: float = 0.1
) -> Any:
  """Returns the `RewardModel` parameters as `jax.ShapeDtypeStruct` leaves."""
  tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
  mask = jax.ShapeDtypeStruct((1, 1), jnp.bool_)
  model = RewardModel(config, pooling, dropout)
  return jax.eval_shape(model.init, jax.random.key(0), tokens, mask)


def _score(module: nn.Module, x: jax.Array, stddev: float) -> jax.Array:
  """Computes x w + b in float32, [..., D] -> [...]; `b` starts at 0."""
  kernel = module.param('kernel', nn.initializers.normal(stddev), x.shape[-1:])
  bias = module.param('bias', nn.initializers.zeros, ())
  return x.astype(jnp.float32) @ kernel.astype(jnp.float32) + bias
