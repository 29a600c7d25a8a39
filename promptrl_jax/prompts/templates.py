"""Requests for programs and rewrites, and their two message formats.

`PLAIN` is the format of the embedded models, which complete text, `CHAT` that
of instruction-tuned models. `TestPrompt` is for those alone, see
`generated_tests.py`.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable

from promptrl_jax.prompts import extract, rewrite
from promptrl_jax.prompts.examples import WorkedExample

Messages = tuple[tuple[str, str], ...]  # (role, content)
FitsFn = Callable[[Messages], bool]
# Characters. A shorter completion of the embedded rewriter is a fragment, such
# as a lone function name, and states no task.
_SHORTEST_REWRITE = 11


@dataclasses.dataclass(frozen=True)
class CoderPrompt:
  """A request for a program.

  Attributes:
    statement: the task in words, as edited so far.
    signature: first line of the program, `def f(a):`.
    tests: visible assertions, empty under the `blind` protocol.
    attempt: a failing program to repair, or empty.
    feedback: the verdicts on the attempt, from `feedback.feedback_text`.
    examples: solved tasks to show before, the nearest first.
    instruction: how programs are to be written, the same for all tasks; empty:
      that of the template.
  """

  statement: str
  signature: str
  tests: tuple[str, ...] = ()
  attempt: str = ''
  feedback: str = ''
  examples: tuple[WorkedExample, ...] = ()
  instruction: str = ''


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

  `program` is empty if the reply holds none. `rewritten` is the old statement
  if the reply is not usable, so that a failed rewrite never loses the task.
  """

  name: str
  coder: Callable[[CoderPrompt], Messages]
  program: Callable[[CoderPrompt, str], str]
  rewriter: Callable[[RewritePrompt], Messages]
  rewritten: Callable[[RewritePrompt, str], str]


def fit(
  write: Callable[..., Messages],
  prompt: CoderPrompt | RewritePrompt | TestPrompt,
  fits: FitsFn,
) -> Messages:
  """Writes messages that fit into the model's context.

  Worked examples are left out, the farthest first, and then whole words are
  dropped from the left of the statement until the prompt fits; signature,
  tests, feedback and instructions are never cut. `write` is `coder` or
  `rewriter` of a template, or `generated_tests.write_request`.

  Raises:
    PromptTooLongError: the messages do not fit even without the statement.
  """
  messages = write(prompt)
  if isinstance(prompt, CoderPrompt):
    while prompt.examples and not fits(messages):
      prompt = dataclasses.replace(prompt, examples=prompt.examples[:-1])
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


def _first_failure(feedback: str) -> str:
  """Returns the first failed test; the embedded models read one line."""
  return feedback.partition('FAILED: ')[2].split('\n', 1)[0]


def _plain_coder(prompt: CoderPrompt) -> Messages:
  parts = [prompt.instruction] if prompt.instruction else []
  for example in reversed(prompt.examples):  # The nearest one stands last.
    parts += [example.statement, *example.tests, '###', f'{example.code}\n']
  parts += [prompt.statement, *prompt.tests]
  if prompt.attempt:
    failure = _first_failure(prompt.feedback)
    parts += ['# wrong:', prompt.attempt.rstrip(), f'# {failure}']
  return (('user', '\n'.join([*parts, '###', prompt.signature])),)


def _plain_program(prompt: CoderPrompt, reply: str) -> str:
  return f'{prompt.signature}{reply}'


def _plain_rewriter(prompt: RewritePrompt) -> Messages:
  failure = _first_failure(prompt.feedback)
  feedback = f'\n# {failure}' if failure else ''
  name = f'\nname: {prompt.function_name}'
  return (('user', f'{prompt.statement}{name}{feedback}\n=>'),)


def _plain_rewritten(prompt: RewritePrompt, reply: str) -> str:
  text = ' '.join(reply.split())
  return text if len(text) >= _SHORTEST_REWRITE else prompt.statement


PLAIN = Template(
  'plain', _plain_coder, _plain_program, _plain_rewriter, _plain_rewritten
)

CODER_INSTRUCTION = (
  'You are an expert Python programmer. Answer with one complete Python '
  'program in a single ```python code block and nothing else.'
)
_REWRITER_SYSTEM = (
  'You rewrite programming tasks so that a code model understands them. State '
  'what the Python function takes, what it returns, and any detail that the '
  'feedback reveals. Answer with one sentence that begins '
  f'"{rewrite.PREFIX}", names the function, contains the words "Python '
  'function", and has no code.'
)


def _chat_task(prompt: CoderPrompt | WorkedExample) -> list[str]:
  parts = [prompt.statement, f'Begin with: {prompt.signature}']
  if prompt.tests:
    parts.append('It must pass:\n' + '\n'.join(prompt.tests))
  return parts


def _chat_coder(prompt: CoderPrompt) -> Messages:
  messages = [('system', prompt.instruction or CODER_INSTRUCTION)]
  for example in reversed(prompt.examples):  # The nearest one stands last.
    messages += [
      ('user', '\n\n'.join(_chat_task(example))),
      ('assistant', f'```python\n{example.code}\n```'),
    ]
  parts = _chat_task(prompt)
  if prompt.attempt:
    parts.append(
      f'This attempt is wrong:\n```python\n{prompt.attempt}\n```\n'
      f'{prompt.feedback}\nGive a corrected program.'
    )
  return (*messages, ('user', '\n\n'.join(parts)))


def _chat_program(prompt: CoderPrompt, reply: str) -> str:
  name = prompt.signature.split('(')[0].removeprefix('def ').strip()
  return extract.extract_code(reply, name)


def _chat_rewriter(prompt: RewritePrompt) -> Messages:
  parts = [prompt.statement, f'Function name: {prompt.function_name}']
  if prompt.feedback:
    parts.append(f'Feedback on the last program: {prompt.feedback}')
  return (('system', _REWRITER_SYSTEM), ('user', '\n\n'.join(parts)))


def _chat_rewritten(prompt: RewritePrompt, reply: str) -> str:
  name = prompt.function_name
  if rewrite.validate_rewrite(reply, name):
    reply = rewrite.repair_rewrite(name, prompt.statement)
  return rewrite.extract_rewrite(reply)


CHAT = Template(
  'chat', _chat_coder, _chat_program, _chat_rewriter, _chat_rewritten
)
TEMPLATES = {t.name: t for t in (PLAIN, CHAT)}
