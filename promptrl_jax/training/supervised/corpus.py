"""Text pairs that the embedded models learn from, of the split `pretrain`.

A draw is a template with fresh parameters, name and test. The coder sees plain
statements in common words: as with any model that was tuned on one way of
asking, stories and rare words are harder for it, and nothing but a failed test
tells it that a result is wanted in another form. The rewriter turns stories
into plain statements, and loose words into those of their first reading.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable, Sequence

from promptrl_jax.execution import ExecutionPool, Program
from promptrl_jax.operators import lexical
from promptrl_jax.prompts import feedback as feedback_lib
from promptrl_jax.prompts import templates
from promptrl_jax.tasks.minicode2 import generate, wording
from promptrl_jax.tasks.minicode2.generate import Problem
from promptrl_jax.tasks.minicode2.grammar import Template

Pair = tuple[str, str]  # prompt, completion


@dataclasses.dataclass(frozen=True)
class CorpusConfig:
  """Shares of the draws.

  Attributes:
    stories: share of statements that tell a story.
    synonyms: share of plain statements whose words are replaced by synonyms.
    exact: share of loose statements whose words leave one reading.
    first_reading: weight of the first reading of loose words; that of the
      others is 1.
    repair: share of the coder's draws that show a wrong program and its
      feedback.
    forms: share of these whose program is right but for the form of its result.
    feedback: share of the rewriter's draws that carry feedback.
    attempts: wrong programs that are drawn and run in advance.
  """

  stories: float = 0.0
  synonyms: float = 0.0
  exact: float = 0.0
  first_reading: float = 1.0
  repair: float = 0.0
  forms: float = 0.5
  feedback: float = 0.0
  attempts: int = 4000


@dataclasses.dataclass(frozen=True)
class Attempt:
  """A wrong program for a problem, and the feedback on it."""

  problem: Problem
  name: str
  test: str
  program: str
  feedback: str


def draw_problem(
  known: Sequence[Template], config: CorpusConfig, rng: random.Random
) -> Problem:
  """Draws a problem whose parameters are not reserved."""
  while True:
    template = rng.choice(known)
    if template.is_loose:
      weights = [config.first_reading] + [1.0] * (template.readings - 1)
      (reading,) = rng.choices(range(template.readings), weights)
      template = dataclasses.replace(template, reading=reading)
    params = generate.draw_params(template, rng, reserved=False)
    if params is not None:
      return Problem(template, params)


# --- Wrong programs -----------------------------------------------------------


def _drop_mark(code: str, rng: random.Random) -> str:
  """Drops one bracket, colon or quote of the body: usually a syntax error."""
  start = code.index('\n')
  places = [i for i in range(start, len(code)) if code[i] in "()[]:'{}"]
  if not places:
    return code
  place = rng.choice(places)
  return code[:place] + code[place + 1 :]


def _misname(code: str, rng: random.Random) -> str:
  """Renames one use of a name in the body: usually a name error."""
  names = re.compile(r'\b[a-z_]\w*\b').finditer(code, code.index('\n') + 1)
  uses = [m for m in names if m.group() not in _KEYWORDS]
  if not uses:
    return code
  use = rng.choice(uses)
  other = rng.choice(_NAMES)
  return code[: use.start()] + other + code[use.end() :]


_KEYWORDS = {'def', 'return', 'for', 'in', 'if', 'and', 'not', 'True', 'False'}
_NAMES = ('nums', 'text', 'kept', 'values', 'words', 'x', 'n')


def _wrong_program(
  problem: Problem, name: str, config: CorpusConfig, rng: random.Random
) -> tuple[Problem, str]:
  """A problem and a program that is wrong for it."""
  right = problem.program(name)
  if rng.random() < config.forms:
    form = generate.draw_form(problem.template, rng)
    return dataclasses.replace(problem, form=form), right
  damage: Callable[..., str] = rng.choice((_drop_mark, _misname))
  return problem, damage(right, rng)


def draw_attempts(
  known: Sequence[Template],
  config: CorpusConfig,
  pool: ExecutionPool,
  rng: random.Random,
) -> list[Attempt]:
  """Draws wrong programs, runs them, keeps those that fail."""
  drafts = []
  while len(drafts) < config.attempts:
    problem = draw_problem(known, config, rng)
    if problem.template.is_loose:
      continue  # a failed test does not say which reading is meant
    name = generate.draw_name(problem.template, rng)
    problem, program = _wrong_program(problem, name, config, rng)
    try:
      test = generate.draw_test(problem, name, rng)
    except ValueError:
      continue
    drafts.append((problem, name, test, program))
  results = pool.run([Program(code=d[3], tests=(d[2],)) for d in drafts])
  return [
    Attempt(*draft, feedback=feedback_lib.feedback_text(result.tests))
    for draft, result in zip(drafts, results, strict=True)
    if result.score == 0.0
  ]


# --- Pairs --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Source:
  """What pairs are drawn from."""

  known: Sequence[Template]
  attempts: Sequence[Attempt]
  config: CorpusConfig


def coder_pair(source: Source, rng: random.Random) -> Pair:
  """A coder prompt and the program, from the signature's end on."""
  config = source.config
  attempt = None
  if source.attempts and rng.random() < config.repair:
    attempt = rng.choice(source.attempts)
    problem, name, test = attempt.problem, attempt.name, attempt.test
  else:
    problem, name, test = _fresh(source, rng)
  program = problem.program(name).rstrip()
  signature = program.split('\n', 1)[0]
  prompt = templates.CoderPrompt(
    statement=_coder_statement(problem, config, rng),
    signature=signature,
    tests=(test,),
    attempt=attempt.program if attempt else '',
    feedback=attempt.feedback if attempt else '',
  )
  ((_, text),) = templates.PLAIN.coder(prompt)
  return text, program[len(signature) :]


def rewriter_pair(source: Source, rng: random.Random) -> Pair:
  """A rewriter prompt and the plain statement."""
  config, feedback = source.config, ''
  if source.attempts and rng.random() < config.feedback:
    attempt = rng.choice(source.attempts)
    problem, name, feedback = attempt.problem, attempt.name, attempt.feedback
  else:
    problem, name, _ = _fresh(source, rng)
  template, params = problem.template, problem.params
  style = 'story' if rng.random() < config.stories else 'plain'
  prompt = templates.RewritePrompt(
    wording.render(template, params, style, rng), name, feedback
  )
  ((_, text),) = templates.PLAIN.rewriter(prompt)
  return text, ' ' + template.statement(params, exact=True)


PAIR_FNS = {'coder': coder_pair, 'rewriter': rewriter_pair}


def _fresh(source: Source, rng: random.Random) -> tuple[Problem, str, str]:
  """A problem with a name and a test."""
  while True:
    problem = draw_problem(source.known, source.config, rng)
    name = generate.draw_name(problem.template, rng)
    try:
      return problem, name, generate.draw_test(problem, name, rng)
    except ValueError:
      continue  # of these parameters no argument was found


def _coder_statement(
  problem: Problem, config: CorpusConfig, rng: random.Random
) -> str:
  template, params = problem.template, problem.params
  if rng.random() < config.stories:
    return wording.story(template, params, rng)
  is_first = template.is_loose and template.reading == 0
  exact = is_first and rng.random() < config.exact
  text = template.statement(params, exact=exact)
  if rng.random() < config.synonyms:
    text = lexical.mutate(text, rng, lexical.LexicalConfig(probability=0.3))
  return text
