"""The candidates of a search, what they cost, and how they came about."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import numpy as np

from promptrl_jax.llm.ledger import BudgetExceeded
from promptrl_jax.strategies.texts import pareto
from promptrl_jax.strategies.texts.requests import (
  Ended,
  Evaluate,
  EvaluationError,
  NothingUsableError,
  Proposal,
  Propose,
  Search,
  Seen,
  failure,
)

# In a row, after which a search has lost its model, or its metric.
MOST_REFUSED, MOST_FAILED = 10, 3


@dataclasses.dataclass(frozen=True)
class Candidate:
  """A text that was scored on all search examples.

  Attributes:
    parents: places in the pool; none for the text that the search starts from.
    scores: on the search examples, in their order.
  """

  text: str
  parents: tuple[int, ...]
  scores: tuple[float, ...]

  @property
  def mean(self) -> float:
    return math.fsum(self.scores) / len(self.scores)


def ranked(
  candidates: Sequence[Candidate], places: Iterable[int] | None = None
) -> list[int]:
  """Places of candidates by falling mean, of equals the oldest first.

  Those of `places`, or all.
  """
  if places is None:
    places = range(len(candidates))
  return sorted(places, key=lambda place: (-candidates[place].mean, place))


@dataclasses.dataclass(frozen=True)
class Step:
  """One decision of a search.

  Attributes:
    kind: `start`, one of `Propose.kind`, or `held out` for a text that could
      not be scored there.
    parents: places in the pool.
    text: what was proposed; empty if nothing usable was.
    candidate: its place in the pool; None if it was not taken.
    why: the reason, in words.
    examples: on which it was compared with its parents.
    before: sum of the scores of each parent on these.
    after: its own; None if it was not scored.
    front: the Pareto front of the pool afterwards.
    calls: all calls until then.
  """

  kind: str
  parents: tuple[int, ...]
  text: str
  candidate: int | None
  why: str
  examples: tuple[int, ...]
  before: tuple[float, ...]
  after: float | None
  front: tuple[int, ...]
  calls: int


class Pool:
  """All that a search knows. Requests go through it, so that all are paid.

  Attributes:
    seed: of all draws.
    validation: the search examples, on which candidates are chosen.
    train: examples that a model may be shown.
    candidates: in the order of their discovery, the start text first.
    steps: what was decided.
    each: calls of one evaluation.
    calls: that were reserved, of the model that writes and of the metric.
  """

  def __init__(
    self,
    start: str,
    *,
    validation: Sequence[int],
    train: Sequence[int],
    budget: int,
    calls_per_evaluation: int = 1,
    seed: int = 0,
  ):
    """Makes an empty pool.

    Args:
      start: the text that the search starts from.
      validation: places of the search examples.
      train: places of the examples that a model may be shown; they may be
        search examples.
      budget: most calls; a request beyond it is never made.
      calls_per_evaluation: of models, by the metric, for one example.
      seed: of all draws.
    """
    self.start_text, self.seed = start, seed
    self.validation, self.train = tuple(validation), tuple(train)
    self.candidates: list[Candidate] = []
    self.steps: list[Step] = []
    self.calls = 0
    self._budget, self.each = budget, calls_per_evaluation
    self._seen: dict[tuple[str, int], Seen] = {}
    self._known, self._refused, self._failed = {start}, 0, 0
    self._usable = False

  @property
  def scores(self) -> np.ndarray:
    """Float [candidates, search examples]."""
    return np.array([candidate.scores for candidate in self.candidates])

  @property
  def best(self) -> int:
    """The candidate with the highest mean, of equals the oldest."""
    return ranked(self.candidates)[0]

  @property
  def calls_left(self) -> int:
    return self._budget - self.calls

  def extend(self, calls: int) -> None:
    """Adds calls to the budget."""
    self._budget += calls

  def price(self, text: str, examples: Sequence[int]) -> int:
    """Calls that scoring a text would take; what is known is not paid again."""
    return self.each * sum((text, e) not in self._seen for e in examples)

  def check_affords(self, calls: int) -> None:
    """Ends the search if the budget has not got so many calls left."""
    if calls > self.calls_left:
      raise Ended(
        f'the next step could take {calls} calls and {self.calls_left} are left'
      )

  def start(self) -> Search:
    """Scores the start text, the first candidate.

    Raises:
      EvaluationError: it cannot be scored.
    """
    (seen,) = yield from self.look([(self.start_text, self.validation)])
    if error := failure(seen):
      raise EvaluationError(
        f'the start text {self.start_text[:80]!r} cannot be scored: {error}'
      )
    self._add(self.start_text, (), seen)
    self.record('start', (), self.start_text, 'the start', candidate=0)

  def look(self, jobs: Sequence[tuple[str, Sequence[int]]]) -> Search:
    """Scores texts; returns what became of each on its examples."""
    wanted = dict.fromkeys(
      (text, example)
      for text, examples in jobs
      for example in examples
      if (text, example) not in self._seen
    )
    self._reserve(self.each * len(wanted))
    if wanted:
      answers = yield [Evaluate(*pair) for pair in wanted]
      self._seen |= dict(zip(wanted, answers, strict=True))
    rows = [[self._seen[text, e] for e in examples] for text, examples in jobs]
    asked = {text for text, _ in wanted}
    for (text, _), seen in zip(jobs, rows, strict=True):
      if text not in asked:
        continue
      error = failure(seen)
      self._failed = self._failed + 1 if error else 0
      if self._failed == MOST_FAILED:
        raise EvaluationError(
          f'{MOST_FAILED} texts in a row cannot be scored, the last one, '
          f'{text[:80]!r}, because of: {error}'
        )
    return rows

  def propose(self, requests: Sequence[Propose]) -> Search:
    """Has new texts written; one that was there before is refused.

    Raises:
      NothingUsableError: not one of the first replies holds a new text.
    """
    self._reserve(len(requests))
    proposals = []
    for proposal in (yield requests):
      if not proposal.refused and proposal.text in self._known:
        proposal = Proposal('', 'a text that was there before')
      self._known.add(proposal.text)
      self._refused = self._refused + 1 if proposal.refused else 0
      self._usable |= not proposal.refused
      proposals.append(proposal)
    if self._refused >= MOST_REFUSED:
      reason = f'{self._refused} replies in a row are not usable, the last one '
      reason += f'is {proposals[-1].refused}'
      if self._usable:
        raise Ended(reason)
      raise NothingUsableError(
        f'{reason}: expected a model that follows instructions and answers '
        'differently to different seeds'
      )
    return proposals

  def admit(
    self, text: str, parents: tuple[int, ...]
  ) -> Generator[Any, Any, str]:
    """Scores a text on all search examples and takes it in.

    Returns:
      The reason for which that is not possible; empty if it was taken.
    """
    (seen,) = yield from self.look([(text, self.validation)])
    if not (error := failure(seen)):
      self._add(text, parents, seen)
    return error

  def record(
    self,
    kind: str,
    parents: tuple[int, ...],
    text: str,
    why: str,
    *,
    candidate: int | None = None,
    examples: Sequence[int] = (),
    before: Sequence[float] = (),
    after: float | None = None,
  ) -> None:
    """Adds a step to the history."""
    self.steps.append(
      Step(
        kind,
        parents,
        text,
        candidate,
        why,
        tuple(examples),
        tuple(before),
        after,
        tuple(pareto.front(self.scores)),
        self.calls,
      )
    )

  def ancestors(self, place: int) -> set[int]:
    """Places of all texts that a candidate comes from."""
    parents = self.candidates[place].parents
    return {*parents}.union(*map(self.ancestors, parents))

  def draw_seed(self, place: int) -> int:
    """Seed of the next request of a batch: of the search and its calls."""
    state = np.random.SeedSequence([self.seed, self.calls, place])
    return int(state.generate_state(1)[0]) >> 1  # Servers take 31 bits.

  def _add(self, text: str, parents: tuple[int, ...], seen: list[Seen]) -> None:
    scores = tuple(one.score for one in seen)
    self.candidates.append(Candidate(text, parents, scores))

  def _reserve(self, calls: int) -> None:
    if calls > self.calls_left:
      raise BudgetExceeded(
        f'{calls} calls where {self.calls_left} of {self._budget} are left'
      )
    self.calls += calls
