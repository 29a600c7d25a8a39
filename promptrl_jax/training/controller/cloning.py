"""Behaviour cloning: a controller that starts from a list of operators.

The list is played on training problems at all budgets of the training, and the
network learns to choose as it does. What reinforcement learning then gains, it
adds to the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from promptrl_jax.envs.editing import rollout as env_rollout
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.models.actor_critic import ActorCritic
from promptrl_jax.rl import losses
from promptrl_jax.rl.masked import masked_mean
from promptrl_jax.strategies import policies
from promptrl_jax.training.controller.config import CloneConfig
from promptrl_jax.training.state import Params
from promptrl_jax.types import Problem


def demonstrate(
  env: EditingEnv,
  problems: Sequence[Problem],
  lists: Mapping[int, Sequence[str]],
  config: CloneConfig,
  seed: int,
) -> tuple[env_rollout.Trajectories, int]:
  """Plays the list of each budget; returns the steps and the calls made."""
  parts, calls = [], 0
  for budget, operators in sorted(lists.items()):
    rng = np.random.default_rng([seed, budget, 3])
    size = min(config.episodes, len(problems))
    chosen = rng.choice(len(problems), size, replace=False)
    parts.append(
      env_rollout.collect(
        env,
        policies.open_loop(operators, env.config.actions),
        [problems[i] for i in chosen],
        [seed] * size,
        [budget] * size,
      )
    )
    calls += sum(e.calls for e in env.episodes)
  return jax.tree.map(lambda *x: np.concatenate(x, axis=1), *parts), calls


def clone(
  network: ActorCritic,
  params: Params,
  played: env_rollout.Trajectories,
  config: CloneConfig,
) -> Params:
  """Returns parameters under which the played actions are probable.

  Minimises the mean of -log pi(a | s) - smoothing * entropy over valid steps;
  the entropy keeps the policy from being certain, so that it still explores.
  The value head is left as it was.
  """
  optimizer = optax.adam(config.lr)
  observations, actions, allowed, mask = jax.tree.map(
    jnp.asarray,
    (played.observations, played.actions, played.action_masks, played.mask),
  )

  def loss_fn(params):
    logits, _ = cast(Any, network.apply(params, observations))
    logps = losses.categorical_logps(logits, actions, allowed)
    entropy = losses.categorical_entropy(logits, allowed)
    return masked_mean(-logps - config.entropy_coef * entropy, mask)

  def step(carry, _):
    params, state = carry
    loss, gradient = jax.value_and_grad(loss_fn)(params)
    updates, state = optimizer.update(gradient, state, params)
    return (optax.apply_updates(params, updates), state), loss

  @jax.jit
  def run(params):
    start = params, optimizer.init(params)
    return jax.lax.scan(step, start, length=config.steps)

  (params, _), _ = run(jax.tree.map(jnp.asarray, params))
  return params
