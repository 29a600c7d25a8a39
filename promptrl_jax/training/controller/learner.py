"""Training of the controller: which prompt edit to apply to which problem.

One iteration plays a batch of episodes to their end, cut from a shuffled walk
through the training set, and makes one PPO update. Everything that is drawn in
iteration i depends on (seed, i) alone, so a resumed run repeats the
uninterrupted one bit for bit.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.envs.editing import rollout
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.llm.ledger import Usage
from promptrl_jax.models.actor_critic import ActorCritic, ActorCriticConfig
from promptrl_jax.strategies import policies
from promptrl_jax.training import state
from promptrl_jax.training.controller import config as ppo_config
from promptrl_jax.training.controller import update
from promptrl_jax.training.controller.rollout import Rollout
from promptrl_jax.types import Problem


@dataclasses.dataclass(frozen=True)
class ControllerConfig:
  """Settings of the training.

  Attributes:
    iterations: updates.
    episodes: episodes per iteration.
    budgets: the budget of an episode is drawn from these, so that one policy
      learns to spend many calls and few.
    bootstrap_truncated: whether the value of the last observation stands in for
      what a cut-off episode would still have earned. False where the budget is
      part of the observation: then running out of it is an end like any other.
    trunk, head: widths of the network.
  """

  iterations: int
  episodes: int
  budgets: tuple[int, ...]
  bootstrap_truncated: bool
  trunk: tuple[int, ...]
  head: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Controller:
  """The functions of one controller, jitted once.

  Attributes:
    config: the settings it was made with.
    initial: state of step 0.
    act, act_greedy: policies, as `update.make_act_fn` returns them.
    update: (state, rollout) -> (state, metrics).
  """

  config: ControllerConfig
  initial: state.TrainState
  act: policies.ActFn
  act_greedy: policies.ActFn
  update: Any


def make_controller(
  config: ControllerConfig,
  ppo: ppo_config.PPOConfig,
  observation_size: int,
  num_actions: int,
  seed: int,
) -> Controller:
  """Builds network, optimizer and jitted functions."""
  network = ActorCritic(
    ActorCriticConfig(observation_size, num_actions, config.trunk, config.head)
  )
  optimizer = ppo_config.make_ppo_optimizer(ppo)
  initial = state.create_train_state(
    lambda key: network.init(key, jnp.zeros((1, observation_size))),
    optimizer,
    jax.random.key(seed),
  )
  return Controller(
    config,
    initial,
    update.make_act_fn(network.apply),
    update.make_act_fn(network.apply, greedy=True),
    update.make_ppo_update_fn(network.apply, optimizer, ppo),
  )


def draw_batch(
  problems: Sequence[Problem], config: ControllerConfig, seed: int, step: int
) -> tuple[list[int], list[int], list[int]]:
  """Indices, episode seeds and budgets of one iteration.

  The walk visits every problem once before it visits one again; each pass has
  an order of its own.
  """
  size = len(problems)
  indices = []
  for place in range(step * config.episodes, (step + 1) * config.episodes):
    epoch, offset = divmod(place, size)
    indices.append(int(_order(size, seed, epoch)[offset]))
  rng = np.random.default_rng([seed, step, 1])
  budgets = rng.choice(config.budgets, config.episodes).tolist()
  first = seed * 1_000_003 + step * config.episodes
  seeds = list(range(first, first + config.episodes))
  return indices, seeds, budgets


def _order(size: int, seed: int, epoch: int) -> np.ndarray:
  return np.random.default_rng([seed, epoch, 0]).permutation(size)


def iterate(
  controller: Controller,
  current: state.TrainState,
  env: EditingEnv,
  problems: Sequence[Problem],
  seed: int,
) -> tuple[state.TrainState, dict[str, float]]:
  """One iteration: episodes, then an update; returns the state and metrics."""
  config, step = controller.config, int(current.step)
  indices, seeds, budgets = draw_batch(problems, config, seed, step)
  started, before = time.perf_counter(), _usage(env)
  policy_seed = int(np.random.default_rng([seed, step, 2]).integers(2**31))
  played = rollout.collect(
    env,
    policies.controller(controller.act, current.params, policy_seed),
    [problems[i] for i in indices],
    seeds,
    budgets,
    [(i, len(problems)) for i in indices],
  )
  collected = time.perf_counter()
  new, scalars = controller.update(current, _to_rollout(played, config))
  scalars = {k: float(v) for k, v in scalars.items()}
  finished = time.perf_counter()
  used = {k: v - before[k] for k, v in _usage(env).items()}
  known = sum(v for k, v in used.items() if k.startswith('time/'))
  return new, {
    **scalars,
    **_rollout_metrics(env, played),
    **used,
    'time/update': finished - collected,
    'time/other': collected - started - known,
  }


def _usage(env: EditingEnv) -> dict[str, float]:
  """What the environment has used so far, as metrics."""
  usage = {'time/execute': env.runner.execute_seconds}
  for role in env.runner.backends:
    spent = env.runner.ledger.roles.get(role, Usage())
    usage[f'time/{role}'] = spent.seconds
    usage[f'budget/{role}_calls'] = float(spent.calls)
    usage[f'budget/{role}_tokens'] = float(spent.completion_tokens)
  return usage


def _to_rollout(
  played: rollout.Trajectories, config: ControllerConfig
) -> Rollout:
  ends = played.truncated & ~played.terminated
  terminated = played.terminated
  if not config.bootstrap_truncated:
    terminated, ends = terminated | ends, np.zeros_like(ends)
  fields = {
    'observations': played.observations,
    'action_masks': played.action_masks,
    'actions': played.actions,
    'old_logps': played.logps,
    'values': played.values,
    'next_values': played.next_values,
    'rewards': played.rewards,
    'terminated': terminated,
    'truncated': ends,
    'mask': played.mask,
  }
  return Rollout(**jax.tree.map(jnp.asarray, fields))


def _rollout_metrics(
  env: EditingEnv, played: rollout.Trajectories
) -> dict[str, float]:
  episodes = [e for e in env.episodes if not e.lost]
  steps = max(1, int(played.mask.sum()))
  counts = np.bincount(
    played.actions[played.mask], minlength=len(env.config.actions)
  )
  kept = np.array([not e.lost for e in env.episodes])
  returns = (played.rewards * played.mask).sum(axis=0)[kept]
  metrics = {
    'rollout/return': _mean(returns.tolist()),
    'rollout/visible_rate': _mean(e.status == 'passed' for e in episodes),
    'rollout/solved_rate': _mean(e.best_share == 1.0 for e in episodes),
    'rollout/length': steps / max(1, len(episodes)),
    'rollout/steps': float(steps),
    'rollout/lost': float(len(env.episodes) - len(episodes)),
    'budget/calls': float(sum(e.calls for e in episodes)),
  }
  shares = zip(env.config.actions, counts / steps, strict=True)
  return metrics | {f'rollout/action_{a}': float(s) for a, s in shares}


def _mean(values) -> float:
  values = list(values)
  return sum(values) / max(1, len(values))
