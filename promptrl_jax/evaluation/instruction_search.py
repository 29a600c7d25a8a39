"""One instruction for all programs, searched before the first test problem.

  training problems ──> what became of their programs ──> reflection ──┐
  validation problems ──> the candidates that are best at something <──┘ text

The search is one of `strategies.texts`; what it finds plays as best-of-B under
the found instruction, and what it paid is printed beside.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from promptrl_jax.evaluation.play import Entrant, Game, LineUp
from promptrl_jax.evaluation.protocol import Run
from promptrl_jax.evaluation.selection import Selected
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.attempt import REWRITER
from promptrl_jax.llm.backend import Message, Request
from promptrl_jax.llm.preflight import CandidateCost
from promptrl_jax.prompts.templates import CODER_INSTRUCTION, TEMPLATES
from promptrl_jax.strategies.base import TextStrategy
from promptrl_jax.strategies.fewshot import few_shots
from promptrl_jax.strategies.texts.gepa import GepaConfig
from promptrl_jax.strategies.texts.journal import Journal
from promptrl_jax.strategies.texts.optimize import FEWEST, check_budget
from promptrl_jax.strategies.texts.pool import (
  Pool,
)
from promptrl_jax.strategies.texts.proposer import Proposer, ProposerConfig
from promptrl_jax.strategies.texts.requests import (
  Evaluate,
  NothingUsableError,
  Seen,
)
from promptrl_jax.strategies.texts.searches import SEARCHES, play, until_ended
from promptrl_jax.tasks import splits
from promptrl_jax.types import Task

NAME = 'gepa'
# Of what is found, which plays as best-of-B.
COST = CandidateCost()
# What a template says where `AskConfig.instruction` is empty.
_OWN = {'chat': CODER_INSTRUCTION}


@dataclasses.dataclass(frozen=True)
class InstructionSearchConfig:
  """Settings of the search.

  Attributes:
    calls: of all models that it may pay; 0: nothing is searched.
    problems: first N validation problems, on which candidates are chosen; 0 for
      all.
    temperature, max_tokens: of a reflection.
  """

  calls: int = 0
  problems: int = 40
  temperature: float = ProposerConfig().temperature
  max_tokens: int = ProposerConfig().max_tokens
  gepa: GepaConfig = GepaConfig(perfect=1.0)

  def __post_init__(self):
    for name in ('calls', 'problems'):
      if getattr(self, name) < 0:
        raise ValueError(f'{name}={getattr(self, name)}: expected 0 or more')

  @property
  def proposer(self) -> ProposerConfig:
    return ProposerConfig(self.temperature, self.max_tokens)


@dataclasses.dataclass(frozen=True)
class Instruction:
  """What was found.

  Attributes:
    text: the instruction.
    start: that of the config.
    score, start_score: shares of the validation problems that one greedy
      program solves; optimistic, as it was chosen there.
    candidates: that were scored on all of these.
    calls: paid for the search.
    ended: why it was over.
    history: every decision, as plain data.
  """

  text: str
  start: str
  score: float
  start_score: float
  candidates: int
  calls: int
  ended: str
  history: tuple[Mapping[str, Any], ...] = ()

  def entrant(self, ask: AskConfig) -> Entrant:
    """Plays greedily first and samples while the visible tests fail."""
    return Entrant.of(
      TextStrategy(few_shots(0)),
      ask=dataclasses.replace(ask, instruction=self.text),
      optimisation_calls=self.calls,
    )

  def selected(self, budgets: Sequence[int]) -> list[Selected]:
    """What was chosen by a score, which is that of one greedy program."""
    del budgets
    return [Selected(NAME, (1,), self.score)]

  def facts(self) -> dict[str, str]:
    """What was found in words, for the header of a report."""
    return {
      f'instruction of {NAME}': f'{self.text!r} ({100 * self.score:.1f} % of '
      f'validation, {100 * self.start_score:.1f} before; {self.calls} calls; '
      f'ended: {self.ended})'
    }


def find(
  line_up: LineUp,
  train: Sequence[Task],
  validation: Sequence[Task],
  ask: AskConfig,
  config: InstructionSearchConfig,
  *,
  protocol: str,
  seed: int = 0,
  journal: str | os.PathLike[str] | None = None,
  watch: Callable[[int, float], None] = lambda calls, best: None,
) -> Instruction:
  """Searches the instruction of `ask`.

  A candidate is scored by one greedy program for each problem, which solves it
  if it passes all tests that are hidden under the protocol. The model that
  reflects is that of the rewriter; it reads training problems, their visible
  tests, and the programs with the verdicts of these. Validation problems choose
  and are never shown.

  Args:
    line_up: plays; with a rewriter that follows instructions.
    train: problems that may be shown.
    validation: problems that choose.
    ask: how programs are asked for.
    config: of the search.
    protocol: which tests are visible.
    seed: of all draws.
    journal: JSON file; a search that was interrupted goes on with it.
    watch: called before candidates are scored, with the calls so far and the
      best score (0 before the first one); may raise to end the search.

  Raises:
    ValueError: the models do not follow instructions or write shorter replies
      than are asked for, a task that would be shown is none of training, or the
      calls buy fewer than three candidates.
    SystemFailure: the pool failed where a result was due.
    BackendError: a model cannot be reached.
  """
  if not TEMPLATES[ask.template].instructed:
    raise ValueError(
      f'{NAME} with template={ask.template}: models that complete the texts '
      'that they were trained on follow no instruction; expected code or chat'
    )
  shown = [task for task in train if task.split != 'train']
  if shown or not train:
    raise ValueError(
      f'{len(shown)} of {len(train)} tasks to show are not of the split train: '
      'expected training tasks alone, at least one'
    )
  writer = line_up.backends[REWRITER]
  empty = Request((Message('user', ''),), max_tokens=config.max_tokens)
  if not writer.fits(empty):
    raise ValueError(
      f'instruction_search.max_tokens={config.max_tokens}: {writer.name} gives '
      'no reply of so many tokens; expected at most its new_tokens'
    )
  tasks = [*train, *validation[: config.problems or None]]
  start = ask.instruction or _OWN.get(ask.template, '')
  pool = _pool(start, len(train), len(validation), config, seed)
  check_calls(len(train), len(validation), config)
  kind = SEARCHES[NAME]

  def score(requests):
    best = pool.candidates[pool.best].mean if pool.candidates else 0.0
    watch(pool.calls, best)
    return _score(line_up, tasks, requests, ask, protocol, seed)

  try:
    ended = play(
      until_ended(kind.search(pool, config.gepa)),
      Proposer(
        writer,
        lambda place: _shown(tasks[place], protocol),
        config.proposer,
      ),
      score,
      Journal(journal, _identity(line_up, tasks, ask, config, protocol)),
    )
  except NothingUsableError as error:
    # That is a result of the search: other strategies play all the same.
    ended = str(error)
  first, best = pool.candidates[0], pool.candidates[pool.best]
  return Instruction(
    text=best.text,
    start=start,
    score=best.mean,
    start_score=first.mean,
    candidates=len(pool.candidates),
    calls=pool.calls,
    ended=ended,
    history=tuple(dataclasses.asdict(step) for step in pool.steps),
  )


def check_calls(
  train: int, validation: int, config: InstructionSearchConfig
) -> None:
  """Raises ValueError if the calls buy fewer than three candidates.

  Args:
    train: number of problems that may be shown.
    validation: number of problems that could choose.
    config: of the search.
  """
  pool = _pool('', train, validation, config, 0)
  check_budget(pool, SEARCHES[NAME], config.gepa, NAME, FEWEST)


def _pool(
  start: str,
  train: int,
  validation: int,
  config: InstructionSearchConfig,
  seed: int,
) -> Pool:
  chosen = min(validation, config.problems or validation)
  return Pool(
    start,
    validation=range(train, train + chosen),
    train=range(train),
    budget=config.calls,
    seed=seed,
  )


def _score(
  line_up: LineUp,
  tasks: Sequence[Task],
  requests: Sequence[Evaluate],
  ask: AskConfig,
  protocol: str,
  seed: int,
) -> list[Seen]:
  """One greedy program for each request, all in one batch."""
  by_text: dict[str, list[int]] = {}
  for request in requests:
    by_text.setdefault(request.text, []).append(request.example)
  games = [
    Game(
      Entrant.of(
        TextStrategy(few_shots(0)),
        ask=dataclasses.replace(ask, instruction=text),
      ),
      [tasks[place] for place in places],
      protocol,
      1,
      seed,
    )
    for text, places in by_text.items()
  ]
  seen = {}
  for (text, places), run in zip(
    by_text.items(), line_up.run_all(games), strict=True
  ):
    for row, place in enumerate(places):
      seen[text, place] = Seen(float(run.passed[row]), _feedback(run, row))
  return [seen[request.text, request.example] for request in requests]


def _feedback(run: Run, row: int) -> str:
  """What became of a program, without a word of a hidden test."""
  played = [step for step in run.trace if step['row'] == row]
  if not played or not played[-1]['code']:
    return 'The reply holds no program.'
  step = played[-1]
  verdict = step['feedback']
  if step['visible_passed'] and not run.passed[row]:
    verdict = 'It passes the test that is shown, but not the others.'
  return f'```python\n{step["code"].strip()}\n```\n{verdict}'


def _shown(task: Task, protocol: str) -> str:
  """What the model that reflects reads of a problem: what a solver reads."""
  problem = splits.reveal(task, protocol)
  return '\n'.join(
    [problem.statement, problem.signature, *problem.visible_tests]
  )


def _identity(
  line_up: LineUp,
  tasks: Sequence[Task],
  ask: AskConfig,
  config: InstructionSearchConfig,
  protocol: str,
) -> dict[str, Any]:
  return {
    'models': {role: model.name for role, model in line_up.backends.items()},
    'tasks': [task.task_id for task in tasks],
    'ask': {**dataclasses.asdict(ask), 'stop': list(ask.stop)},
    'proposer': dataclasses.asdict(config.proposer),
    'protocol': protocol,
  }
