"""The prompt-editing environment behind Gymnasium's interface: one row of N."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.backend import Backend
from promptrl_jax.types import Problem


class PromptEdit(gymnasium.Env):
  """One problem at a time; each reset goes on to the next problem.

  `info` has the mask of the available operators; another one is taken as
  `keep`. `terminated` says that the problem was solved or submitted,
  `truncated` that budget or steps ran out.
  """

  metadata = {'render_modes': []}  # noqa: RUF012 (Gymnasium's own form)

  def __init__(
    self,
    problems: Sequence[Problem],
    coder: Backend,
    rewriter: Backend,
    pool: ExecutionPool,
    config: EditingConfig = EditingConfig(),
    ask: AskConfig = AskConfig(),
  ):
    if not problems:
      raise ValueError('the environment needs at least one problem')
    self._env = EditingEnv(coder, rewriter, pool, config, ask)
    self._problems = list(problems)
    self._next = 0
    self._seed = 0
    self.action_space = gymnasium.spaces.Discrete(len(config.actions))
    self.observation_space = gymnasium.spaces.Box(
      -np.inf, np.inf, (config.observation_size,), np.float32
    )

  def reset(
    self, *, seed: int | None = None, options: dict[str, Any] | None = None
  ) -> tuple[np.ndarray, dict[str, Any]]:
    """Starts the next problem, or that of `options['index']`.

    A seed starts the walk through the data set again, so that equal seeds give
    equal episodes.
    """
    super().reset(seed=seed)
    if seed is not None:
      self._seed, self._next = seed, 0
    if options and 'index' in options:
      self._next = options['index']
    index = self._next % len(self._problems)
    self._next = index + 1
    observations, masks = self._env.reset(
      [self._problems[index]],
      [self._seed],
      positions=[(index, len(self._problems))],
    )
    return observations[0], self._info(masks[0])

  def step(
    self, action: int
  ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
    if not self._env.episodes or self._env.episodes[0].done:
      raise RuntimeError('the episode is over: call reset before step')
    name = self._env.config.actions[int(action)]
    observations, masks, rewards = self._env.step([name])
    episode = self._env.episodes[0]
    return (
      observations[0],
      float(rewards[0]),
      episode.terminated,
      episode.truncated,
      self._info(masks[0]) | self._env.trace[-1],
    )

  def _info(self, mask: np.ndarray) -> dict[str, Any]:
    return {
      'task_id': self._env.episodes[0].problem.task_id,
      'action_mask': mask,
      'action_names': self._env.config.actions,
    }
