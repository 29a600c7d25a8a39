"""One update of GPRO from a whole replay, a pure function.

replay ─► moments of the features ─► has the taste changed? ─► weights of rows
  ─► critics: posterior of their weights ─► scores of all candidates
  ─► actors and temperature: clipped surrogates on imputed rewards
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from promptrl_jax.rl import gpro, losses
from promptrl_jax.rl.laplace import laplace_posterior
from promptrl_jax.training import gradients
from promptrl_jax.training.gpro import drift, objectives
from promptrl_jax.training.gpro import temperature as temperature_lib
from promptrl_jax.training.gpro.config import GPROConfig
from promptrl_jax.training.gpro.replay import NONE, PAIR, Replay
from promptrl_jax.training.gpro.state import (
  GPROState,
  Parts,
  mixture,
  standardise,
)
from promptrl_jax.training.state import step_key

Metrics = dict[str, jax.Array]
# (parameters, state of the optimizer), and mean metrics
Trained = tuple[Any, Metrics]


def update(
  config: GPROConfig, parts: Parts, state: GPROState, replay: Replay
) -> tuple[GPROState, Metrics]:
  """Returns the next state, and metrics."""
  filled = replay.serial >= 0
  moments = _moments(replay.features, replay.mask & filled[:, None])
  state = dataclasses.replace(state, mean=moments[0], scale=moments[1])
  state, z = _restart_if_changed(config, parts, state, replay)
  age = (replay.ratings - replay.time).astype(jnp.float32)
  weights = jnp.exp2(-age / config.half_life)
  weights *= jnp.where(replay.serial > state.changed, 1, config.old_taste)
  rows = _Rows(
    config,
    parts,
    state,
    replay,
    standardise(state, replay.features),
    jnp.where(filled, weights, 0),
  )
  critic, metrics = rows.train_critics()
  scores = jax.nn.sigmoid(parts.critic(critic, rows.x))
  mean = jnp.mean(scores, axis=0)
  scores = jnp.clip(mean + config.exploration * (scores - mean), 0, 1)
  trained = {}
  trained['actor'], more = rows.train_actors(scores)
  metrics |= more
  if config.temperatures:
    trained['temperature'], more = rows.train_temperature(scores)
    metrics |= more
  anchor = state.anchor
  if config.anchor == 'ema':
    anchor = optax.incremental_update(
      trained['actor'][0], anchor, 1 - config.anchor_decay
    )
  params = {name: params for name, (params, _) in trained.items()}
  state = dataclasses.replace(
    state,
    params=params | {'critic': critic},
    opt_state={name: opt_state for name, (_, opt_state) in trained.items()},
    step=state.step + 1,
    anchor=anchor,
  )
  return state, metrics | {'train/drift': z, 'train/changed': state.changed}


def _moments(
  features: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Mean and standard deviation `[D]`; 1 for what does not vary."""
  weight = mask[..., None] / jnp.maximum(jnp.sum(mask), 1)
  mean = jnp.sum(features * weight, axis=(0, 1))
  variance = jnp.sum(jnp.square(features - mean) * weight, axis=(0, 1))
  varies = variance > 1e-12
  return mean, jnp.where(varies, jnp.sqrt(jnp.where(varies, variance, 1)), 1)


def _restart_if_changed(
  config: GPROConfig, parts: Parts, state: GPROState, replay: Replay
) -> tuple[GPROState, jax.Array]:
  """Starts actors anew where feedback says that the taste has changed.

  Critics are made anew in every update, where old feedback then counts little.
  An actor that is certain of what was liked would take long to try anything
  else.
  """
  errors = objectives.disappointments(replay, replay.scores)
  is_settled = replay.serial > state.changed + drift.SETTLING
  valid = (replay.kind != NONE) & is_settled
  # In the order of the queries: feedback on an early one, of which the critics
  # knew little, may come late.
  z, query = drift.change_point(errors, replay.serial, valid)
  fresh = dataclasses.replace(
    state,
    params=state.first,
    opt_state={n: o.init(state.first[n]) for n, o in parts.optimizers.items()},
    anchor=state.first['actor'],
    changed=query,
  )
  choose = lambda new, old: jnp.where(z > config.drift, new, old)
  return jax.tree.map(choose, fresh, state), z


