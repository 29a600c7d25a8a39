"""The sampling temperature of a query, chosen before it is answered.

A policy over a few temperatures sees features of the query. What a choice is
worth is what the actor then makes of the candidates: the mean, under the actor,
of their rewards, imputed where nothing was observed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from promptrl_jax.rl import losses
from promptrl_jax.training.gpro.config import GPROConfig
from promptrl_jax.training.gpro.objectives import clipped_loss_fn


class TemperatureChoice(NamedTuple):
  """What was chosen for B queries.

  Attributes:
    value: `[B]`, sampling temperatures for the backend.
    index: `[B]` int32, their numbers among those of the config.
    logp: `[B]`, log-probabilities of the choices.
  """

  value: jax.Array
  index: jax.Array
  logp: jax.Array


def choose(
  config: GPROConfig, logits: jax.Array, key: jax.Array
) -> TemperatureChoice:
  """Draws a temperature each from logits `[B, choices]`; consumes the key."""
  logps = jnp.log(
    (1 - config.uniform) * jax.nn.softmax(logits)
    + config.uniform / len(config.temperatures)
  )
  index = jax.random.categorical(key, logps).astype(jnp.int32)
  values = jnp.asarray(config.temperatures, jnp.float32)
  logp = jnp.take_along_axis(logps, index[:, None], axis=1)[:, 0]
  return TemperatureChoice(values[index], index, logp)


class TemperatureRows(NamedTuple):
  """Rows that the policy learns from, `[M]` each.

  Attributes:
    index: the temperature that was chosen.
    logp: its log-probability then.
    old_logp: its log-probability before this update.
    reward: what the candidates are worth.
  """

  index: jax.Array
  logp: jax.Array
  old_logp: jax.Array
  reward: jax.Array


def loss(
  logits: jax.Array,
  values: jax.Array,
  rows: TemperatureRows,
  config: GPROConfig,
) -> tuple[jax.Array, dict[str, Any]]:
  """Sums clipped surrogate, squared error of the baseline, minus entropy.

  Args:
    logits: `[M, choices]`.
    values: `[M]`, the baseline.
  """
  weight = jnp.exp(rows.old_logp - rows.logp)
  policy, _ = clipped_loss_fn(config)(
    losses.categorical_logps(logits, rows.index),
    rows.old_logp,
    rows.reward - jax.lax.stop_gradient(values),
    weights=jnp.minimum(weight, config.max_weight),
  )
  entropy = jnp.sum(losses.categorical_entropy(logits))
  error = losses.value_loss(values, values, rows.reward)
  # Advantages are differences of satisfaction, about a tenth of those of
  # candidates, which are standardised.
  total = policy + error - 0.1 * config.entropy_coef * entropy
  return total, {'entropy': entropy}
