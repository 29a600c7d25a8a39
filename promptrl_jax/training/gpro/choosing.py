"""Ways to choose which prompts answer, and which of the answers is shown.

Of the answers, `gpro` follows the actor. The others are its rivals: they read
the critics of the same learner and differ in the choice alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from promptrl_jax.evolution.population import Individual
from promptrl_jax.training.gpro import replay as replay_lib
from promptrl_jax.training.gpro.learner import GPROLearner, act_key
from promptrl_jax.training.gpro.state import GPROState


class Chosen(NamedTuple):
  """One query's choice.

  Attributes:
    shown: index of the candidate.
    other: index of a second one for a pair; `shown` if there is one alone.
    logps: float [G], log-probabilities with which each would be shown.
    scores: float [G], satisfaction that the critics expect.
  """

  shown: int
  other: int
  logps: np.ndarray
  scores: np.ndarray


@dataclasses.dataclass(frozen=True)
class RulesConfig:
  """Settings of the rivals.

  Attributes:
    epsilon: probability with which `epsilon_greedy` tries any candidate.
    scale: standard deviations of the critics in a draw of `thompson`.
  """

  epsilon: float = 0.1
  scale: float = 1.0

  def __post_init__(self):
    if not 0 <= self.epsilon <= 1 or not self.scale >= 0:
      raise ValueError(
        f'epsilon={self.epsilon}, scale={self.scale}: expected an epsilon in '
        '[0, 1] and a scale of at least 0'
      )


# (scores [G], their spread [G], settings, random numbers) -> probabilities [G]
_Rule = Callable[
  [np.ndarray, np.ndarray, RulesConfig, np.random.Generator], np.ndarray
]


def _uniform(scores, spread, config, rng):
  del spread, config, rng
  return np.full(len(scores), 1 / len(scores))


def _epsilon_greedy(scores, spread, config, rng):
  del spread, rng
  shares = np.full(len(scores), config.epsilon / len(scores))
  shares[int(scores.argmax())] += 1 - config.epsilon
  return shares


def _thompson(scores, spread, config, rng):
  """The share of 64 draws from the critics that a candidate wins."""
  draws = rng.normal(scores, config.scale * spread + 1e-9, (64, len(scores)))
  return np.bincount(draws.argmax(1), minlength=len(scores)) / 64


_RULES: dict[str, _Rule] = {
  'random': _uniform,
  'epsilon_greedy': _epsilon_greedy,
  'thompson': _thompson,
}
NAMES = (*_RULES, 'gpro')


def choose(
  name: str,
  learner: GPROLearner,
  state: GPROState,
  features: np.ndarray,
  number: int,
  config: RulesConfig = RulesConfig(),
  seed: int = 0,
) -> Chosen:
  """Chooses one of G candidates.

  Args:
    name: one of `NAMES`.
    features: float [G, D], as many candidates as the learner takes.
    number: of the query, from which all that is drawn follows, with `seed`.
    seed: of the run.
  """
  count = len(features)
  padded, mask = replay_lib.pad(features, learner.config.candidates)
  key = act_key(state, number)
  choice = learner.act(state, padded[None], mask[None], key)
  scores = np.asarray(choice.scores[0])[:count]
  if name == 'gpro':
    logps = np.asarray(choice.logps[0])[:count]
    shown, other = int(choice.shown[0]), int(choice.other[0])
    return Chosen(shown, other, logps, scores)
  rng = np.random.default_rng([seed, number])
  spread = np.asarray(choice.spread[0])[:count]
  shares = _RULES[name](scores, spread, config, rng)
  shown = int(rng.choice(count, p=shares))
  rest = np.maximum(shares, 1e-3) * (np.arange(count) != shown)
  other = shown if count == 1 else int(rng.choice(count, p=rest / rest.sum()))
  return Chosen(shown, other, np.log(np.maximum(shares, 1e-3)), scores)


def choose_prompts(
  people: Sequence[Individual],
  cases: np.ndarray,
  context: np.ndarray,
  count: int,
) -> list[Individual]:
  """The prompts that were expected to be best on queries like this one.

  Args:
    people: prompts with an objective for each case.
    cases: float [m, Q], features of the queries that they were scored on.
    context: float [Q], features of the query.
    count: how many, at most all.

  Returns:
    The best first, by the mean of their objectives, with weights that fall with
    the distance of the cases.
  """
  distances = np.sum((cases - context) ** 2, axis=1)
  weights = np.exp(-distances / max(float(np.median(distances)) / 4, 1e-6))
  weights /= weights.sum()
  expected = np.array([np.dot(one.objectives, weights) for one in people])
  return [people[i] for i in np.argsort(-expected, kind='stable')[:count]]
