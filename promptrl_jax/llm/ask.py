"""How a request to a model is built.

prompt --template--> messages --fit--> Request --> Ask(role) ─┐
                                      program --> Execute ────┤
                 programs, tests or inputs --> ExecuteJobs ───┴─> a runner
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Generator, Mapping
from typing import Any

from promptrl_jax.llm import replies
from promptrl_jax.llm.attempt import CODER, REWRITER, Ask, Attempt
from promptrl_jax.llm.backend import Backend, Completion, Message, Request
from promptrl_jax.prompts import generated_tests, templates
from promptrl_jax.prompts.examples import WorkedExample

_LOG = logging.getLogger(__name__)


@functools.lru_cache(maxsize=4096)  # Every strategy meets it again.
def warn_once(task_id: str, message: str) -> None:
  """Says what is wrong with a task, unless it was said before."""
  _LOG.warning('%s: %s', task_id, message)


Prompt = templates.CoderPrompt | templates.RewritePrompt
WriteFn = Callable[[Any], templates.Messages]


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

  @property
  def rewrite_stop(self) -> tuple[str, ...]:
    return templates.TEMPLATES[self.template].rewrite_stop


def fitted_request(
  backend: Backend,
  write: WriteFn,
  prompt: Any,
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
    options: what some of them need: `examples`, an `ExampleLibrary`,
      `lexical`, a `LexicalConfig`, and `reflections` on other problems.
    goes_on: strategies are to spend all their calls, also after a program that
      passes the visible tests, because a verifier chooses among the programs.
  """

  template: templates.Template
  backends: Mapping[str, Backend]
  config: AskConfig
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  goes_on: bool = False

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
    request = self._fitted(
      attempt,
      role,
      self.template.coder if is_program else self.template.rewriter,
      prompt,
      max_tokens=config.max_tokens if is_coder else config.rewrite_max_tokens,
      stop=config.stop_strings if is_coder else config.rewrite_stop,
    )
    if request is None:
      return None
    again = (
      config.sample_temperature if is_coder else config.rewrite_temperature
    )
    first = again if resample else config.first_temperature
    return (yield self._drawn(attempt, role, request, first, again))

  def ask_in_words(
    self,
    attempt: Attempt,
    role: str,
    write: WriteFn,
    prompt: Any,
    *,
    temperature: float = 0.0,
    max_tokens: int = 0,
    stop: tuple[str, ...] = (),
  ) -> Generator[Ask, Completion, Completion | None]:
    """Puts any other question to a model: for tests, reflections, words.

    Args:
      attempt: what it is charged to.
      role: of the model.
      write: turns the prompt into messages.
      prompt: what to ask, with a `statement` that may be cut.
      temperature: of the reply. At 0 it is greedy, and the same question is
        sampled as a rewrite is if the attempt asks it again.
      max_tokens: most tokens of the reply; 0: as many as of a program.
      stop: strings that end the reply.

    Returns:
      The completion; None if the model's context cannot hold the prompt.

    Raises:
      ValueError: the models only continue texts.
    """
    self.check_instructed()
    request = self._fitted(
      attempt,
      role,
      write,
      prompt,
      max_tokens=max_tokens or self.config.max_tokens,
      stop=stop,
    )
    if request is None:
      return None
    again = temperature or self.config.rewrite_temperature
    return (yield self._drawn(attempt, role, request, temperature, again))

  def check_instructed(self) -> None:
    """Raises ValueError unless the models follow instructions."""
    if not self.template.instructed:
      known = [t.name for t in templates.TEMPLATES.values() if t.instructed]
      raise ValueError(
        f'template {self.template.name!r} is that of models which follow no '
        'instruction and cannot be asked for tests, reflections or other '
        f'words: expected ask.template={" or ".join(map(repr, known))} and a '
        'model that follows instructions'
      )

  def _fitted(
    self, attempt: Attempt, role: str, write: WriteFn, prompt: Any, **fields
  ) -> Request | None:
    try:
      return fitted_request(self.backends[role], write, prompt, **fields)
    except templates.PromptTooLongError as error:
      warn_once(attempt.problem.task_id, str(error))
      return None

  def _drawn(
    self,
    attempt: Attempt,
    role: str,
    request: Request,
    first: float,
    again: float,
  ) -> Ask:
    """The request at a temperature for its `first` time, or for `again`."""
    temperature = again if request.messages in attempt.asked else first
    if first != again:  # A resampled prompt may still be asked greedily.
      attempt.asked.add(request.messages)
    request = dataclasses.replace(
      request,
      temperature=temperature,
      top_p=self.config.top_p,
      seed=attempt.draw_seed(),
    )
    return Ask(role, request)

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
    """Asks the rewriter; returns the new statement.

    What the template lets stand in its place if the reply is refused, or the
    old one if nothing could be asked; the next trace row says why.
    """
    completion = yield from self.ask(attempt, REWRITER, prompt)
    text = ''
    if completion is not None:
      text = self.template.read_rewrite(prompt, completion.text)
    messages = self.template.rewriter(prompt)
    told = '\n'.join(words for role, words in messages if role == 'system')
    attempt.refused = replies.refusal(
      completion, text, told, (prompt.statement, prompt.feedback)
    )
    if completion is None:
      return prompt.statement
    return self.template.stand_in(prompt) if attempt.refused else text

  def write_tests(
    self,
    attempt: Attempt,
    prompt: templates.TestPrompt,
    *,
    known: tuple[str, ...] = (),
  ) -> Generator[Ask, Completion, tuple[str, ...]]:
    """Asks the coder for tests; returns the new ones that can be run.

    They may be wrong, and there may be none, which says nothing about any
    program. At most `prompt.count` are kept; `known` are not new.

    Raises:
      ValueError: the models only continue texts.
    """
    completion = yield from self.ask_in_words(
      attempt, CODER, generated_tests.write_request, prompt
    )
    if completion is None:
      return ()
    found = generated_tests.collect(
      completion.text,
      attempt.problem.entry_point,
      prompt.count,
      known=known,
      cut=completion.finish_reason == 'length',
    )
    attempt.note(
      'write_tests',
      tests=list(found.tests),
      invalid=len(found.invalid),
      duplicates=found.duplicates,
      dropped=found.dropped,
    )
    return found.tests


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
  notes: tuple[str, ...] = (),
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
    notes=notes,
  )
