"""Actor and critic over candidate answers, and the choice of a temperature.

All candidates of a query pass through the same small network, one by one, so
that their order does not matter and any number of them may be padding. What is
linear in the features is learned from few ratings.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np


class CandidateBasis(nn.Module):
  """What actor and critic are linear in: features, and tanh layers beside them.

  Attributes:
    hidden: widths of the tanh layers; none leaves the features alone.
  """

  hidden: tuple[int, ...] = ()

  @nn.compact
  def __call__(self, features: jax.Array) -> jax.Array:
    """Returns `[..., D + last width]` of features `[..., D]`."""
    x = features
    for i, width in enumerate(self.hidden):
      # Without a bias every feature would be odd, and blind to what is even.
      dense = nn.Dense(
        width, bias_init=nn.initializers.normal(1.0), name=f'hidden_{i}'
      )
      x = nn.tanh(dense(x))
    return jnp.concatenate([features, x], -1) if self.hidden else features


class CandidateActor(nn.Module):
  """Gives logits `[..., G]`; the first policy is uniform.

  Attributes:
    hidden: of the basis.
  """

  hidden: tuple[int, ...] = ()

  @nn.compact
  def __call__(self, features: jax.Array) -> jax.Array:
    """Returns logits `[..., G]` of features `[..., G, D]`."""
    basis = CandidateBasis(self.hidden, name='basis')(features)
    zeros = nn.initializers.zeros
    return nn.Dense(1, kernel_init=zeros, name='head')(basis)[..., 0]


class CandidateCritic(nn.Module):
  """Gives scores `[K, ..., G]`: logits of a person's satisfaction.

  The members share their basis, and its layers keep their first weights: with
  such random features (Rahimi and Recht, 2007, Random Features for Large-Scale
  Kernel Machines) only what is linear is learned, and `rl.laplace` knows how
  much is unknown. The first weights are draws from the prior, with mean 0 over
  members.

  Attributes:
    hidden: of the basis.
    members: K, draws from what is known.
    scale: standard deviation of scores under the prior, at standardised
      features; the bias has the same.
  """

  hidden: tuple[int, ...] = ()
  members: int = 1
  scale: float = 1.0

  def setup(self):
    kernel_init = nn.initializers.variance_scaling(
      self.scale**2, 'fan_in', 'normal'
    )
    self.basis = CandidateBasis(self.hidden)
    self.head = nn.Dense(
      self.members,
      kernel_init=_centred(kernel_init),
      bias_init=_centred(nn.initializers.normal(self.scale)),
    )

  def inputs(self, features: jax.Array) -> jax.Array:
    """Returns what scores are linear in, `[..., G, P]`, the last one a 1."""
    basis = self.basis(features)
    return jnp.concatenate([basis, jnp.ones_like(basis[..., :1])], axis=-1)

  def __call__(self, features: jax.Array) -> jax.Array:
    """Returns scores `[K, ..., G]` of features `[..., G, D]`."""
    return jnp.moveaxis(self.head(self.basis(features)), -1, 0)


def _centred(init: nn.initializers.Initializer) -> nn.initializers.Initializer:
  """Draws with mean 0 over the last axis, that of the members."""

  def draw(*args: Any, **kwargs: Any) -> jax.Array:
    drawn = jnp.asarray(init(*args, **kwargs))
    return drawn - jnp.mean(drawn, axis=-1, keepdims=True)

  return draw


class TemperatureHead(nn.Module):
  """Chooses the sampling temperature of a query before it is answered.

  Attributes:
    choices: number of temperatures.
  """

  choices: int

  @nn.compact
  def __call__(self, context: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns logits `[..., choices]` and what a query earns, `[...]`.

    `context` are features `[..., Q]` of queries. The second is the baseline of
    the choice.
    """
    zeros = nn.initializers.zeros
    logits = nn.Dense(self.choices, kernel_init=zeros, name='logits')(context)
    value = nn.Dense(1, kernel_init=zeros, name='value')(context)
    return logits, value[..., 0]


def cross_features(query: np.ndarray, answers: np.ndarray) -> np.ndarray:
  """Returns features of candidates: query, answer, and all their products.

  With the products, a linear map can like one thing for one kind of query and
  another for the next.

  Args:
    query: `[..., Q]` features of queries.
    answers: `[..., G, P]` features of system prompts and responses.

  Returns:
    `[..., G, Q + P + Q * P]` float32.
  """
  group = answers.shape[-2]
  queries = np.repeat(query[..., None, :], group, axis=-2)
  products = queries[..., :, None] * answers[..., None, :]
  products = products.reshape(*answers.shape[:-1], -1)
  parts = [queries, answers, products]
  return np.concatenate(parts, axis=-1).astype(np.float32)
