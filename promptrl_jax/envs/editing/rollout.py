"""Runs a policy on a batch of problems until every episode has ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.types import Problem


@dataclasses.dataclass(frozen=True)
class Decision:
  """What a policy chose for N rows.

  Attributes:
    actions: int [N], indices into the environment's actions.
    logps, values: [N], of actions and observations; zeros if there are none.
  """

  actions: np.ndarray
  logps: np.ndarray
  values: np.ndarray


_FLAGS = ('terminated', 'truncated', 'mask')
# (observations [N, O], action masks [N, A], step) -> Decision
Policy = Callable[[np.ndarray, np.ndarray, int], Decision]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Trajectories:
  """T steps of N episodes, time first; `mask` says which steps took place.

  Attributes:
    observations: float32 [T, N, O].
    action_masks: bool [T, N, A].
    actions: int32 [T, N].
    logps, values, rewards: float32 [T, N].
    next_values: float32 [T, N], value of the observation that followed.
    terminated, truncated, mask: bool [T, N].
  """

  observations: np.ndarray
  action_masks: np.ndarray
  actions: np.ndarray
  logps: np.ndarray
  values: np.ndarray
  next_values: np.ndarray
  rewards: np.ndarray
  terminated: np.ndarray
  truncated: np.ndarray
  mask: np.ndarray


def collect(
  env: EditingEnv,
  policy: Policy,
  problems: Sequence[Problem],
  seeds: Sequence[int],
  budgets: Sequence[int] | None = None,
  positions: Sequence[tuple[int, int]] | None = None,
  prices: Sequence[float] | None = None,
) -> Trajectories:
  """Plays one episode per problem.

  Every array has T = `env.config.max_steps` steps, however soon the episodes
  end, so that an update that is jitted on them compiles once. Episodes that the
  system lost have no valid step.
  """
  count, horizon = len(problems), env.config.max_steps
  observations, masks = env.reset(problems, seeds, budgets, positions, prices)
  names = env.config.actions
  size = horizon, count
  floats = ('logps', 'values', 'next_values', 'rewards')
  out = Trajectories(
    observations=np.zeros((horizon, *observations.shape), np.float32),
    action_masks=np.ones((horizon, *masks.shape), bool),
    actions=np.zeros(size, np.int32),
    **{name: np.zeros(size, np.float32) for name in floats},
    **{name: np.zeros(size, bool) for name in _FLAGS},
  )
  for step in range(horizon):
    open_rows = np.array([not e.done for e in env.episodes])
    if not open_rows.any():
      break
    decision = policy(observations, masks, step)
    out.observations[step], out.action_masks[step] = observations, masks
    out.actions[step] = decision.actions
    out.logps[step], out.values[step] = decision.logps, decision.values
    if step:
      out.next_values[step - 1] = decision.values
    out.mask[step] = open_rows
    observations, masks, out.rewards[step] = env.step(
      [names[a] for a in decision.actions]
    )
    out.terminated[step] = [e.terminated for e in env.episodes]
    out.truncated[step] = [e.truncated for e in env.episodes]
  last = policy(observations, masks, horizon)
  final = out.mask & (out.terminated | out.truncated)
  out.next_values[...] = np.where(final, last.values, out.next_values)
  lost = np.array([e.lost for e in env.episodes])
  out.mask[:, lost] = False
  return out
