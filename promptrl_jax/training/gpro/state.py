"""What GPRO carries from one update to the next, and its networks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import optax

from promptrl_jax.models.candidates import (
  CandidateActor,
  CandidateCritic,
  TemperatureHead,
)
from promptrl_jax.rl import losses
from promptrl_jax.training.gpro.config import GPROConfig
from promptrl_jax.training.gpro.replay import Replay
from promptrl_jax.training.state import Params, TrainState


@flax.struct.dataclass
class GPROState(TrainState):
  """The train state.

  `params` has the keys `actor`, of K networks, `critic`, with K heads, and
  `temperature` if there are temperatures to choose from; `opt_state` the same
  but `critic`, which takes no steps.

  Attributes:
    anchor: parameters of the actors that the KL divergence refers to.
    first: the first parameters: uniform actors, and critics drawn from the
      prior.
    changed: `[]` int32, the last query before the taste changed; -1 if it has
      not.
    mean, scale: `[D]`, by which features are standardised.
  """

  anchor: Params
  first: Params
  changed: jax.Array
  mean: jax.Array
  scale: jax.Array


@flax.struct.dataclass
class GPRORun:
  """What a checkpoint holds: the state, and the replay."""

  state: GPROState
  replay: Replay

  @property
  def step(self) -> jax.Array:
    return self.state.step


class Parts(NamedTuple):
  """Pure functions of the networks, and their optimizers.

  Attributes:
    actor: `(params [K], features [M, G, D]) -> logits [K, M, G]`.
    critic: `(params, features [M, G, D]) -> scores [K, M, G]`.
    inputs: what scores are linear in, `[M, G, P]`.
    temperature: `(params, context [M, Q]) -> logits [M, choices], values [M]`.
    optimizers: by the keys of the parameters.
    initial: `key -> GPROState`.
  """

  actor: Callable[[Params, jax.Array], Any]
  critic: Callable[[Params, jax.Array], Any]
  inputs: Callable[[Params, jax.Array], Any]
  temperature: Callable[[Params, jax.Array], Any]
  optimizers: Mapping[str, optax.GradientTransformation]
  initial: Callable[[jax.Array], GPROState]


def make_parts(config: GPROConfig) -> Parts:
  """Builds the networks of all members, and the temperature's.

  Raises:
    ValueError: a temperature is to be chosen, and nothing is known of a query.
  """
  if config.temperatures and config.context < 1:
    raise ValueError(
      f'temperatures={config.temperatures}, context={config.context}: expected '
      'a feature of the query, on which the temperature depends, or more'
    )
  actor = CandidateActor(config.hidden)
  critic = CandidateCritic(config.hidden, config.members, config.prior_scale)
  temperature = TemperatureHead(len(config.temperatures))
  optimizers = {'actor': optax.adam(config.actor_lr)}
  if config.temperatures:
    optimizers['temperature'] = optax.adam(config.actor_lr)

  def initial(key: jax.Array) -> GPROState:
    init_key, base_key = jax.random.split(key)
    actor_key, critic_key, temperature_key = jax.random.split(init_key, 3)
    members = lambda key: jax.random.split(key, config.members)
    features = jnp.zeros((1, config.features))
    params = {
      'actor': jax.vmap(actor.init, (0, None))(members(actor_key), features),
      'critic': critic.init(critic_key, features),
    }
    if config.temperatures:
      context = jnp.zeros(config.context)
      params['temperature'] = temperature.init(temperature_key, context)
    return GPROState(
      params=params,
      opt_state={name: o.init(params[name]) for name, o in optimizers.items()},
      step=jnp.zeros((), jnp.int32),
      key_data=jax.random.key_data(base_key),
      anchor=params['actor'],
      first=params,
      changed=jnp.array(-1, jnp.int32),
      mean=jnp.zeros(config.features),
      scale=jnp.ones(config.features),
    )

  return Parts(
    jax.vmap(actor.apply, (0, None)),
    critic.apply,
    functools.partial(critic.apply, method='inputs'),
    temperature.apply,
    optimizers,
    initial,
  )


def standardise(state: GPROState, features: jax.Array) -> jax.Array:
  """Returns features `[..., D]` with mean 0 and deviation 1, within 5."""
  return jnp.clip((features - state.mean) / state.scale, -5, 5)


def mixture(
  config: GPROConfig, logits: jax.Array, mask: jax.Array
) -> jax.Array:
  """Returns the policy, as log-probabilities `[B, G]`.

  It is the mean of the actors' (`[K, B, G]` logits), mixed with the uniform
  one. Invalid candidates have a finite one, of next to nothing.
  """
  logits = jax.vmap(losses.mask_logits, (0, None))(logits, mask)
  policy = jnp.mean(jax.nn.softmax(logits), axis=0)
  uniform = mask / jnp.maximum(jnp.sum(mask, axis=1, keepdims=True), 1)
  policy = (1 - config.uniform) * policy + config.uniform * uniform
  return jnp.log(jnp.maximum(policy, 1e-30))
