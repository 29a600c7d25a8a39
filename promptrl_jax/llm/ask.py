"""What a strategy asks for, and how a request to a model is built.

  prompt --template--> messages --fit--> Request --> Ask(role) ─┐
                                        program --> Execute ────┴─> a runner

A strategy is a generator: it yields `Ask` and `Execute` and is sent the
completion or the verdict. It never holds a model or a pool, so that a runner
can play hundreds of strategies at once and batch what they ask for.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import zlib
from collections.abc import Callable, Generator, Mapping
from typing import Any

from promptrl_jax.execution.program import ProgramResult
from promptrl_jax.llm.backend import Backend, Completion, Message, Request
from promptrl_jax.prompts import feedback as feedback_lib
from promptrl_jax.prompts import templates
from promptrl_jax.prompts.examples import WorkedExample
from promptrl_jax.types import Problem

_LOG = logging.getLogger(__name__)
CODER, REWRITER = 'coder', 'rewriter'


@functools.lru_cache(maxsize=4096)  # Every strategy meets it again.
def warn_once(task_id: str, message: str) -> None:
  """Says what is wrong with a task, unless it was said before."""
  _LOG.warning('%s: %s', task_id, message)


@dataclasses.dataclass(frozen=True)
class Ask:
  """One call of the model of a role; answered by a `Completion`."""

  role: str
  request: Request


@dataclasses.dataclass(frozen=True)
class Execute:
  """One program to run on the visible tests; answered by a `ProgramResult`.

  On training problems the result also covers the tests that are run for reward;
  they come after the visible ones and no model may be shown them.
  """

  code: str


@dataclasses.dataclass
class Attempt:
  """One problem that is being solved, and what it has cost so far.

  Attributes:
    seed: distinguishes the random draws of several attempts.
    budget: most language-model calls, of all roles together.
    asked: prompts that were asked before: they are sampled, not greedy.
    lost: the system failed, so that the attempt says nothing.
    error: why the strategy has no submission; empty if it has one.
  """

  problem: Problem
  seed: int = 0
  budget: int = 1
  row: int = 0
  calls: int = 0
  attempts: int = 0
  prompt_tokens: int = 0
  completion_tokens: int = 0
  asked: set[tuple[Message, ...]] = dataclasses.field(default_factory=set)
  sent: list[tuple[Ask, Completion]] = dataclasses.field(default_factory=list)
  trace: list[dict[str, Any]] = dataclasses.field(default_factory=list)
  lost: bool = False
  error: str = ''

  @property
  def budget_left(self) -> int:
    return self.budget - self.calls

  def draw_seed(self) -> int:
    """Seed of the next draw: of the attempt, the problem and the calls."""
    return zlib.crc32(
      f'{self.seed}/{self.problem.task_id}/{self.calls}'.encode()
    )

  def charge(self, asked: Ask, completion: Completion) -> None:
    self.calls += 1
    self.prompt_tokens += completion.prompt_tokens
    self.completion_tokens += completion.completion_tokens
    self.sent.append((asked, completion))

  def record(self, code: str, result: ProgramResult) -> None:
    """Adds a trace row for a program that was run."""
    visible = result.tests[: len(self.problem.visible_tests)]
    failures = [test for test in visible if test.status != 'passed']
    self.trace.append(
      self.trace_row(
        action='execute',
        cost=len(self.sent),
        code=code,
        status=failures[0].status if failures else result.status,
        error_type=failures[0].error_type if failures else '',
        visible=[test.status == 'passed' for test in visible],
        feedback=feedback_lib.feedback_text(visible),
      )
    )

  def record_rest(self) -> None:
    """Adds a trace row for calls after which no program was run, if any."""
    if self.sent:
      row = self.trace_row('ask', [], cost=len(self.sent), code=None, status='')
      self.trace.append(row | {'error_type': '', 'feedback': ''})

  def trace_row(
    self, action: str, visible: list[bool], **fields: Any
  ) -> dict[str, Any]:
    """One row of `trace.jsonl`, with the requests sent since the last one.

    `answers` are the completions of the requests in `sent`, in their order: the
    backend `replay` gives them again.
    """
    row = {
      'row': self.row,
      'task_id': self.problem.task_id,
      'seed': self.seed,
      'budget': self.budget,
      'step': len(self.trace),
      'action': action,
      'prompt': None,
      'sent': [
        {'role': ask.role, **dataclasses.asdict(ask.request)}
        for ask, _ in self.sent
      ],
      'answers': [dataclasses.asdict(answer) for _, answer in self.sent],
      'visible': visible,
      'visible_passed': bool(visible) and all(visible),
      'reward': 0.0,
      'terminated': False,
      'truncated': False,
    }
    self.sent = []
    return row | fields


# Yields requests, is sent their answers, returns the submitted program.
Play = Generator[Any, Any, str]
Prompt = templates.CoderPrompt | templates.RewritePrompt


@dataclasses.dataclass(frozen=True)
class AskConfig:
  """How the models are asked.

  Attributes:
    template: message format of requests.
    stop: what ends a program; empty: the template's own.
    instruction: how the coder is to write programs; empty: the template's own.
  """

  template: str = 'plain'
  instruction: str = ''
  first_temperature: float = 0.0
  sample_temperature: float = 0.8
  rewrite_temperature: float = 0.8
  top_p: float = 1.0
  max_tokens: int = 80
  rewrite_max_tokens: int = 64
  stop: tuple[str, ...] = ()

  def __post_init__(self):
    if self.template not in templates.TEMPLATES:
      raise ValueError(
        f'template {self.template!r}: expected one of '
        f'{sorted(templates.TEMPLATES)}'
      )
    if not self.first_temperature >= 0:
      raise ValueError(
        f'first_temperature={self.first_temperature}: expected 0 or more'
      )

  @property
  def stop_strings(self) -> tuple[str, ...]:
    return self.stop or templates.TEMPLATES[self.template].stop


def fitted_request(
  backend: Backend,
  write: Callable[[Any], templates.Messages],
  prompt: Prompt,
  **sampling: Any,
) -> Request:
  """Returns a request that the model's context takes; see `templates.fit`.

  Args:
    backend: decides what fits.
    write: turns the prompt into messages.
    prompt: what to ask.
    **sampling: fields of `Request`.

  Raises:
    PromptTooLongError: nothing that may be cut is left.
  """

  def build(messages: templates.Messages) -> Request:
    return Request(
      tuple(Message(role, content) for role, content in messages), **sampling
    )

  fits = lambda messages: backend.fits(build(messages))
  return build(templates.fit(write, prompt, fits))


@dataclasses.dataclass(frozen=True)
class Tools:
  """Builds the requests of strategies and operators.

  Attributes:
    options: what some of them need: `examples`, an `ExampleLibrary`, and
      `lexical`, a `LexicalConfig`.
  """

  template: templates.Template
  backends: Mapping[str, Backend]
  config: AskConfig
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def ask(
    self, attempt: Attempt, role: str, prompt: Prompt, *, resample: bool = False
  ) -> Generator[Ask, Completion, Completion | None]:
    """Asks a model; use it as `reply = yield from tools.ask(...)`.

    A prompt is greedy the first time that an attempt asks it, and is sampled
    from then on.

    Returns:
      The completion; None if the model's context cannot hold the prompt: then
      the model has no answer, which is its failure and not one of the run.
    """
    config, is_coder = self.config, role == CODER

    is_program = isinstance(prompt, templates.CoderPrompt)
    if is_program and config.instruction and not prompt.instruction:
      prompt = dataclasses.replace(prompt, instruction=config.instruction)
    try:
      request = fitted_request(
        self.backends[role],
        self.template.coder if is_program else self.template.rewriter,
        prompt,
        max_tokens=config.max_tokens if is_coder else config.rewrite_max_tokens,
        stop=config.stop_strings if is_coder else (),
      )
    except templates.PromptTooLongError as error:
      warn_once(attempt.problem.task_id, str(error))
      return None
    again = resample or request.messages in attempt.asked
    if not resample:
      attempt.asked.add(request.messages)
    temperature = config.first_temperature
    if again:
      temperature = (
        config.sample_temperature if is_coder else config.rewrite_temperature
      )
    request = dataclasses.replace(
      request,
      temperature=temperature,
      top_p=config.top_p,
      seed=attempt.draw_seed(),
    )
    return (yield Ask(role, request))

  def count_tokens(self, text: str) -> int:
    """Tokens of a text as the coder counts them."""
    return self.backends[CODER].count_tokens(text)

  def write_program(
    self,
    attempt: Attempt,
    prompt: templates.CoderPrompt,
    *,
    resample: bool = False,
  ) -> Generator[Ask, Completion, str]:
    """Asks the coder; returns the program in its reply, empty if none."""
    completion = yield from self.ask(attempt, CODER, prompt, resample=resample)
    if completion is None:
      return ''
    return self.template.program(prompt, completion.text)

  def rewrite(
    self, attempt: Attempt, prompt: templates.RewritePrompt
  ) -> Generator[Ask, Completion, str]:
    """Asks the rewriter; returns the new statement, or the one it was given."""
    completion = yield from self.ask(attempt, REWRITER, prompt)
    if completion is None:
      return prompt.statement
    return self.template.rewritten(prompt, completion.text)


def make_tools(
  config: AskConfig,
  backends: Mapping[str, Backend],
  options: Mapping[str, Any] | None = None,
) -> Tools:
  """Returns the builder of requests to the model of each role."""
  template = templates.TEMPLATES[config.template]
  return Tools(template, backends, config, options or {})


def coder_prompt(
  attempt: Attempt,
  statement: str = '',
  code: str = '',
  feedback: str = '',
  examples: tuple[WorkedExample, ...] = (),
) -> templates.CoderPrompt:
  """A request for a program, or for the repair of `code` after `feedback`."""
  problem = attempt.problem
  return templates.CoderPrompt(
    statement or problem.statement,
    problem.signature,
    problem.visible_tests,
    code,
    feedback,
    examples,
  )
