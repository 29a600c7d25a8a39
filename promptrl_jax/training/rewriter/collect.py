"""Collects the rollouts of a run: sampled, rewarded, drawn again if need be.

  tasks -> learner.sample: G rewrites each -> env.submit -> rewards

Each process samples and rewards its own tasks on its own devices, however long
that takes, and may sample the next batch while rewards are computed.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from promptrl_jax.envs.rewriting.interface import (
  Identified,
  Pending,
  Rewarded,
  RewriteEnv,
)
from promptrl_jax.parallel import exchange
from promptrl_jax.training.rewriter import rollout as rollout_lib
from promptrl_jax.training.rewriter.learner import (
  RewriterLearner,
  RewriterState,
)
from promptrl_jax.training.rewriter.rollout import Rollout
from promptrl_jax.training.state import Row

# Metrics that are summed over processes; all others are averaged.
_SUMMED = ('budget/', 'rollout/steps', 'rollout/groups', 'reward/dropped')


@dataclasses.dataclass(frozen=True)
class Batch:
  """Rewrites whose rewards are being computed.

  Attributes:
    seconds: duration of the sampling.
    ahead_seconds: time that was then spent on sampling the next batch.
  """

  rollout: Rollout
  pending: Pending
  seconds: float
  ahead_seconds: float = 0.0


class Collector:
  """Samples and rewards the rollouts of a run, one per iteration."""

  def __init__(
    self,
    learner: RewriterLearner,
    env: RewriteEnv[Any],
    tasks: Sequence[Identified],
    seed: int,
    is_boundary: Callable[[int], bool] = lambda step: False,
  ):
    """Samples nothing yet.

    Args:
      learner: samples rewrites.
      env: gives rewards.
      tasks: the training set.
      seed: seed of the order of tasks and of the sampler.
      is_boundary: whether a run may be resumed after this many updates. Nothing
        is sampled ahead past such a step, so that a resumed run samples with
        the parameters of the run that was not interrupted.
    """
    self._learner = learner
    self._env = env
    self._tasks = tasks
    self._seed = seed
    self._is_boundary = is_boundary
    self._ahead: Batch | None = None

  def sample(self, state: RewriterState) -> Batch:
    """Samples the batch of iteration `state.step` and asks for its rewards.

    With `overlap`, that batch may have been sampled during the last iteration,
    and the next one is sampled now, while rewards are computed.
    """
    step = int(state.step)
    batch, self._ahead = self._ahead or self._submit(state, step, 0), None
    if self._learner.config.overlap and not self._is_boundary(step + 1):
      started = time.perf_counter()
      self._ahead = self._submit(state, step + 1, 0)
      batch = dataclasses.replace(
        batch, ahead_seconds=time.perf_counter() - started
      )
    return batch

  def reward(
    self, state: RewriterState, batch: Batch
  ) -> tuple[Rollout, np.ndarray, Row]:
    """Waits for rewards, and draws again in the place of uniform groups.

    A process may take more rounds than another: they share nothing here.

    Returns:
      The rewrites to learn from, their rewards `[N]`, and metrics over all
      rewrites and all processes.
    """
    settings, step = self._learner.config, int(state.step)
    config = settings.phases[settings.phase(step)].rollout
    wanted = config.prompts // jax.process_count()
    ahead_seconds = batch.ahead_seconds
    collected, rewards, rows = Rollout(), [], []
    for round_ in range(config.resample_rounds + 1):
      result = batch.pending.result()
      kept, kept_rewards = rollout_lib.informative(
        batch.rollout, result.rewards, config.drop_uniform
      )
      collected.extend(kept)
      rewards.append(kept_rewards)
      rows.append(_describe(batch, result))
      missing = wanted - len(collected.prompts)
      if missing <= 0 or round_ == config.resample_rounds:
        break
      batch = self._submit(state, step, round_ + 1, missing)
    row = {
      name: float(_over_rounds(name)([row[name] for row in rows]))
      for name in rows[0]
    }
    row['rollout/steps'] = float(sum(map(len, collected.completions)))
    row['rollout/groups'] = float(len(collected.prompts))
    row['rollout/rounds'] = float(len(rows))
    row['time/sampled_ahead'] = ahead_seconds
    return collected, np.concatenate(rewards), _over_processes(row)

  def _submit(
    self, state: RewriterState, step: int, round_: int, count: int | None = None
  ) -> Batch:
    """Samples rewrites of new tasks and asks for their rewards."""
    started = time.perf_counter()
    size = self._learner.config.rollout.prompts
    # Each round of resampling walks through the tasks in an order of its own.
    walk_seed = rollout_lib.seed_of(self._seed, 'tasks', round_)
    indices = rollout_lib.draw_tasks(len(self._tasks), size, walk_seed, step)
    names = rollout_lib.own_names([self._tasks[i].task_id for i in indices])
    rows = exchange.my_rows(size)
    tasks = [self._tasks[i] for i in indices[rows][:count]]
    seed = rollout_lib.seed_of(self._seed, step, round_)
    rollout = self._learner.sample(
      state, self._env.prompts(tasks), seed, names[rows][:count]
    )
    seconds = time.perf_counter() - started
    pending = self._env.submit(
      [tasks[owner] for owner in rollout.owners],
      rollout.texts,
      seed,
      rollout.finished,
    )
    return Batch(rollout, pending, seconds)


def _over_rounds(name: str) -> Callable[..., Any]:
  """Returns the sum for what was used or lost, the mean for rates."""
  if name == 'rollout/longest':
    return max
  is_sum = name.startswith(('budget/', 'time/')) or name == 'reward/dropped'
  return sum if is_sum else np.mean


def _describe(batch: Batch, result: Rewarded) -> Row:
  lengths = [len(ids) for ids in batch.rollout.completions]
  texts = batch.rollout.texts
  return result.metrics() | {
    'rollout/length': float(np.mean(lengths)),
    'rollout/longest': float(max(lengths)),
    'rollout/distinct': len(set(texts)) / len(texts),
    'budget/rewrites': float(len(texts)),
    'budget/calls': float(result.calls + len(texts)),
    'time/sample': batch.seconds,
  }


def _over_processes(row: Row) -> Row:
  """Returns the metrics of all processes together; equal on each of them."""
  values = exchange.gather_rows(np.asarray([list(row.values())]))
  return {
    name: float((np.sum if name.startswith(_SUMMED) else np.mean)(column))
    for name, column in zip(row, values.T, strict=True)
  }
