"""EPiC: statements evolve, and generated tests are their fitness.

Taherkhani et al. 2024, EPiC: Cost-effective Search-based Prompt Engineering of
LLMs for Code Generation, arXiv 2408.11198.

  tests ──> program of the statement ──fitness >= close_first──> submission
                │
  population: the statement and P descriptions by the model
                │ <──────────────── 1 survivor, P - 1 children ──┐
                v                                                │
  programs, fitness ──1, or the best >= close_generation──> submission
                └── parents are drawn in proportion to fitness ──┘

`FAITHFUL` decides as the released code does, but where the model has written no
tests: for the released code every program then has a fitness of 1, so that the
first one is submitted at once. Here none is accepted: the evolution goes on and
submits the same program in the end. `FIXED` mends what is wrong in that code:
it accepts no program that fails a test, keeps the best statement and submits
its program, and drops generated tests that most good programs fail.
`WORDS` does the same, but asks the model for mutations and crossovers.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from promptrl_jax.evolution.diversity import jaccard_diversity
from promptrl_jax.evolution.islands import round_the_ring
from promptrl_jax.llm.ask import Tools, coder_prompt
from promptrl_jax.llm.attempt import Attempt, Meet, Play
from promptrl_jax.operators import lexical, wording
from promptrl_jax.rewards import agreement
from promptrl_jax.strategies import self_tests
from promptrl_jax.strategies.epic_config import (
  FAITHFUL,
  FIXED,
  WORDS,
  EpicConfig,
)
from promptrl_jax.strategies.self_tests import Verdict

PlayFn = Callable[[Attempt, Tools], Play]


@dataclasses.dataclass(frozen=True)
class Candidate:
  """One statement of a generation.

  Attributes:
    statement: the task in words.
    operator: what made it: `original`, `elaborate`, `survive`, `lexical`,
      `mutate` or `cross`.
    parents: the statements that it was made of.
    refused: why the reply of the model was not taken, so that the statement is
      that of the parent; empty if it was.
  """

  statement: str
  operator: str
  parents: tuple[str, ...] = ()
  refused: str = ''


Islands = list[list[Candidate]]  # One, unless they are asked for.


def epic_with(config: EpicConfig) -> PlayFn:
  """Returns the strategy with these settings."""

  def play(attempt: Attempt, tools: Tools) -> Play:
    tools.check_instructed()
    return (yield from _Evolution(attempt, tools, config).play())

  return play


class _Evolution:
  """The evolution of the statement of one problem."""

  def __init__(self, attempt: Attempt, tools: Tools, config: EpicConfig):
    self._attempt, self._tools, self._config = attempt, tools, config
    self._rng = random.Random(attempt.draw_seed())
    self._tests: tuple[str, ...] = ()
    self._valid: tuple[str, ...] = ()  # the generated tests that count
    self._verdicts: dict[str, Verdict] = {}  # by statement, in order

  def play(self) -> Play:
    config = self._config
    self._tests = yield from self_tests.write(
      self._attempt, self._tools, config.tests
    )
    self._valid = self._tests
    original = Candidate(self._attempt.problem.statement, 'original')
    yield from self._score(original)
    if self._closes(original, config.close_first):
      return self._close(original, 0)
    islands = yield from self._populate(original)
    for number in range(1, config.generations + 1):
      generation = _everybody(islands)
      closed = yield from self._run(generation)
      if number == 1 and config.validate:
        self._validate()
      best = self._best([c.statement for c in generation])
      if closed is None and self._closes(best, config.close_generation):
        closed = best
      self._note(number, islands)
      if closed is not None:
        return self._close(closed, number)
      has_stalled = yield from self._has_stalled(number)
      is_last = number == config.generations or self._attempt.budget_left < 1
      if has_stalled or is_last:
        break
      islands = yield from self._breed(self._migrated(number, islands))
    if config.submit_best:
      best = self._best(list(self._verdicts))
      return self._verdicts[best.statement].code
    return self._verdicts[original.statement].code

  # Fitness.

  def _fitness(self, statement: str) -> float:
    """Share of the tests that its program passes; 0 if it has none yet."""
    verdict = self._verdicts.get(statement)
    return verdict.only(self._valid).share if verdict else 0.0

  def _best(self, statements: Sequence[str]) -> Candidate:
    """The fittest statement, the first of equals, as one that survives."""
    statement = max(statements, key=self._fitness)
    return Candidate(statement, 'survive', (statement,))

  def _closes(self, candidate: Candidate, threshold: float) -> bool:
    """Whether its program is accepted; never without a test of the model's."""
    known = bool(self._valid) and candidate.statement in self._verdicts
    return known and self._fitness(candidate.statement) >= threshold

  def _score(self, candidate: Candidate) -> Generator[Any, Any, None]:
    """Has the program written and run, unless the statement is known."""
    statement, problem = candidate.statement, self._attempt.problem
    if statement in self._verdicts or self._attempt.budget_left < 1:
      return
    prompt = coder_prompt(self._attempt, statement)
    if statement != problem.statement:
      shown = self._tests[: self._config.shown_tests]
      prompt = dataclasses.replace(prompt, tests=(*prompt.tests, *shown))
    code = yield from self._tools.write_program(self._attempt, prompt)
    self._verdicts[statement] = yield from self_tests.run(
      self._attempt, code, self._tests
    )

  def _run(
    self, generation: Sequence[Candidate]
  ) -> Generator[Any, Any, Candidate | None]:
    """Scores a generation in order, up to one that passes all tests."""
    for candidate in generation:
      yield from self._score(candidate)
      if self._closes(candidate, 1.0):
        return candidate
    return None

  def _validate(self) -> None:
    """Drops generated tests that too few of the better programs pass."""
    verdicts = [v for v in self._verdicts.values() if v.code]
    voters = [v for v in verdicts if v.visible_passed] or verdicts
    if not self._tests or not voters:
      return
    passed = np.array([v.passed[len(v.visible) :] for v in voters], bool)
    judged = np.ones(len(voters), bool)
    votes = agreement.vote(passed, judged, self._config.validate)
    pairs = zip(self._tests, votes, strict=True)
    self._valid = tuple(test for test, is_valid in pairs if is_valid)
    self._attempt.note('validate_tests', tests=list(self._valid))

  # Generations.

  def _populate(self, original: Candidate) -> Generator[Any, Any, Islands]:
    """The original, which is on each island, and descriptions by the model."""
    generation = [original]
    for _ in range(self._config.population):
      if not self._can_ask(generation):
        break
      made = yield from wording.elaborate(
        self._attempt, self._tools, original.statement, self._config.elaborate
      )
      generation.append(self._made(made, 'elaborate', (original.statement,)))
    count = self._config.islands.count
    return [[original, *generation[1 + i :: count]] for i in range(count)]

  def _migrated(self, number: int, islands: Islands) -> Islands:
    """The islands with the best of the one before among their parents."""
    config = self._config.islands
    if len(islands) == 1 or not config.every or number % config.every:
      return islands
    ranked = [
      sorted(island, key=lambda c: self._fitness(c.statement), reverse=True)
      for island in islands
    ]
    moved = round_the_ring(
      ranked,
      config.migrants,
      name=lambda c: c.statement,
      is_known=lambda c: c.statement in self._verdicts,
    )
    arrived = [[c.statement for c in guests] for _, guests in moved]
    self._attempt.note('migrate', generation=number, arrived=arrived)
    return [[*stay, *guests] for stay, guests in moved]

  def _breed(self, islands: Islands) -> Generator[Any, Any, Islands]:
    """The next generation of each island."""
    bred: Islands = []
    for place, island in enumerate(islands):
      size = len(range(place, self._config.population, len(islands)))
      due = _everybody(bred)
      bred.append((yield from self._breed_island(island, size, due)))
    return bred

  def _breed_island(
    self, island: Sequence[Candidate], size: int, due: Sequence[Candidate]
  ) -> Generator[Any, Any, list[Candidate]]:
    """One survivor and the children of parents drawn by their fitness.

    Args:
      island: the parents.
      size: of the next generation.
      due: children on other islands, whose programs are to be written.
    """
    config = self._config
    scored = [c.statement for c in island if c.statement in self._verdicts]

    def draw(but: str = '') -> str:
      """Draws a parent, another one than `but` if there is any."""
      free = [statement for statement in scored if statement != but] or scored
      fitness = [self._fitness(statement) for statement in free]
      return self._rng.choices(free, fitness if any(fitness) else None)[0]

    if config.elitism:
      # Of equals, the first that was scored.
      children = [self._best([s for s in self._verdicts if s in scored])]
    else:
      survivor = draw()
      children = [Candidate(survivor, 'survive', (survivor,))]
    for place in range(size - 1):
      parent, asked = draw(), [*due, *children]
      if place >= size - 1 - config.crossovers:
        child = yield from self._cross(parent, draw(parent), asked)
      else:
        child = yield from self._mutate(parent, asked)
      if child is not None:
        children.append(child)
    return children

  def _mutate(
    self, parent: str, children: Sequence[Candidate]
  ) -> Generator[Any, Any, Candidate | None]:
    if self._config.mutation == 'lexical':
      name = self._attempt.problem.entry_point
      mutated = lexical.mutate(
        parent, self._rng, self._config.lexical, protected=(name,)
      )
      return Candidate(mutated, 'lexical', (parent,))
    if not self._can_ask(children):
      return None
    made = yield from wording.mutate(
      self._attempt, self._tools, parent, self._config.words
    )
    return self._made(made, 'mutate', (parent,))

  def _cross(
    self, parent: str, other: str, children: Sequence[Candidate]
  ) -> Generator[Any, Any, Candidate | None]:
    if not self._can_ask(children):
      return None
    made = yield from wording.cross(
      self._attempt, self._tools, parent, other, self._config.words
    )
    return self._made(made, 'cross', (parent, other))

  def _can_ask(self, generation: Sequence[Candidate]) -> bool:
    """Whether a call is left beside those of the programs that are due."""
    due = {c.statement for c in generation} - self._verdicts.keys()
    return self._attempt.budget_left >= len(due) + 2

  def _made(
    self, made: wording.Wording, operator: str, parents: tuple[str, ...]
  ) -> Candidate:
    child = Candidate(made.statement, operator, parents, made.refused)
    self._attempt.note(operator, **dataclasses.asdict(child))
    return child

  # The end of the evolution, and its trace.

  def _has_stalled(self, number: int) -> Generator[Any, Any, bool]:
    """Whether too few of all problems were closed in the generation before.

    The released code counts before it runs a generation. All problems are in
    the same one, as long as each of them waits for the others here.
    """
    if self._config.least_growth < 0:
      return False
    yield Meet()
    if number < 2:
      return False
    peers = self._attempt.peers or (self._attempt,)
    closed = sum(
      row['action'] == 'close' and row['generation'] == number - 1
      for peer in peers
      for row in peer.trace
    )
    return closed <= self._config.least_growth * len(peers)

  def _close(self, candidate: Candidate, number: int) -> str:
    self._attempt.note(
      'close',
      generation=number,
      statement=candidate.statement,
      fitness=self._fitness(candidate.statement),
    )
    return self._verdicts[candidate.statement].code

  def _note(self, number: int, islands: Islands) -> None:
    generation = _everybody(islands)
    counts: dict[str, dict[str, int]] = {}
    known: set[str] = set()
    for candidate in generation:
      count = counts.setdefault(
        candidate.operator, {'made': 0, 'refused': 0, 'distinct': 0}
      )
      count['made'] += 1
      count['refused'] += bool(candidate.refused)
      count['distinct'] += candidate.statement not in known
      known.add(candidate.statement)
    codes = {v.code for s, v in self._verdicts.items() if s in known}
    self._attempt.note(
      'generation',
      generation=number,
      candidates=[dataclasses.asdict(c) for c in generation],
      fitness=[self._fitness(c.statement) for c in generation],
      operators=counts,
      distinct_programs=len(codes),
      islands=[_diversity(island) for island in islands],
    )


def _everybody(islands: Islands) -> list[Candidate]:
  """All candidates; the original, which is on each island, once."""
  first, *others = islands or [[]]
  return [*first, *(c for i in others for c in i if c.operator != 'original')]


def _diversity(island: Sequence[Candidate]) -> dict[str, Any]:
  texts = [candidate.statement for candidate in island]
  return {
    'candidates': len(texts),
    'distinct': len(set(texts)),
    'jaccard': jaccard_diversity(texts),
  }


epic = epic_with(FAITHFUL)
epic_fixed = epic_with(FIXED)
epic_words = epic_with(WORDS)
