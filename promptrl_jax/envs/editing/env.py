"""Prompt editing as an environment: N problems that step together.

A step applies one named operator to each open problem and makes at most one
batched call per role: the rewriter for the rows that rewrite, the coder for the
rows that ask, the pool for the programs that came back. `play.edit` says what a
step does. An environment is handed `Problem`s, which hold no hidden test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.envs.editing import observation as observation_lib
from promptrl_jax.envs.editing import play
from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.runner import Runner
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.llm.ask import AskConfig, make_tools
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.llm.backend import Backend
from promptrl_jax.operators import OPERATORS, Episode
from promptrl_jax.types import Problem


def make_episodes(
  problems: Sequence[Problem],
  seeds: Sequence[int],
  budgets: Sequence[int],
  positions: Sequence[tuple[int, int]] | None = None,
  prices: Sequence[float] | None = None,
) -> list[Episode]:
  """One episode per problem, in row order; see `EditingEnv.reset`."""
  positions = positions or [(0, 1)] * len(problems)
  prices = prices or [0.0] * len(problems)
  rows = zip(problems, seeds, budgets, positions, prices, strict=True)
  return [
    Episode(problem, seed, budget, row, position=position, token_price=price)
    for row, (problem, seed, budget, position, price) in enumerate(rows)
  ]


def observe(episodes: Sequence[Episode], config: EditingConfig) -> np.ndarray:
  """Observations float32 [N, O] of N episodes."""
  return np.stack([_observe(episode, config) for episode in episodes])


def _observe(episode: Episode, config: EditingConfig) -> np.ndarray:
  if config.observation == 'legacy':
    seen = observation_lib.legacy_observation(
      episode.problem.statement,
      episode.feedbacks,
      episode.steps,
      *episode.position,
    )
  else:
    if config.observation == 'masked':
      episode = observation_lib.masked(episode)
    seen = observation_lib.rich_observation(
      episode, config.actions, config.budget
    )
  more = []
  if config.sees_certainty:
    more += observation_lib.certainty_features(episode.confidence)
  if config.sees_agreement:
    more += observation_lib.agreement_features(episode.outcomes)
  if config.sees_price:
    more.append(observation_lib.price_feature(episode.token_price))
  return np.concatenate([seen, more], dtype=np.float32) if more else seen


def masks(episodes: Sequence[Episode], config: EditingConfig) -> np.ndarray:
  """bool [N, A]: operators that act and can be paid for."""
  actions = [OPERATORS[name] for name in config.actions]
  return np.array([[o.is_open(e) for o in actions] for e in episodes])


def look(
  waiting: Sequence[Episode], count: int, config: EditingConfig
) -> tuple[np.ndarray, np.ndarray]:
  """Observations [count, O] and masks [count, A] of episodes by their row.

  Rows of episodes that are not waiting are zero, with every operator allowed.
  """
  rows = [episode.row for episode in waiting]
  observations = np.zeros((count, config.observation_size), np.float32)
  allowed = np.ones((count, len(config.actions)), bool)
  observations[rows] = observe(waiting, config)
  allowed[rows] = masks(waiting, config)
  return observations, allowed


class EditingEnv:
  """N episodes that step together.

  Attributes:
    episodes: their state, in row order; done rows stay and are not stepped.
    runner: serves models and pool; holds the ledger.
  """

  def __init__(
    self,
    coder: Backend,
    rewriter: Backend,
    pool: ExecutionPool,
    config: EditingConfig = EditingConfig(),
    ask: AskConfig = AskConfig(),
    gamma: float = 1.0,
    options: Mapping[str, Any] | None = None,
  ):
    """Puts the parts together.

    `gamma` is the learner's discount, `options` are those of `Tools`.
    """
    self.config = config
    self._gamma = gamma
    self.episodes: list[Episode] = []
    self.runner = Runner({REWRITER: rewriter, CODER: coder}, pool, strict=True)
    self._tools = make_tools(ask, self.runner.backends, options)
    self._plays = []

  @property
  def trace(self) -> list[dict[str, Any]]:
    """One dict per row and step since the last `reset`, step by step."""
    return sorted_trace(self.episodes)

  def reset(
    self,
    problems: Sequence[Problem],
    seeds: Sequence[int],
    budgets: Sequence[int] | None = None,
    positions: Sequence[tuple[int, int]] | None = None,
    prices: Sequence[float] | None = None,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Starts one episode per problem.

    Args:
      problems: what to solve.
      seeds: of each episode. Draws depend on the seed, the problem and the
        number of calls made, so two strategies with equal seeds meet equal
        samples as long as they ask the same.
      budgets: calls of each episode, `config.budget` by default.
      positions: (index, size) of each problem in its data set.
      prices: of 1,000 tokens in each episode, in rewards; 0 by default.

    Returns:
      Observations float32 [N, O] and action masks bool [N, A].
    """
    budgets = budgets or [self.config.budget] * len(problems)
    self.episodes = make_episodes(problems, seeds, budgets, positions, prices)
    self._plays = self.runner.start(
      [
        (e, play.edit(e, self._tools, self.config, gamma=self._gamma))
        for e in self.episodes
      ]
    )
    count = len(self.episodes)
    self._seen, self._allowed = look(self.episodes, count, self.config)
    return self._seen.copy(), self._allowed.copy()

  def step(
    self, chosen: Sequence[str]
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Applies one operator to each open row; the others are left alone.

    An operator that is not available is taken as `keep`. Returns observations
    [N, O], action masks [N, A] and rewards float32 [N]; how episodes ended
    stands in `episodes`.
    """
    open_rows = [i for i, e in enumerate(self.episodes) if not e.done]
    for i in open_rows:
      self.runner.answer(self._plays[i], chosen[i])
    self.runner.serve(self._plays)
    rewards = np.zeros(len(self.episodes), np.float32)
    for i in open_rows:
      if not self.episodes[i].lost:
        rewards[i] = self.episodes[i].reward
    if open_rows:  # An episode that has ended looks as it did then.
      played = [self.episodes[i] for i in open_rows]
      self._seen[open_rows] = observe(played, self.config)
      self._allowed[open_rows] = masks(played, self.config)
    return self._seen.copy(), self._allowed.copy(), rewards


def sorted_trace(episodes: Sequence[Any]) -> list[dict[str, Any]]:
  """Trace rows of attempts, step by step."""
  rows = [row for episode in episodes for row in episode.trace]
  return sorted(rows, key=lambda row: (row['step'], row['row']))
