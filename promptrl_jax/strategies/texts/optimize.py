"""A better text for any metric: the search in one call."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from promptrl_jax.llm.backend import Backend, BackendError, Message
from promptrl_jax.prompts import export
from promptrl_jax.strategies.texts.journal import Journal
from promptrl_jax.strategies.texts.pool import (
  Candidate,
  Pool,
  Step,
  ranked,
)
from promptrl_jax.strategies.texts.proposer import Proposer, ProposerConfig
from promptrl_jax.strategies.texts.requests import (
  Evaluate,
  EvaluationError,
  Search,
  Seen,
  failure,
  total,
)
from promptrl_jax.strategies.texts.searches import SEARCHES, play, until_ended

# Fewer candidates than these are no search.
FEWEST = 3
# Failures of the system, which no text is to blame for.
_SYSTEM = (BackendError, MemoryError)


def as_user(text: str) -> tuple[Message, ...]:
  """The text as the only message."""
  return (Message('user', text),)


@dataclasses.dataclass(frozen=True)
class Optimized:
  """What a search found.

  The score of the best of many is too high by chance (the winner's curse), so
  that its score on examples that no choice was made on stands beside it.

  Attributes:
    text: the best text on the search examples.
    start: the text that the search started from.
    score, start_score: mean on the search examples.
    held_out, start_held_out: mean on the others; None if there are none.
    candidates: all texts that were scored on all search examples; their parents
      are places among them and form a forest.
    history: every decision, in order.
    calls: that were paid, of all models, those on held-out examples included.
    ended: why the search was over.
  """

  text: str
  start: str
  score: float
  start_score: float
  held_out: float | None
  start_held_out: float | None
  candidates: tuple[Candidate, ...]
  history: tuple[Step, ...]
  calls: int
  ended: str

  def leaderboard(self, count: int = 20) -> list[tuple[int, Candidate]]:
    """The best candidates with their places, as `ranked`."""
    places = ranked(self.candidates)[:count]
    return [(place, self.candidates[place]) for place in places]

  def export(
    self,
    folder: str | os.PathLike[str],
    form: str = 'text',
    messages: Callable[[str], Sequence[Message]] = as_user,
  ) -> list[pathlib.Path]:
    """Writes the best text as it was sent, for other programs.

    Args:
      folder: created if missing.
      form: `text`, `openai` or `promptfoo`; see `prompts/export.py`.
      messages: text -> the messages with which the metric asks a model, with
        `prompts.export.place(name)` for what changes from input to input.

    Returns:
      The paths of the files, whose name is `prompt`.

    Raises:
      ValueError: there is no such format, or it cannot hold the text.
    """
    sent = tuple((m.role, m.content) for m in messages(self.text))
    return export.write(folder, {'prompt': sent}, form)

  def __str__(self) -> str:
    """The text with its scores."""
    held_out = 'none held out'
    if self.held_out is not None:
      held_out = f'held out {self.start_held_out:.3f} -> {self.held_out:.3f}'
    return (
      f'{self.text}\n\nsearch examples {self.start_score:.3f} -> '
      f'{self.score:.3f}, {held_out}; {len(self.candidates) - 1} candidates in '
      f'{self.calls} calls; {self.ended}'
    )


def optimize(
  text: str,
  evaluate: Callable[..., Any],
  budget: int,
  strategy: str = 'gepa',
  *,
  model: Backend,
  examples: Sequence[Any] | None = None,
  held_out: float = 0.5,
  seed: int = 0,
  calls_per_evaluation: int = 1,
  allow_few: bool = False,
  journal: str | os.PathLike[str] | None = None,
  proposer: ProposerConfig = ProposerConfig(),
  **options: Any,
) -> Optimized:
  """Searches for a better text.

  Args:
    text: where the search starts.
    evaluate: the metric, the higher the better. Without `examples` it is called
      as `evaluate(text)`, with them as `evaluate(text, example)`; it returns a
      number, or a number and a feedback in words, which `gepa` learns from. A
      text is evaluated once on each example.
    budget: most model calls: one for each new text, and those of `evaluate`.
    strategy: `gepa` (reflection on what failed, along a Pareto front),
      `best_of_n` (rewrites of the start text) or `evolve` (a genetic
      algorithm).
    model: writes new texts; any backend.
    examples: any values; a string is shown to the model as it is, others as
      JSON.
    held_out: share of the examples that nothing is chosen on; drawn by `seed`.
    seed: of all draws. Same answers, same search.
    calls_per_evaluation: model calls that `evaluate` makes for one example; 0
      for a metric without a model.
    allow_few: whether a budget may buy fewer than three candidates.
    journal: JSON file of what was answered. A search that was interrupted goes
      on with it and pays nothing twice, also under a larger budget.
    proposer: how the model is asked.
    **options: settings of the strategy, such as `minibatch=5`; see
      `GepaConfig`, `BestOfNConfig` and `EvolveConfig`.

  Raises:
    ValueError: the strategy or an option is not known, there is nothing to hold
      out or to search on, or the budget is too small; says what it buys.
    EvaluationError: the start text cannot be scored, or three others in a row.
    NothingUsableError: the model has written nothing that could be scored.
    BackendError: a model cannot be reached; a journal keeps what was paid.
  """
  kind = SEARCHES[strategy]
  try:
    config = kind.config(**options)
  except TypeError as error:
    known = ', '.join(f.name for f in dataclasses.fields(kind.config))
    raise ValueError(
      f'options {", ".join(options)}: {strategy} has {known}'
    ) from error
  if calls_per_evaluation < 0:
    raise ValueError(
      f'calls_per_evaluation={calls_per_evaluation}: expected 0 or more'
    )
  chosen, others = _split(examples, held_out, seed)
  measured = 2 * calls_per_evaluation * len(others)  # the start and the best
  pool = Pool(
    text,
    validation=chosen,
    train=chosen,
    budget=budget - measured,
    calls_per_evaluation=calls_per_evaluation,
    seed=seed,
  )
  check_budget(
    pool, kind, config, strategy, 1 if allow_few else FEWEST, measured
  )
  reason, best, (before, after) = play(
    _search_and_measure(pool, kind.search(pool, config), others, measured),
    Proposer(model, lambda place: _shown(examples, place), proposer),
    lambda requests: [_seen(evaluate, examples, r) for r in requests],
    Journal(journal, _identity(model, examples, proposer)),
    at_once=1,
  )
  first, last = pool.candidates[0], pool.candidates[best]
  return Optimized(
    text=last.text,
    start=text,
    score=last.mean,
    start_score=first.mean,
    held_out=after,
    start_held_out=before,
    candidates=tuple(pool.candidates),
    history=tuple(pool.steps),
    calls=pool.calls,
    ended=reason,
  )


def check_budget(
  pool: Pool,
  kind: Any,
  config: Any,
  name: str,
  fewest: int,
  measured: int = 0,
) -> None:
  """Raises ValueError for a budget that buys too few candidates.

  Args:
    pool: of the search.
    kind: an entry of `SEARCHES`.
    config: its settings.
    name: of the strategy.
    fewest: candidates that are wanted.
    measured: calls that are kept for held-out examples.
  """
  buys, price = kind.candidates(pool, config), kind.price(pool, config)
  if buys >= fewest:
    return
  start = pool.each * len(pool.validation)
  raise ValueError(
    f'a budget of {pool.calls_left + measured} calls buys {buys} candidates of '
    f'{name}: one takes up to {price} calls, the start text {start}, and what '
    f'is held out {measured}; expected at least '
    f'{start + measured + fewest * price} calls for {fewest}, or fewer '
    'examples' + (', or allow_few=True' if buys and fewest > 1 else '')
  )


def _search_and_measure(
  pool: Pool, search: Search, others: Sequence[int], measured: int
) -> Search:
  """Searches, then scores the start and the best text on held-out examples.

  Returns:
    Why the search ended, the place of the best candidate, and the means of the
    start and of the best on the held-out examples.
  """
  reason = yield from until_ended(search)
  if not others:
    return reason, pool.best, (None, None)
  pool.extend(measured)
  (before,) = yield from pool.look([(pool.candidates[0].text, others)])
  if error := failure(before):
    raise EvaluationError(
      f'the start text {pool.candidates[0].text[:80]!r} cannot be scored on a '
      f'held-out example: {error}'
    )
  start = total(before) / len(others)
  for place in ranked(pool.candidates):
    text = pool.candidates[place].text
    if not place or pool.price(text, others) > pool.calls_left:
      break
    (after,) = yield from pool.look([(text, others)])
    if not (error := failure(after)):
      return reason, place, (start, total(after) / len(others))
    pool.record('held out', (place,), text, error, examples=others)
  return reason, 0, (start, start)


def _split(
  examples: Sequence[Any] | None, held_out: float, seed: int
) -> tuple[list[int], list[int]]:
  """Places of the search examples and of the held-out ones."""
  if examples is None:
    return [0], []
  count = len(examples)
  if not 0 <= held_out < 1:
    raise ValueError(
      f'held_out={held_out}: expected a share of the examples, 0 or more and '
      'less than 1'
    )
  kept = math.ceil(held_out * count)
  if kept >= count:
    raise ValueError(
      f'{count} examples with held_out={held_out}: none would be left to '
      'search on; give more examples, or hold out fewer'
    )
  order = np.random.default_rng([seed, count]).permutation(count).tolist()
  return sorted(order[kept:]), sorted(order[:kept])


def _shown(examples: Sequence[Any] | None, place: int) -> str:
  if examples is None:
    return ''
  example = examples[place]
  if isinstance(example, str):
    return example
  return json.dumps(example, ensure_ascii=False, default=repr)


def _seen(
  evaluate: Callable[..., Any],
  examples: Sequence[Any] | None,
  request: Evaluate,
) -> Seen:
  """Calls the metric; what it raises, or no number, is an error of the text."""
  arguments = () if examples is None else (examples[request.example],)
  try:
    value = evaluate(request.text, *arguments)
    score, feedback = value if isinstance(value, tuple) else (value, '')
    score = float(score)
  except _SYSTEM:
    raise
  except Exception as error:
    return Seen(0.0, error=f'evaluate raised {type(error).__name__}: {error}')
  if not math.isfinite(score):
    return Seen(0.0, error=f'evaluate returned {score}: expected a number')
  return Seen(score, str(feedback))


def _identity(
  model: Backend, examples: Sequence[Any] | None, proposer: ProposerConfig
) -> dict[str, Any]:
  shown = [_shown(examples, i) for i in range(len(examples or ()))]
  digest = hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:16]
  return {
    'model': model.name,
    'examples': digest,
    'proposer': dataclasses.asdict(proposer),
  }
