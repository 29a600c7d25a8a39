"""Tests written by a model: the request for them and the parser of the reply.

  TestPrompt --write_request--> model --collect--> GeneratedTests

Few-shot prompts for assertions follow Reflexion (arXiv 2303.11366) and CodeT
(arXiv 2207.10397). Generated tests are often wrong: `rewards.agreement` weighs
them. An empty collection is no evidence about a program.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterator, Sequence

from promptrl_jax.prompts import assertions, parsing
from promptrl_jax.prompts.templates import Messages, TestPrompt

# `- `, `3. `, `>>> `, `**Test 3:** ` and a backtick may precede an assertion.
_START = re.compile(
  r'\s*(?:(?:[-*+•]|>>>|\(?\d+[.):])\s*)*(?:[*_]*[A-Z][\w ]{0,40}:[*_]*\s*)?'
  r'(?P<tick>`*)(?=assert\b)'
)
_MAX_LINES = 20  # Of one assertion.
_MAX_PREFIX = 100  # Characters before and with `assert`; bounds time on junk.

SYSTEM = (
  'You write tests for Python functions. Answer with assertions in a single '
  '```python code block and nothing else: one assertion per line, each a call '
  'with literal arguments and the literal value that it must return. Cover '
  'ordinary and edge cases. Do not write the function itself.'
)
EXAMPLES = (
  (
    TestPrompt(
      'Write a function to limit a number to the range from low to high.',
      'def clamp(x, low, high):',
      count=4,
    ),
    (
      'assert clamp(5, 0, 10) == 5',
      'assert clamp(-3, 0, 10) == 0',
      'assert clamp(10, 0, 10) == 10',
      'assert clamp(2.5, -1.0, 2.0) == 2.0',
    ),
  ),
  (
    TestPrompt(
      'Write a function to find at which positions a word stands in a text.',
      'def word_positions(text, word):',
      ("assert word_positions('to be or not to be', 'be') == [1, 5]",),
      count=3,
    ),
    (
      "assert word_positions('go go go', 'go') == [0, 1, 2]",
      "assert word_positions('nothing here', 'be') == []",
      "assert word_positions('', 'be') == []",
    ),
  ),
)


@dataclasses.dataclass(frozen=True)
class GeneratedTests:
  """The assertions of a reply.

  Attributes:
    tests: distinct assertions in normal form, in the order of the reply. If
      there are none, no program counts as having passed.
    invalid: (text, reason) of each refused assertion.
    duplicates: number of assertions that equal an earlier or a known one.
    dropped: number of assertions beyond the cap.
  """

  tests: tuple[str, ...]
  invalid: tuple[tuple[str, str], ...] = ()
  duplicates: int = 0
  dropped: int = 0


def write_request(prompt: TestPrompt) -> Messages:
  """Returns messages for an instruction-tuned model, with examples."""
  turns = [('system', SYSTEM)]
  for example, tests in EXAMPLES:
    answer = '\n'.join(tests)
    turns += [
      ('user', _question(example)),
      ('assistant', f'```python\n{answer}\n```'),
    ]
  return (*turns, ('user', _question(prompt)))


def _question(prompt: TestPrompt) -> str:
  parts = [prompt.statement, prompt.signature]
  if prompt.tests:
    parts.append('For example:\n' + '\n'.join(prompt.tests))
  count = 'one assertion' if prompt.count == 1 else f'{prompt.count} assertions'
  return '\n\n'.join([*parts, f'Write {count}.'])


def collect(
  reply: str,
  entry_point: str,
  cap: int,
  *,
  known: Sequence[str] = (),
  seed: int | None = None,
  cut: bool = False,
) -> GeneratedTests:
  """Returns the usable tests of a reply.

  Args:
    reply: text of the model.
    entry_point: the function under test; each test must call it.
    cap: maximum number of tests to keep.
    known: tests that count as duplicates, such as the visible ones.
    seed: draws which tests are kept if there are more than `cap`; None keeps
      the first.
    cut: the reply ended at the token limit. Its last assertion is refused,
      because it may be incomplete and still parse.

  Raises:
    ValueError: `cap` is below 1.
  """
  if cap < 1:
    raise ValueError(f'cap={cap}: keep at least one test')
  found = list(read_assertions(reply))
  invalid: list[tuple[str, str]] = []
  if cut and found:
    invalid.append((found.pop(), 'is the last of an answer that was cut'))
  tests: list[str] = []
  for text in found:
    try:
      tests.append(assertions.normalise(text, entry_point))
    except assertions.InvalidTestError as error:
      invalid.append((text, str(error)))
  earlier = _normal_forms(known, entry_point)
  unique = [test for test in dict.fromkeys(tests) if test not in earlier]
  places = range(len(unique))
  if seed is not None and len(unique) > cap:
    places = sorted(random.Random(seed).sample(places, cap))
  return GeneratedTests(
    tests=tuple(unique[i] for i in places[:cap]),
    invalid=tuple(invalid),
    duplicates=len(tests) - len(unique),
    dropped=max(0, len(unique) - cap),
  )


def read_assertions(reply: str) -> Iterator[str]:
  """Yields the text of each assertion in a reply, valid or not.

  An assertion begins a line, inside or outside of code fences. It ends with the
  first line where it parses, at most 20 lines later.
  """
  lines = reply.splitlines()
  for i, line in enumerate(lines):
    if start := _START.match(line, 0, _MAX_PREFIX):
      yield _whole(line[start.end() :], start['tick'], lines[i + 1 :])


def _whole(first: str, tick: str, rest: list[str]) -> str:
  """Returns an assertion that may continue after its first line."""
  first = first.split(tick, 1)[0] if tick else first.rstrip('` \t')
  text = first
  for line in ['', *rest[: _MAX_LINES - 1]]:
    text = f'{text}\n{line}' if line else text
    if len(text) > assertions.MAX_LENGTH:
      break
    if parsing.parse_or_none(text):
      return text
  return first


def _normal_forms(tests: Sequence[str], entry_point: str) -> set[str]:
  """Returns the normal forms of the tests; invalid ones have none."""
  forms = set()
  for test in tests:
    try:
      forms.add(assertions.normalise(test, entry_point))
    except assertions.InvalidTestError:
      continue
  return forms
