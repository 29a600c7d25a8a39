"""One budget for all problems: calls go where they are expected to help most.

A cap for each problem spends as much on a hopeless one as on one that the next
call would solve. Here N problems share a total of calls. Before each step the
critic says what every open problem is still worth,

  V(s) = E[solved - price * calls from here on],

and a problem goes on only if that is above a threshold: the price of a call
that is worth its place (a Lagrange multiplier of the common budget, chosen on
validation). What the total cannot pay for goes to the problems of the highest
value.
"""

from __future__ import annotations

from collections.abc import Sequence

from promptrl_jax.envs.editing import env as editing
from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.play import edit
from promptrl_jax.envs.editing.rollout import Policy
from promptrl_jax.llm.ask import Tools
from promptrl_jax.operators import OPERATORS, Episode
from promptrl_jax.strategies.base import Plays
from promptrl_jax.types import Problem

STOP = 'submit'


class Allocation:
  """A policy over operators whose problems share one budget."""

  def __init__(
    self,
    policy: Policy,
    config: EditingConfig,
    *,
    total: int,
    threshold: float,
  ):
    """Puts the parts together.

    Args:
      policy: chooses operators; its values are those of the critic.
      config: of the environment; its actions contain `submit`. No problem gets
        more than `config.budget` calls.
      total: calls of all problems together.
      threshold: value below which a problem is given up after its first call.

    Raises:
      ValueError: nothing can be given up without `submit`.
    """
    if STOP not in config.actions:
      raise ValueError(
        f'actions {config.actions}: expected {STOP!r} among them, which ends '
        'an episode whose calls are worth more elsewhere'
      )
    self._policy, self._config = policy, config
    self._total, self._threshold = total, threshold

  def start(
    self, problems: Sequence[Problem], tools: Tools, *, budget: int, seed: int
  ) -> Plays:
    """Starts all problems; `budget` says nothing, the total is theirs."""
    del budget
    count = len(problems)
    episodes = editing.make_episodes(
      problems,
      [seed] * count,
      [self._config.budget] * count,
      [(i, count) for i in range(count)],
    )
    names = self._config.actions

    def choose(waiting: Sequence[Episode]) -> list[str]:
      step = waiting[0].steps  # All began together and step together.
      rows = [episode.row for episode in waiting]
      observations, masks = editing.look(waiting, count, self._config)
      decision = self._policy(observations, masks, step)
      left = self._total - sum(episode.calls for episode in episodes)
      chosen = {}
      for row in sorted(rows, key=lambda row: -decision.values[row]):
        name = names[decision.actions[row]]
        calls = OPERATORS[name].calls
        is_worth_it = not step or decision.values[row] >= self._threshold
        if not is_worth_it or calls > left:
          name, calls = STOP, 0
        chosen[row] = name
        left -= calls
      return [chosen[row] for row in rows]

    return [(e, edit(e, tools, self._config, choose)) for e in episodes]
