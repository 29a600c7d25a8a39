"""What models are asked for, and what a message format has to provide."""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Callable
from typing import Any

from promptrl_jax.prompts.examples import WorkedExample

Messages = tuple[tuple[str, str], ...]  # (role, content)
FitsFn = Callable[[Messages], bool]


def function_name(signature: str) -> str:
  """Returns the name in the last `def` of a signature."""
  line = re.split(r'^def ', signature, flags=re.MULTILINE)[-1]
  return line.split('(')[0].strip()


@dataclasses.dataclass(frozen=True)
class CoderPrompt:
  """A request for a program.

  Attributes:
    statement: the task in words, as edited so far.
    signature: how the program begins; its last `def` is that of the function.
    tests: visible assertions, empty under the `blind` protocol.
    attempt: a failing program to repair, or empty.
    feedback: the verdicts on the attempt, from `feedback.feedback_text`.
    examples: solved tasks to show before, the nearest first.
    instruction: how programs are to be written, the same for all tasks; empty:
      that of the template.
    notes: what was learned from failing programs, the most useful first.
  """

  statement: str
  signature: str
  tests: tuple[str, ...] = ()
  attempt: str = ''
  feedback: str = ''
  examples: tuple[WorkedExample, ...] = ()
  instruction: str = ''
  notes: tuple[str, ...] = ()

  @property
  def function_name(self) -> str:
    return function_name(self.signature)


@dataclasses.dataclass(frozen=True)
class RewritePrompt:
  """A request for a clearer statement; see `CoderPrompt`."""

  statement: str
  function_name: str
  feedback: str = ''


@dataclasses.dataclass(frozen=True)
class TestPrompt:
  """A request for tests.

  Attributes:
    statement, signature: as of a `CoderPrompt`.
    tests: visible assertions, to show what arguments look like, or empty.
    count: number of assertions to ask for.
  """

  __test__ = False  # Not a test class, whatever its name tells pytest.

  statement: str
  signature: str
  tests: tuple[str, ...] = ()
  count: int = 10

  def __post_init__(self):
    if self.count < 1:
      raise ValueError(f'count={self.count}: ask for at least one test')


class PromptTooLongError(ValueError):
  """A prompt does not fit the model even with an empty statement."""


@dataclasses.dataclass(frozen=True)
class Template:
  """A message format for requests, with the parsers of its replies.

  `program` is empty if the reply holds none, and `read_rewrite` if it is no
  statement; `stand_in` then says the task, so that a failed rewrite never loses
  it. `stop` are strings that a program does not go beyond, and `rewrite_stop`
  those of a rewrite, whose reply begins with `rewrite_prefix`. `instructed`
  says whether its models can be asked anything but programs and rewrites.
  """

  name: str
  coder: Callable[[CoderPrompt], Messages]
  program: Callable[[CoderPrompt, str], str]
  rewriter: Callable[[RewritePrompt], Messages]
  read_rewrite: Callable[[RewritePrompt, str], str]
  stand_in: Callable[[RewritePrompt], str]
  stop: tuple[str, ...] = ()
  rewrite_stop: tuple[str, ...] = ()
  rewrite_prefix: str = ''
  instructed: bool = True

  def rewritten(self, prompt: RewritePrompt, reply: str) -> str:
    """The statement of a reply, or what stands in its place."""
    return self.read_rewrite(prompt, reply) or self.stand_in(prompt)


def fit(
  write: Callable[..., Messages],
  prompt: Any,
  fits: FitsFn,
) -> Messages:
  """Writes messages that fit into the model's context.

  Worked examples are left out, the farthest first, then notes, the last first,
  and then whole words are dropped from the left of the statement until the
  prompt fits; signature, tests, feedback and instructions are never cut.
  `write` is `coder` or `rewriter` of a template, or the `write_request` of
  another question, whose prompt has a `statement`.

  Raises:
    PromptTooLongError: the messages do not fit even without the statement.
  """
  messages = write(prompt)
  if isinstance(prompt, CoderPrompt):
    for field in ('examples', 'notes'):
      while (parts := getattr(prompt, field)) and not fits(messages):
        prompt = dataclasses.replace(prompt, **{field: parts[:-1]})
        messages = write(prompt)
  if fits(messages):
    return messages
  words = prompt.statement.split(' ')

  def last(count: int) -> Messages:
    kept = ' '.join(words[len(words) - count :])
    return write(dataclasses.replace(prompt, statement=kept))

  if not fits(last(0)):
    raise PromptTooLongError(
      'the prompt is longer than the model takes, even without its statement: '
      f'shorten the tests or use a longer context ({last(0)[-1][1][:80]!r}...)'
    )
  # The most last words that fit; their number is found by bisection.
  words_fit = bisect.bisect_left(
    range(1, len(words) + 1), True, key=lambda count: not fits(last(count))
  )
  return last(words_fit)
