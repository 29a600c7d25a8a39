"""Actor and critic over candidate answers, and the choice of a temperature.

All candidates of a query pass through the same small network, one by one, so
that their order does not matter and any number of them may be padding. A linear
part beside the hidden layers learns from few ratings what is linear.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import numpy as np


class CandidateNetwork(nn.Module):
  """Maps features of candidates to one number each.

    f(x) = w x + b + v tanh(W x + c)

  Attributes:
    hidden: widths of the tanh layers; none leaves a linear map.
    scale: standard deviation of the output at random standardised features,
      for each of the two parts; 0 gives 0 for every candidate.
  """

  hidden: tuple[int, ...] = ()
  scale: float = 0.0

  @nn.compact
  def __call__(self, features: jax.Array) -> jax.Array:
    """Returns outputs `[..., G]` of features `[..., G, D]`."""
    init = nn.initializers.zeros
    if self.scale:
      init = nn.initializers.variance_scaling(self.scale**2, 'fan_in', 'normal')
    outputs = nn.Dense(1, kernel_init=init, name='linear')(features)
    x = features
    for i, width in enumerate(self.hidden):
      x = nn.tanh(nn.Dense(width, name=f'hidden_{i}')(x))
    if self.hidden:
      outputs += nn.Dense(1, False, kernel_init=init, name='mixed')(x)
    return outputs[..., 0]


class CandidateActor(CandidateNetwork):
  """Gives logits `[..., G]`; the first policy is uniform."""


class CandidateCritic(CandidateNetwork):
  """Gives scores `[..., G]`: logits of a person's satisfaction.

  The first parameters are a draw from the prior that training pulls towards,
  which is why members of an ensemble differ where there are no data.
  """

  scale: float = 1.0


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