@dataclasses.dataclass(frozen=True)
class _Rows:
  """The replay as the trainers below read it.

  Attributes:
    x: `[W, G, D]` standardised features.
    weights: `[W]` of the feedback; 0 for an empty row.
  """

  config: GPROConfig
  parts: Parts
  state: GPROState
  replay: Replay
  x: jax.Array
  weights: jax.Array

  def train_critics(self) -> tuple[Any, Metrics]:
    """Draws critics from the posterior; a function of the replay alone."""
    config, replay, parts = self.config, self.replay, self.parts
    first = self.state.first['critic']
    weights = jnp.where(replay.kind == NONE, 0, self.weights)
    feedback = objectives.Feedback(replay.reward, replay.kind, weights)
    pair = jnp.stack([replay.shown, replay.other], axis=1)
    x = jnp.take_along_axis(self.x, pair[..., None], axis=1)
    own, other = jnp.moveaxis(parts.inputs(first, x), 1, 0)
    inputs = jnp.where((replay.kind == PAIR)[:, None], own - other, own)
    of = {'rows': feedback, 'rating_noise': config.rating_noise}
    losses_fn = functools.partial(objectives.critic_losses, **of)
    curvature_fn = functools.partial(objectives.critic_curvature, **of)
    precision = objectives.prior_precision(inputs.shape[1], config.prior_scale)
    posterior = laplace_posterior(inputs, losses_fn, curvature_fn, precision)
    head = first['params']['head']
    prior = jnp.concatenate([head['kernel'].T, head['bias'][:, None]], axis=1)
    drawn = posterior.draw(prior * jnp.sqrt(precision))
    head = {'kernel': drawn[:, :-1].T, 'bias': drawn[:, -1]}
    nats = jnp.sum(losses_fn(inputs @ posterior.mean))
    loss = nats / jnp.maximum(jnp.sum(weights), 1)
    params = {'params': first['params'] | {'head': head}}
    return params, {'train/critic_loss': loss}

  def train_actors(self, scores: jax.Array) -> Trained:
    """Scores are `[K, W, G]`, one row of members each."""
    config, state = self.config, self.state
    replay = drift.current(self.replay, state.changed)
    # An old query is as good as a new one to learn what the critics know.
    weights = (replay.serial >= 0).astype(jnp.float32)
    if config.advantage == 'shown':
      weights = jnp.where(replay.kind == NONE, 0, self.weights)
    logits = self.parts.actor(state.params['actor'], self.x)
    mask_all = jax.vmap(losses.mask_logits, (0, None))
    old_logps = jax.nn.log_softmax(mask_all(logits, replay.mask))
    advantages = jax.vmap(
      functools.partial(objectives.advantages, config, replay, weights > 0)
    )(scores, old_logps)
    at_shown = lambda x: jnp.take_along_axis(x, replay.shown[:, None], 1)[:, 0]
    ratio = jnp.exp(jax.vmap(at_shown)(old_logps) - at_shown(replay.logps))
    shared = replay.mask, replay.shown, weights > 0
    own = (
      old_logps,
      jnp.minimum(ratio, config.max_weight),
      mask_all(self.parts.actor(state.anchor, self.x), replay.mask),
      advantages,
    )

    def loss_fn(params, index):
      rows = [x[index] for x in shared]
      of_member = lambda logits, *x: objectives.actor_loss(
        config, logits, objectives.Choices(*rows, *x)
      )
      loss, metrics = jax.vmap(of_member)(
        self.parts.actor(params, self.x[index]), *(x[:, index] for x in own)
      )
      metrics = {f'actor_{k}': jnp.mean(v) for k, v in metrics.items()}
      return _per_row((jnp.sum(loss), metrics), index)

    return self._descend('actor', loss_fn, weights)

  def train_temperature(self, scores: jax.Array) -> Trained:
    config, state = self.config, self.state
    replay = drift.current(self.replay, state.changed)
    weights = jnp.where(replay.kind == NONE, 0, self.weights)
    actors = self.parts.actor(state.params['actor'], self.x)
    policy = mixture(config, actors, replay.mask)
    mean_scores = jnp.mean(scores, axis=0)
    imputed = gpro.impute_rewards(
      objectives.rewards(replay, mean_scores),
      replay.shown,
      mean_scores,
      replay.logps,
      max_weight=config.max_weight,
    )
    worth = jnp.sum(jnp.where(replay.mask, jnp.exp(policy) * imputed, 0), 1)
    logits, _ = self.parts.temperature(
      state.params['temperature'], replay.context
    )
    old_logp = losses.categorical_logps(logits, replay.temperature)
    all_rows = temperature_lib.TemperatureRows(
      replay.temperature, replay.temperature_logp, old_logp, worth
    )

    def loss_fn(params, index):
      rows = jax.tree.map(lambda x: x[index], all_rows)
      logits, values = self.parts.temperature(params, replay.context[index])
      loss, metrics = temperature_lib.loss(logits, values, rows, config)
      metrics = {f'temperature_{k}': v for k, v in metrics.items()}
      return _per_row((loss, metrics), index)

    return self._descend('temperature', loss_fn, weights)

  def _descend(self, name: str, loss_fn: Any, weights: jax.Array) -> Trained:
    """Takes Adam's steps on minibatches; none if no row counts.

    Rows are drawn in proportion to their weights, so that the loss of a
    minibatch is a plain mean.
    """
    optimizer = self.parts.optimizers[name]
    ends = jnp.cumsum(weights)
    shape = (self.config.actor_steps, self.config.minibatch)
    drawn = jax.random.uniform(step_key(self.state, name), shape) * ends[-1]
    indices = jnp.searchsorted(ends, drawn, side='right')
    indices = jnp.minimum(indices, weights.size - 1)

    def step(carry: Any, index: Any):
      params, opt_state = carry
      gradient, metrics = jax.grad(loss_fn, has_aux=True)(params, index)
      carry = gradients.apply_gradients(
        optimizer, params, opt_state, gradient, ends[-1]
      )
      return carry, metrics

    trees: Any = self.state.params, self.state.opt_state
    start = tuple(tree[name] for tree in trees)
    carry, metrics = jax.lax.scan(step, start, indices)
    return carry, {f'train/{k}': jnp.mean(v) for k, v in metrics.items()}


def _per_row(sums: Any, index: jax.Array) -> Any:
  return jax.tree.map(lambda x: x / index.size, sums)
