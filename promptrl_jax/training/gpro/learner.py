"""GPRO: which of several answers a person sees, learned from what they say.

  features [B, G, D] ─► act ─► shown ─► a person ─► replay.rate, at any time
                         ▲                              │
                         └── update, every M queries ◄──┘
                             critic: likelihood of all feedback in the replay
                             actor:  rewards of all candidates, imputed by the
                                     critic ─► clipped surrogate

Several actor-critic pairs are trained side by side, each critic on its own
weighting of the feedback. The policy is the mean of the actors: "Deep
Exploration via Bootstrapped DQN", Osband et al., 2016
(https://arxiv.org/abs/1602.04621). All that is drawn is a function of seed,
step and purpose, so that a resumed run equals one that was not interrupted.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from promptrl_jax.models.candidates import (
  CandidateActor,
  CandidateCritic,
)
from promptrl_jax.rl import losses
from promptrl_jax.training import gradients
from promptrl_jax.training.gpro import objectives
from promptrl_jax.training.gpro.config import GPROConfig
from promptrl_jax.training.gpro.replay import NONE, Replay
from promptrl_jax.training.state import Params, TrainState, step_key

Metrics = dict[str, jax.Array]


@flax.struct.dataclass
class GPROState(TrainState):
  """The train state; `params` has `actor` and `critic`, of K members each.

  Attributes:
    anchor: parameters of the actors that the KL divergence refers to.
    prior: first parameters of the critics.
    mean, scale: `[D]`, by which features are standardised.
  """

  anchor: Params
  prior: Params
  mean: jax.Array
  scale: jax.Array


class Choice(NamedTuple):
  """What the policy chose for B queries.

  Attributes:
    shown: `[B]` int32, index of the candidate to show.
    other: `[B]` int32, a second one for a pair; differs from `shown` if there
      are two valid candidates.
    logps: `[B, G]` log-probabilities of showing each candidate.
    scores: `[B, G]`, satisfaction in [0, 1] that the critics expect.
    spread: `[B, G]`, standard deviation of the critics' scores.
  """

  shown: jax.Array
  other: jax.Array
  logps: jax.Array
  scores: jax.Array
  spread: jax.Array


@dataclasses.dataclass(frozen=True)
class GPROLearner:
  """Settings, first state and jitted functions.

  Attributes:
    config: its settings.
    initial: state of step 0.
    act: jitted `(state, features [B, G, D], mask [B, G], key) -> Choice`; the
      key is consumed, see `act_key`.
    update: jitted `(state, replay) -> (state, metrics)`, the whole replay.
  """

  config: GPROConfig
  initial: GPROState
  act: Callable[[GPROState, Any, Any, jax.Array], Choice]
  update: Callable[[GPROState, Replay], tuple[GPROState, Metrics]]

  def due(self, replay: Replay) -> bool:
    """Whether the number of queries so far calls for an update."""
    queries = int(replay.queries)
    return queries > 0 and queries % self.config.every == 0


def act_key(state: GPROState, query: int) -> jax.Array:
  """Returns the key for acting on the query of a number."""
  return jax.random.fold_in(step_key(state, 'act'), query)


def make_learner(config: GPROConfig, seed: int) -> GPROLearner:
  """Builds networks, optimizers and jitted functions."""
  actor = CandidateActor(config.hidden)
  critic = CandidateCritic(config.hidden, config.prior_scale)
  optimizers = {
    'actor': optax.adam(config.actor_lr),
    'critic': optax.adam(config.critic_lr),
  }
  initial = jax.jit(
    functools.partial(_initial, config, actor, critic, optimizers)
  )(jax.random.key(seed))
  networks = {
    'actor': jax.vmap(actor.apply, (0, None)),
    'critic': jax.vmap(critic.apply, (0, None)),
  }
  return GPROLearner(
    config,
    initial,
    jax.jit(functools.partial(_act, config, networks)),
    jax.jit(functools.partial(_update, config, networks, optimizers)),
  )


def _initial(config, actor, critic, optimizers, key) -> GPROState:
  init_key, base_key = jax.random.split(key)
  features = jnp.zeros((1, config.features))
  params = {}
  for name, network in (('actor', actor), ('critic', critic)):
    init_key, own = jax.random.split(init_key)
    keys = jax.random.split(own, config.members)
    params[name] = jax.vmap(network.init, (0, None))(keys, features)
  return GPROState(
    params=params,
    opt_state={n: o.init(params[n]) for n, o in optimizers.items()},
    step=jnp.zeros((), jnp.int32),
    key_data=jax.random.key_data(base_key),
    anchor=params['actor'],
    prior=params['critic'],
    mean=jnp.zeros(config.features),
    scale=jnp.ones(config.features),
  )


def _standardise(state: GPROState, features: jax.Array) -> jax.Array:
  return jnp.clip((features - state.mean) / state.scale, -5, 5)


def _mixture(
  config: GPROConfig, logits: jax.Array, mask: jax.Array
) -> jax.Array:
  """Log-probabilities `[B, G]` of the mean of `[K, B, G]` actors."""
  logits = jax.vmap(losses.mask_logits, (0, None))(logits, mask)
  policy = jnp.mean(jax.nn.softmax(logits), axis=0)
  uniform = mask / jnp.maximum(jnp.sum(mask, axis=1, keepdims=True), 1)
  policy = (1 - config.uniform) * policy + config.uniform * uniform
  return jnp.log(jnp.maximum(policy, 1e-30))


def _act(config, networks, state, features, mask, key) -> Choice:
  x = _standardise(state, features)
  logps = _mixture(config, networks['actor'](state.params['actor'], x), mask)
  scores = jax.nn.sigmoid(networks['critic'](state.params['critic'], x))
  first_key, second_key = jax.random.split(key)
  masked = losses.mask_logits(logps, mask)
  shown = jax.random.categorical(first_key, masked)
  is_shown = jnp.arange(mask.shape[1]) == shown[:, None]
  several = jnp.sum(mask, axis=1, keepdims=True) > 1
  rest = losses.mask_logits(logps, mask & ~(is_shown & several))
  other = jax.random.categorical(second_key, rest)
  return Choice(
    shown.astype(jnp.int32),
    other.astype(jnp.int32),
    logps,
    jnp.mean(scores, axis=0),
    jnp.std(scores, axis=0),
  )


def _update(config, networks, optimizers, state, replay):
  """Standardises, trains the critics, then the actors on what they impute."""
  filled = replay.serial >= 0
  mean, scale = _moments(replay.features, replay.mask & filled[:, None])
  state = dataclasses.replace(state, mean=mean, scale=scale)
  x = _standardise(state, replay.features)
  age = (replay.ratings - replay.time).astype(jnp.float32)
  weights = jnp.where(filled, jnp.exp2(-age / config.half_life), 0)
  critic, critic_state, metrics = _train_critics(
    config, networks['critic'], optimizers['critic'], state, replay, x, weights
  )
  scores = jax.nn.sigmoid(networks['critic'](critic, x))
  actor, actor_state, more = _train_actors(
    config,
    networks['actor'],
    optimizers['actor'],
    state,
    replay,
    x,
    weights,
    scores,
  )
  anchor = state.anchor
  if config.anchor == 'ema':
    anchor = optax.incremental_update(actor, anchor, 1 - config.anchor_decay)
  state = dataclasses.replace(
    state,
    params={'actor': actor, 'critic': critic},
    opt_state={'actor': actor_state, 'critic': critic_state},
    step=state.step + 1,
    anchor=anchor,
  )
  return state, metrics | more


def _moments(features, mask):
  """Mean and standard deviation `[D]`; 0 and 1 for what does not vary."""
  weight = mask[..., None] / jnp.maximum(jnp.sum(mask), 1)
  mean = jnp.sum(features * weight, axis=(0, 1))
  variance = jnp.sum(jnp.square(features - mean) * weight, axis=(0, 1))
  varies = variance > 1e-12
  return mean, jnp.where(varies, jnp.sqrt(jnp.where(varies, variance, 1)), 1)


def _draw_rows(key, weights, steps, size):
  """Row numbers `[steps, size]`, drawn in proportion to weights `[W]`."""
  ends = jnp.cumsum(weights)
  drawn = jax.random.uniform(key, (steps, size)) * ends[-1]
  return jnp.minimum(jnp.searchsorted(ends, drawn), weights.size - 1)


def _descend(loss_fn, optimizer, params, opt_state, indices, count):
  def step(carry, index):
    gradient, metrics = jax.grad(loss_fn, has_aux=True)(carry[0], index)
    carry = gradients.apply_gradients(optimizer, *carry, gradient, count)
    return carry, metrics

  carry, metrics = jax.lax.scan(step, (params, opt_state), indices)
  return *carry, jax.tree.map(jnp.mean, metrics)


def _train_critics(config, apply, optimizer, state, replay, x, weights):
  weights = jnp.where(replay.kind == NONE, 0, weights)
  total = jnp.sum(weights)
  pair = jnp.stack([replay.shown, replay.other], axis=1)
  x = jnp.take_along_axis(x, pair[..., None], axis=1)
  # One weighting of the feedback per member, the same in every update:
  # Newton and Raftery, 1994, the weighted likelihood bootstrap.
  base = jax.random.wrap_key_data(state.key_data)
  keys = jax.vmap(functools.partial(jax.random.fold_in, base))(replay.serial)
  drawn = jax.vmap(lambda key: jax.random.exponential(key, (config.members,)))(
    keys
  )

  def loss_fn(params, index):
    def of_member(scores, weight):
      rows = objectives.Feedback(
        x[index], replay.reward[index], replay.kind[index], weight
      )
      return objectives.critic_loss(scores, rows, config.rating_noise)

    nats = jax.vmap(of_member)(apply(params, x[index]), drawn[index].T)
    penalty = jax.vmap(objectives.prior_penalty, (0, 0, None))(
      params, state.prior, config.prior_scale
    )
    loss = nats / index.size + penalty / jnp.maximum(total, 1)
    return jnp.sum(loss), {'train/critic_loss': jnp.mean(nats) / index.size}

  indices = _draw_rows(
    step_key(state, 'critic'), weights, config.critic_steps, config.minibatch
  )
  return _descend(
    loss_fn,
    optimizer,
    state.params['critic'],
    state.opt_state['critic'],
    indices,
    total,
  )


def _train_actors(
  config, apply, optimizer, state, replay, x, weights, scores
):
  if config.advantage == 'shown':
    weights = jnp.where(replay.kind == NONE, 0, weights)
  old = jax.vmap(losses.mask_logits, (0, None))(
    apply(state.params['actor'], x), replay.mask
  )
  old_logps = jax.nn.log_softmax(old)
  anchor = apply(state.anchor, x)
  advantages = jax.vmap(
    functools.partial(objectives.advantages, config, replay)
  )(scores, old_logps)
  at_shown = lambda a: jnp.take_along_axis(a, replay.shown[:, None], 1)[:, 0]
  importance = jnp.minimum(
    jnp.exp(jax.vmap(at_shown)(old_logps) - at_shown(replay.logps)),
    config.max_weight,
  )

  def loss_fn(params, index):
    def of_member(logits, logps, weight, anchor, advantages):
      rows = objectives.Choices(
        x[index],
        replay.mask[index],
        replay.shown[index],
        logps,
        weight,
        anchor,
        advantages,
        weights[index] > 0,
      )
      return objectives.actor_loss(logits, rows, config)

    loss, metrics = jax.vmap(of_member)(
      apply(params, x[index]),
      old_logps[:, index],
      importance[:, index],
      anchor[:, index],
      advantages[:, index],
    )
    metrics = {f'train/actor_{k}': jnp.mean(v) for k, v in metrics.items()}
    scale = 1 / index.size
    return jnp.sum(loss) * scale, jax.tree.map(lambda v: v * scale, metrics)

  indices = _draw_rows(
    step_key(state, 'actor'), weights, config.actor_steps, config.minibatch
  )
  return _descend(
    loss_fn,
    optimizer,
    state.params['actor'],
    state.opt_state['actor'],
    indices,
    jnp.sum(weights),
  )
