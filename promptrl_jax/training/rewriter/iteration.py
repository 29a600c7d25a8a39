"""Iterations of a run that trains a rewriter.

  tasks ─► lm_rollout ─► RewriteEnv ─► Rollout ─► rewriter_update.learn

Each process samples and rewards its own tasks on its own devices, however long
that takes, and may begin the next iteration while programs run.
"""

from __future__ import annotations

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
from promptrl_jax.training.rewriter import learn as rewriter_update
from promptrl_jax.training.rewriter import rollout as lm_rollout
from promptrl_jax.training.rewriter.learner import Rewriter, RewriterState, Row
from promptrl_jax.training.rewriter.rollout import Rollout, Sampled

# Added up over processes; everything else is a mean.
_SUMMED = ('budget/', 'rollout/steps', 'rollout/groups', 'reward/dropped')


class Training:
  """Iterations of a run, the next of which may have begun already."""

  def __init__(
    self,
    made: Rewriter,
    env: RewriteEnv[Any],
    tasks: Sequence[Identified],
    seed: int,
    is_boundary: Callable[[int], bool] = lambda step: False,
  ):
    """Begins nothing yet.

    Args:
      made: the learner.
      env: gives rewards.
      tasks: of the training split.
      seed: of the order of tasks and of the sampler.
      is_boundary: whether a run may be resumed after this many updates: no
        sampling runs ahead past it, so that a resumed run samples with the
        parameters of the run that was not interrupted.
    """
    self._made = made
    self._env = env
    self._tasks = tasks
    self._seed = seed
    self._is_boundary = is_boundary
    self._begun: tuple[Sampled, Pending] | None = None

  def iterate(self, state: RewriterState) -> tuple[RewriterState, Row]:
    """One iteration; `state` is donated."""
    made, step = self._made, int(state.step)
    started = time.perf_counter()
    current = self._begun or self._begin(state, step, 0)
    self._begun = None
    ahead = 0.0
    if made.config.overlap and not self._is_boundary(step + 1):
      begin = time.perf_counter()
      self._begun = self._begin(state, step + 1, 0)
      ahead = time.perf_counter() - begin
    rollout, row = self._collect(state, step, current)
    row = _over_processes(row)
    state, learned = rewriter_update.learn(made, state, rollout)
    row |= learned
    row['train/phase'] = float(made.config.phase(step))
    row['time/sampled_ahead'] = ahead
    row['time/iteration'] = time.perf_counter() - started
    return state, row

  def _begin(
    self, state: RewriterState, step: int, round_: int, count: int | None = None
  ) -> tuple[Sampled, Pending]:
    """Samples rewrites of new tasks and asks what they are worth."""
    made, size = self._made, self._made.config.rollout.prompts
    # Each round of resampling walks in an order of its own.
    seed = lm_rollout.seed_of(self._seed, 'tasks', round_)
    indices = lm_rollout.draw_tasks(len(self._tasks), size, seed, step)
    indices = indices[exchange.my_rows(size)]
    made.engine.replace_params(made.decode_params(state))
    batch_seed = lm_rollout.seed_of(self._seed, step, round_)
    sampled = lm_rollout.sample(
      made.engine, made.tokenizer, self._env,
      [self._tasks[i] for i in indices[:count]],
      made.config.rollout, batch_seed,
    )  # fmt: skip
    group = made.config.rollout.group
    pending = self._env.submit(
      [task for task in sampled.tasks for _ in range(group)],
      sampled.texts,
      batch_seed,
      [sample.stopped for sample in sampled.samples],
    )
    return sampled, pending

  def _collect(
    self, state: RewriterState, step: int, current: Any
  ) -> tuple[Rollout, Row]:
    """Waits for rewards; draws again in the place of groups without one.

    A process may take more rounds than another: they share nothing here.
    """
    settings = self._made.config
    config = settings.phases[settings.phase(step)].rollout
    wanted = config.prompts // jax.process_count()
    found, rows = Rollout([], [], [], [], []), []
    for round_ in range(config.resample_rounds + 1):
      sampled, pending = current
      result = pending.result()
      found.extend(lm_rollout.to_rollout(sampled, result.rewards, config))
      rows.append(_describe(sampled, result))
      missing = wanted - len(found.prompts)
      if missing <= 0 or round_ == config.resample_rounds:
        break
      current = self._begin(state, step, round_ + 1, missing)
    row = {
      name: float(_joined(name)([row[name] for row in rows]))
      for name in rows[0]
    }
    row['rollout/steps'] = float(sum(map(len, found.completions)))
    row['rollout/groups'] = float(len(found.prompts))
    row['rollout/rounds'] = float(len(rows))
    return found, row


def _joined(name: str) -> Callable[..., Any]:
  """Sums for what was used or lost, means for what is a rate."""
  if name == 'rollout/longest':
    return max
  is_sum = name.startswith(('budget/', 'time/')) or name == 'reward/dropped'
  return sum if is_sum else np.mean


def _describe(sampled: Sampled, result: Rewarded) -> Row:
  lengths = [len(sample.tokens) for sample in sampled.samples]
  row = result.metrics()
  return row | {
    'rollout/length': float(np.mean(lengths)),
    'rollout/longest': float(max(lengths)),
    'rollout/distinct': len(set(sampled.texts)) / len(sampled.texts),
    'budget/rewrites': float(len(sampled.samples)),
    'budget/calls': float(result.calls + len(sampled.samples)),
    'time/sample': sampled.seconds,
  }


def _over_processes(row: Row) -> Row:
  """What all processes measured together; the same on each of them."""
  found = exchange.gather_rows(np.asarray([list(row.values())]))
  return {
    name: float((np.sum if name.startswith(_SUMMED) else np.mean)(values))
    for name, values in zip(row, found.T, strict=True)
  }
