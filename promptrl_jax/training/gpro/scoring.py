"""What critics expect of prompts, on answers that nobody has seen.

prompts x queries ──backend──> answers ──features──> critics ──> mean, spread
                   └──────── answer ────────────┘  └──── expected ────┘
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from promptrl_jax.llm.backend import Backend, Request
from promptrl_jax.llm.candidates import candidate_requests
from promptrl_jax.training.gpro.features import FeatureMap
from promptrl_jax.training.gpro.learner import GPROLearner
from promptrl_jax.training.gpro.state import GPROState


class Answered(NamedTuple):
  """The answers of a prompt to m queries.

  Attributes:
    texts: the answers, [m].
    rows: their features, float32 [m, D].
  """

  texts: list[str]
  rows: np.ndarray


class Expected(NamedTuple):
  """What critics expect of the answers of n prompts to m queries.

  Attributes:
    mean, spread: mean and standard deviation of the critics' scores, float64
      [n, m] each.
    answers: the answers, [m][n].
  """

  mean: np.ndarray
  spread: np.ndarray
  answers: Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True)
class PromptScorer:
  """Answers queries under prompts, and asks the critics about the answers.

  Attributes:
    learner: whose critics are asked.
    backend: answers.
    features: of answers.
    temperature: at which answers are sampled where none is chosen.
    max_tokens: most tokens of an answer.
    rows: answers that are scored at once, usually the most that there are.
      Fewer are padded, so that nothing is compiled again.
  """

  learner: GPROLearner
  backend: Backend
  features: FeatureMap
  temperature: float
  max_tokens: int
  rows: int

  def answers(
    self,
    prompts: Sequence[str],
    query: str,
    seed: int = 0,
    temperature: float | None = None,
  ) -> list[str]:
    """Answers a query under each of n prompts.

    Raises:
      BackendError: the model could not be asked.
    """
    requests = self._requests(prompts, query, seed, temperature)
    return [one.text for one in self.backend.complete(requests)]

  def answer(
    self, prompts: Sequence[str], queries: Sequence[str], cases: np.ndarray
  ) -> list[Answered]:
    """Answers m queries under each of n prompts, all in one batch.

    Args:
      cases: float [m, Q], features of the queries.

    Raises:
      BackendError: the model could not be asked.
    """
    asked = [r for query in queries for r in self._requests(prompts, query)]
    texts = iter(one.text for one in self.backend.complete(asked))
    answers = [list(itertools.islice(texts, len(prompts))) for _ in queries]
    rows = self.features.grid(cases, answers, prompts)
    return [
      Answered([row[i] for row in answers], rows[:, i])
      for i in range(len(prompts))
    ]

  def _requests(
    self,
    prompts: Sequence[str],
    query: str,
    seed: int = 0,
    temperature: float | None = None,
  ) -> list[Request]:
    return candidate_requests(
      prompts,
      query,
      temperature=temperature,
      default_temperature=self.temperature,
      max_tokens=self.max_tokens,
      seed=seed,
    )

  def expected(
    self, state: GPROState, answered: Sequence[Answered]
  ) -> Expected:
    """What critics expect of the answers of n prompts to m queries."""
    rows = np.stack([prompt.rows for prompt in answered], axis=1)
    shape = rows.shape[:2]
    mean, spread = self.scores(state, rows.reshape(-1, rows.shape[2]))
    answers = list(zip(*(prompt.texts for prompt in answered), strict=True))
    return Expected(mean.reshape(shape).T, spread.reshape(shape).T, answers)

  def scores(
    self, state: GPROState, features: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread [N] of the critics' scores, from features [N, D]."""
    few = self.learner.config.candidates
    total = -(-max(len(features), self.rows) // few) * few
    padded = np.zeros((total, features.shape[1]), np.float32)
    padded[: len(features)] = features
    grouped = padded.reshape(-1, few, features.shape[1])
    mask = np.ones(grouped.shape[:2], bool)
    choice = self.learner.act(state, grouped, mask, jax.random.key(0))
    flat = lambda x: np.asarray(x, np.float64).ravel()[: len(features)]
    return flat(choice.scores), flat(choice.spread)
