"""The controller's learner: which prompt edit to apply to which problem.

One iteration plays a batch of episodes to their end (`sample`) and makes one
PPO update (`update`). All that is drawn in iteration i depends on (seed, i)
alone, so that a resumed run repeats the uninterrupted one bit for bit.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.envs.editing import rollout as env_rollout
from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.envs.editing.rollout import Trajectories
from promptrl_jax.llm.ledger import Usage
from promptrl_jax.models.actor_critic import ActorCritic, ActorCriticConfig
from promptrl_jax.strategies import policies
from promptrl_jax.training.controller import rollout as rollout_lib
from promptrl_jax.training.controller import update as update_lib
from promptrl_jax.training.controller.config import ControllerConfig, PPOConfig
from promptrl_jax.training.state import Row, TrainState, create_train_state
from promptrl_jax.types import Problem


@dataclasses.dataclass(frozen=True)
class ControllerLearner:
  """Settings, initial state and jitted functions of one controller.

  Attributes:
    config: its settings.
    network: actor and critic.
    initial: state of step 0; copy it before an update, which donates it.
    act: policy that samples, from `update.make_act_fn`.
    act_greedy: policy that takes the most probable action.
    update_fn: jitted (state, rollout) -> (state, metrics).
  """

  config: ControllerConfig
  network: ActorCritic
  initial: TrainState
  act: policies.ActFn
  act_greedy: policies.ActFn
  update_fn: update_lib.UpdateFn

  def sample(
    self,
    state: TrainState,
    env: EditingEnv,
    problems: Sequence[Problem],
    seed: int,
  ) -> tuple[Trajectories, Row]:
    """Plays the episodes of iteration `state.step` to their end.

    Args:
      state: policy and step.
      env: where episodes are played.
      problems: the training set.
      seed: seed of the run.

    Returns:
      `[T, N]` steps of N episodes, and metrics of the rollout.
    """
    step = int(state.step)
    indices, seeds, budgets = rollout_lib.draw_batch(
      problems, self.config, seed, step
    )
    started, before = time.perf_counter(), _usage(env)
    policy_seed = int(np.random.default_rng([seed, step, 2]).integers(2**31))
    rollout = env_rollout.collect(
      env,
      policies.controller(self.act, state.params, policy_seed),
      [problems[i] for i in indices],
      seeds,
      budgets,
      [(i, len(problems)) for i in indices],
      rollout_lib.draw_prices(self.config, seed, step),
    )
    seconds = time.perf_counter() - started
    used = {name: value - before[name] for name, value in _usage(env).items()}
    known = sum(v for name, v in used.items() if name.startswith('time/'))
    row = _rollout_metrics(env, rollout) | used
    return rollout, row | {'time/other': seconds - known}

  def update(
    self, state: TrainState, rollout: Trajectories
  ) -> tuple[TrainState, Row]:
    """Makes one PPO update; `state` is donated. Returns metrics as well."""
    started = time.perf_counter()
    if not self.config.bootstrap_truncated:
      rollout = rollout_lib.as_terminated(rollout)
    if self.config.shuffle_rewards:
      rollout = rollout_lib.shuffle_returns(rollout, int(state.step))
    state, metrics = self.update_fn(state, rollout)
    row = {name: float(value) for name, value in metrics.items()}
    return state, row | {'time/update': time.perf_counter() - started}


def make_learner(
  config: ControllerConfig,
  ppo: PPOConfig,
  env: EditingConfig,
  seed: int,
) -> ControllerLearner:
  """Builds network, optimizer and jitted functions.

  Raises:
    ValueError: rewards are shaped by a potential that does not go with the
      bootstrap.
  """
  if env.step_reward.potential and config.bootstrap_truncated:
    raise ValueError(
      'step_reward.potential=True with bootstrap_truncated=True: the potential '
      'ends at 0 where an episode is cut off, and the bootstrapped value would '
      'lack it; set one of them to False'
    )
  size = env.observation_size
  network = ActorCritic(
    ActorCriticConfig(size, len(env.actions), config.trunk, config.head)
  )
  optimizer = ppo.make_optimizer(config.iterations)
  initial = create_train_state(
    lambda key: network.init(key, jnp.zeros((1, size))),
    optimizer,
    jax.random.key(seed),
  )
  return ControllerLearner(
    config,
    network,
    initial,
    update_lib.make_act_fn(network.apply),
    update_lib.make_act_fn(network.apply, greedy=True),
    update_lib.make_update_fn(
      network.apply, optimizer, ppo, config.continuations
    ),
  )


def _usage(env: EditingEnv) -> Row:
  """Returns what the environment has used so far, as metrics."""
  usage = {'time/execute': env.runner.execute_seconds}
  for role in env.runner.backends:
    spent = env.runner.ledger.roles.get(role, Usage())
    usage[f'time/{role}'] = spent.seconds
    usage[f'budget/{role}_calls'] = float(spent.calls)
    usage[f'budget/{role}_tokens'] = float(spent.completion_tokens)
  return usage


def _rollout_metrics(env: EditingEnv, rollout: Trajectories) -> Row:
  episodes = [e for e in env.episodes if not e.lost]
  steps = max(1, int(rollout.mask.sum()))
  counts = np.bincount(
    rollout.actions[rollout.mask], minlength=len(env.config.actions)
  )
  kept = np.array([not e.lost for e in env.episodes])
  returns = (rollout.rewards * rollout.mask).sum(axis=0)[kept]
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


def _mean(values: Iterable[float]) -> float:
  values = list(values)
  return sum(values) / max(1, len(values))
