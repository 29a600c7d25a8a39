"""What a strategy is: how one problem after another is solved.

A strategy that reads and writes text is a generator function:

  def ask_twice(attempt, tools):
    prompt = coder_prompt(attempt)
    code = yield from tools.write_program(attempt, prompt)
    result = yield Execute(code)
    if not result.passed:
      code = yield from tools.write_program(attempt, prompt, resample=True)
    return code

  register('ask_twice', ask_twice, CandidateCost())

It yields requests and is sent their answers; it returns one program. A runner
plays it on hundreds of problems at once (see `envs.runner`). A policy over
operators becomes a strategy through `OverOperators`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from promptrl_jax.envs.editing import env as editing
from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.play import edit
from promptrl_jax.envs.editing.rollout import Policy
from promptrl_jax.llm.ask import Tools
from promptrl_jax.llm.attempt import Attempt, Play
from promptrl_jax.llm.preflight import CandidateCost
from promptrl_jax.operators import Episode
from promptrl_jax.registry import Registry, check_call
from promptrl_jax.strategies import epic, reflexion, reflexion_ucs
from promptrl_jax.strategies.codet import codet
from promptrl_jax.strategies.fewshot import best_of_n, fewshot
from promptrl_jax.strategies.mbr_exec import mbr_exec
from promptrl_jax.types import Problem

Plays = list[tuple[Attempt, Play]]
PlayFn = Callable[[Attempt, Tools], Play]


class Strategy(Protocol):
  """Solves problems by requests to models and programs that it has run."""

  def start(
    self, problems: Sequence[Problem], tools: Tools, *, budget: int, seed: int
  ) -> Plays:
    """One attempt and generator per problem, in their order.

    Args:
      problems: what to solve; they hold no hidden test.
      tools: builds requests.
      budget: most model calls per problem.
      seed: of all random draws.
    """
    ...


class TextStrategy:
  """A generator function, played on each problem by itself."""

  def __init__(self, play_fn: PlayFn):
    self._play_fn = play_fn

  def start(
    self, problems: Sequence[Problem], tools: Tools, *, budget: int, seed: int
  ) -> Plays:
    attempts = [
      Attempt(problem, seed, budget, row)
      for row, problem in enumerate(problems)
    ]
    for attempt in attempts:
      attempt.peers = attempts
    return [(attempt, self._play_fn(attempt, tools)) for attempt in attempts]


class OverOperators:
  """A policy over operators as a strategy.

  The policy sees batches of a fixed shape, a row for each episode, so that it
  is compiled once. Episodes that are at another step than the others, as in a
  portfolio whose parts end at different times, are in batches of their own.

  Attributes:
    policy: chooses the operators; it may see the price of 1,000 tokens.
  """

  def __init__(
    self, policy: Policy, config: EditingConfig, token_price: float = 0.0
  ):
    self.policy = policy
    self._config = config
    self._price = token_price

  def start(
    self, problems: Sequence[Problem], tools: Tools, *, budget: int, seed: int
  ) -> Plays:
    count = len(problems)
    episodes = editing.make_episodes(
      problems,
      [seed] * count,
      [budget] * count,
      [(i, count) for i in range(count)],
      [self._price] * count,
    )
    names = self._config.actions

    def choose(episodes: Sequence[Episode]) -> list[str]:
      """Calls the policy once for each step; rows of no episode are zero."""
      chosen: dict[int, str] = {}
      for step in sorted({episode.steps for episode in episodes}):
        there = [episode for episode in episodes if episode.steps == step]
        observations, masks = editing.look(there, count, self._config)
        actions = self.policy(observations, masks, step).actions
        chosen |= {e.row: names[actions[e.row]] for e in there}
      return [chosen[episode.row] for episode in episodes]

    return [(e, edit(e, tools, self._config, choose)) for e in episodes]


class ByBudget:
  """A strategy of its own for each budget, the next lower one between them."""

  def __init__(self, strategies: Mapping[int, Strategy]):
    self._strategies = strategies

  def start(
    self, problems: Sequence[Problem], tools: Tools, *, budget: int, seed: int
  ) -> Plays:
    lower = [b for b in self._strategies if b <= budget]
    chosen = self._strategies[max(lower, default=min(self._strategies))]
    return chosen.start(problems, tools, budget=budget, seed=seed)


@dataclasses.dataclass(frozen=True)
class Registered:
  """A strategy that reads and writes text, and what it needs.

  Attributes:
    play_fn: the generator function.
    cost: of a candidate, for the line before a run.
    instructed: it asks models in words, for tests or reflections, and needs
      ones that follow instructions.
    remembers: its prompts show reflections on other problems, if there are any.
  """

  play_fn: PlayFn
  cost: CandidateCost
  instructed: bool = False
  remembers: bool = False


def _check(name: str, registered: Registered) -> None:
  play_fn = registered.play_fn
  if not isinstance(registered.cost, CandidateCost):
    raise TypeError(
      f'strategy {name!r}: cost={registered.cost!r}, expected a CandidateCost, '
      'which says how many calls a candidate takes'
    )
  if not inspect.isgeneratorfunction(play_fn):
    raise TypeError(
      f'strategy {name!r}: expected a generator function of (attempt, tools) '
      f'that yields requests and returns a program, got {play_fn!r}'
    )
  check_call(f'strategy {name!r}', play_fn, 'attempt', 'tools')


STRATEGIES: Registry[Registered] = Registry('strategy', _check)


def register(
  name: str,
  play_fn: PlayFn,
  cost: CandidateCost,
  *,
  instructed: bool = False,
  remembers: bool = False,
) -> PlayFn:
  """Makes a strategy known by its name, see `Registered`; returns it."""
  STRATEGIES.register(name, Registered(play_fn, cost, instructed, remembers))
  return play_fn


def named(name: str) -> TextStrategy:
  """The registered strategy of a name.

  Raises:
    ValueError: there is none; lists the names there are.
  """
  return TextStrategy(STRATEGIES[name].play_fn)


_SAMPLE = CandidateCost()
# A reflection, or a rewrite of the statement, and the program after it.
_AFTER_WORDS = CandidateCost(calls=2)

register('best_of_n', best_of_n, _SAMPLE)
register('codet', codet, CandidateCost(share=0.25), instructed=True)
register('epic', epic.epic, _AFTER_WORDS, instructed=True)
register('epic_fixed', epic.epic_fixed, _AFTER_WORDS, instructed=True)
register('epic_words', epic.epic_words, _AFTER_WORDS, instructed=True)
register('fewshot', fewshot, _SAMPLE)
register(
  'immediate_refinement',
  reflexion.immediate_refinement,
  _SAMPLE,
  instructed=True,
)
register(
  'immediate_reflexion',
  reflexion.immediate_reflexion,
  _AFTER_WORDS,
  instructed=True,
  remembers=True,
)
register('mbr_exec', mbr_exec, _SAMPLE)
register(
  'reflexion',
  reflexion.reflexion,
  _AFTER_WORDS,
  instructed=True,
  remembers=True,
)
register(
  'reflexion_ucs',
  reflexion_ucs.reflexion_ucs,
  _AFTER_WORDS,
  instructed=True,
  remembers=True,
)
