"""Reflexion: a model says what is wrong with its program, and tries again.

Shinn et al. 2023, Reflexion: Language Agents with Verbal Reinforcement
Learning, arXiv 2303.11366, section 4.3.

  tests ──> program ──> visible and own tests ──passed──> submission
               ^                 │ failed or unknown
               └── recalled <── reflection

Unlike there, all reflections are remembered and the nearest ones shown; several
tests are written, and none is no pass; the program that passes most is
submitted and not the last; and each call counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from typing import Any

from promptrl_jax.llm import replies
from promptrl_jax.llm.ask import Tools, coder_prompt
from promptrl_jax.llm.attempt import CODER, Attempt, Play
from promptrl_jax.prompts import reflection
from promptrl_jax.prompts.reflection import Reflection, ReflectionPrompt
from promptrl_jax.prompts.templates import CoderPrompt
from promptrl_jax.rewards import guards
from promptrl_jax.strategies import self_tests
from promptrl_jax.strategies.self_tests import SelfTestsConfig, Verdict

PlayFn = Callable[[Attempt, Tools], Play]
_SUBMIT = ('best', 'last')


@dataclasses.dataclass(frozen=True)
class ReflexionConfig:
  """Settings of Reflexion; its released code differs where it is said.

  Attributes:
    tests: of the tests that the model writes (one of them there).
    iterations: most programs; their number is also bounded by the budget.
    run_tests: whether programs are run and feedback is shown; without, every
      program is followed by another one until the last is submitted
      (`immediate_reflexion`).
    reflect: whether a reflection comes before the next program, which costs a
      call; without, the program is repaired from the feedback alone
      (`immediate_refinement`).
    memory: most reflections that a prompt shows; the latest alone there.
    memory_tokens: most tokens of all of them together, as the coder counts.
    reflection_temperature: sampling temperature of reflections; at 0 they are
      greedy, and sampled where the same program failed in the same way before.
    reflection_tokens: most tokens of a reflection; 0: as many as of a program.
    submit: the `best` program by visible and then by own tests, the first of
      equals, or the `last` one, as there.
  """

  tests: SelfTestsConfig = SelfTestsConfig()
  iterations: int = 10
  run_tests: bool = True
  reflect: bool = True
  memory: int = 3
  memory_tokens: int = 300
  reflection_temperature: float = 0.0
  reflection_tokens: int = 0
  submit: str = 'best'

  def __post_init__(self):
    if self.iterations < 1:
      raise ValueError(
        f'iterations={self.iterations}: expected at least one program'
      )
    if self.memory < 0 or self.memory_tokens < 0:
      raise ValueError(
        f'memory={self.memory}, memory_tokens={self.memory_tokens}: expected '
        '0 or more reflections and tokens'
      )
    if self.submit not in _SUBMIT:
      raise ValueError(
        f'submit={self.submit!r}: expected one of {", ".join(_SUBMIT)}'
      )

  @property
  def calls(self) -> int:
    """Model calls of one further program."""
    return 1 + self.reflect


def reflexion_with(config: ReflexionConfig) -> PlayFn:
  """Returns the strategy with other settings than `reflexion` has."""

  def play(attempt: Attempt, tools: Tools) -> Play:
    tests, verdict = yield from first_program(attempt, tools, config)
    memory = remembered(tools)
    best = verdict
    for _ in range(config.iterations - 1):
      is_done = config.run_tests and verdict.status == 'passed'
      if is_done or attempt.budget_left < config.calls:
        break
      code = yield from next_program(attempt, tools, verdict, memory, config)
      verdict = yield from self_tests.run(attempt, code, tests)
      best = max(best, verdict, key=rank)
    takes_last = config.submit == 'last' or not config.run_tests
    return verdict.code if takes_last else best.code

  return play


def first_program(
  attempt: Attempt, tools: Tools, config: ReflexionConfig
) -> Generator[Any, Any, tuple[tuple[str, ...], Verdict]]:
  """Returns the model's tests and the verdict on its first program.

  Raises:
    ValueError: the models follow no instructions.
  """
  tools.check_instructed()
  tests = ()
  if config.run_tests:
    tests = yield from self_tests.write(attempt, tools, config.tests)
  code = yield from tools.write_program(attempt, coder_prompt(attempt))
  return tests, (yield from self_tests.run(attempt, code, tests))


def next_program(
  attempt: Attempt,
  tools: Tools,
  verdict: Verdict,
  memory: list[Reflection],
  config: ReflexionConfig,
) -> Generator[Any, Any, str]:
  """Returns a program after a reflection on another one, which is remembered.

  Makes `config.calls` calls, or fewer where a prompt has no room.
  """
  prompt = yield from next_prompt(attempt, tools, verdict, memory, config)
  return (yield from tools.write_program(attempt, prompt))


def next_prompt(
  attempt: Attempt,
  tools: Tools,
  verdict: Verdict,
  memory: list[Reflection],
  config: ReflexionConfig,
) -> Generator[Any, Any, CoderPrompt]:
  """Returns what asks for a program after a reflection on another one.

  A reflection is one call, and is remembered.
  """
  results = verdict.text if config.run_tests else ''
  situation = f'{attempt.problem.statement}\n{verdict.code}\n{results}'
  notes = ()
  if config.reflect:
    yield from _reflect(attempt, tools, verdict, memory, situation, config)
    notes = reflection.recall(
      memory,
      situation,
      count=config.memory,
      tokens=config.memory_tokens,
      count_tokens=tools.count_tokens,
    )
  return coder_prompt(attempt, code=verdict.code, feedback=results, notes=notes)


def _reflect(
  attempt: Attempt,
  tools: Tools,
  verdict: Verdict,
  memory: list[Reflection],
  situation: str,
  config: ReflexionConfig,
) -> Generator[Any, Any, None]:
  """Adds a reflection to the memory, unless the reply is refused."""
  problem = attempt.problem
  results = verdict.text if config.run_tests else ''
  completion = yield from tools.ask_in_words(
    attempt,
    CODER,
    reflection.write_request,
    ReflectionPrompt(
      problem.statement, problem.signature, verdict.code, results
    ),
    temperature=config.reflection_temperature,
    max_tokens=config.reflection_tokens,
  )
  text = reflection.read(completion.text) if completion else ''
  refused = replies.refusal(
    completion,
    text,
    reflection.SYSTEM,
    (problem.statement, verdict.code, results),
  )
  if not refused and guards.is_repetitive(text):
    refused = 'repetition'
  if refused:
    text = ''
  else:
    memory.append(Reflection(situation, text))
  attempt.note(
    'reflect',
    situation=situation,
    reflection=text,
    refused=refused,
    after=verdict.status,
    state=verdict.state,
  )


def remembered(tools: Tools) -> list[Reflection]:
  """Reflections on other problems, if `tools.options` has `reflections`."""
  return list(tools.options.get('reflections', ()))


def rank(verdict: Verdict) -> tuple[int, int]:
  """By what programs are compared: visible tests passed, and all passed."""
  visible = verdict.passed[: len(verdict.visible)]
  return sum(visible), sum(verdict.passed)


reflexion = reflexion_with(ReflexionConfig())
# Its ablations, as released: no program is run, or no reflection is asked for.
immediate_reflexion = reflexion_with(ReflexionConfig(run_tests=False))
immediate_refinement = reflexion_with(ReflexionConfig(reflect=False))
