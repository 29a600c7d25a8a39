"""Reflections: what a model says is wrong with its own program.

  ReflectionPrompt --write_request--> model --read--> Reflection --recall-->
    the next prompt

Verbal reinforcement and episodic memory of Reflexion (Shinn et al. 2023, arXiv
2303.11366). A reflection is in words, since a program in it would be a further
attempt.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from promptrl_jax.prompts import examples as examples_lib
from promptrl_jax.prompts import feedback as feedback_lib
from promptrl_jax.prompts import rewrite
from promptrl_jax.prompts.template import Messages


@dataclasses.dataclass(frozen=True)
class ReflectionPrompt:
  """A request to say why a program is wrong.

  Attributes:
    statement, signature: as of a `CoderPrompt`.
    code: the program; empty if the reply held none.
    results: what tests said of it, line by line; empty if none were run.
  """

  statement: str
  signature: str
  code: str
  results: str = ''


@dataclasses.dataclass(frozen=True)
class Reflection:
  """What was learned from one failing program.

  Attributes:
    situation: statement and test results, by which it is found again.
    text: the reflection.
  """

  situation: str
  text: str


def recall(
  memory: Sequence[Reflection],
  situation: str,
  *,
  count: int,
  tokens: int,
  count_tokens: Callable[[str], int],
) -> tuple[str, ...]:
  """Returns the reflections that fit a situation best, the nearest first.

  Args:
    memory: all reflections, oldest first.
    situation: what they are for; nearness is that of rare words, and of
      reflections that are equally near the latest comes first.
    count: most reflections.
    tokens: most tokens of all of them together; one that would go beyond is
      left out.
    count_tokens: counts those of a text.
  """
  latest = list({m.text: m for m in memory}.values())[::-1]
  order = examples_lib.nearest_first(situation, [m.situation for m in latest])
  recalled: list[str] = []
  for place in order:
    if len(recalled) == count:
      break
    cost = count_tokens(latest[place].text)
    if cost <= tokens:
      recalled.append(latest[place].text)
      tokens -= cost
  return tuple(recalled)


def from_trace(rows: Iterable[Mapping[str, Any]]) -> tuple[Reflection, ...]:
  """The reflections of a run, from its trace: a memory for further problems.

  A run on training problems may be remembered on all others.
  """
  return tuple(
    Reflection(row['situation'], row['reflection'])
    for row in rows
    if row['action'] == 'reflect' and row['reflection']
  )


SYSTEM = (
  'You review Python functions. Say in one to three sentences what is wrong '
  'with the program and what to do differently next time, as a hint to '
  'yourself. Name the mistake. Write no code.'
)
_MOST_SENTENCES = 3
_NO_PROGRAM = '(The answer held no program that compiles.)'
_EXAMPLES = (
  (
    ReflectionPrompt(
      'Write a function to limit a number to the range from low to high.',
      'def clamp(x, low, high):',
      'def clamp(x, low, high):\n  return min(x, high)',
      'passed: assert clamp(5, 0, 10) == 5\n'
      'failed: assert clamp(-3, 0, 10) == 0  # clamp(-3, 0, 10) is -3, not 0',
    ),
    'The program applies the upper limit alone, so that numbers below low come '
    'back unchanged. Next time the result must also be at least low.',
  ),
  (
    ReflectionPrompt(
      'Write a function to find at which positions a word stands in a text.',
      'def word_positions(text, word):',
      'def word_positions(text, word):\n  return [text.index(word)]',
      "failed: assert word_positions('go go go', 'go') == [0, 1, 2]"
      "  # word_positions('go go go', 'go') is [0], not [0, 1, 2]",
    ),
    'The program searches characters and stops at the first match. It should '
    'split the text into words and collect the index of every word that is '
    'equal to the one that is asked for.',
  ),
)
# Code in a reply, closed or not, is no part of the reflection.
_LINE_OF_CODE = re.compile(r'^(?:def |class |import |from \S+ import |assert )')


def write_request(prompt: ReflectionPrompt) -> Messages:
  """Returns messages for an instruction-tuned model, with two examples."""
  turns = [('system', SYSTEM)]
  for example, reflection in _EXAMPLES:
    turns += [('user', _question(example)), ('assistant', reflection)]
  return (*turns, ('user', _question(prompt)))


def _question(prompt: ReflectionPrompt) -> str:
  code = prompt.code.strip() or _NO_PROGRAM
  parts = [
    f'{prompt.statement}\n\n{prompt.signature}',
    f'Program:\n```python\n{code}\n```',
  ]
  if prompt.results:
    parts.append(f'Test results:\n{prompt.results}')
  return '\n\n'.join([*parts, 'What is wrong?'])


def read(reply: str) -> str:
  """Returns the reflection in a reply on one line; '' if it is all code.

  That is the first three distinct sentences, as many as are asked for: a small
  model repeats itself until it is cut. Half a sentence is left out unless it is
  all there is.
  """
  lines = feedback_lib.without_code(reply).split('\n')
  words = [line for line in lines if not _LINE_OF_CODE.match(line.strip())]
  text = ' '.join(' '.join(words).split())
  ends = [match.end() for match in rewrite.SENTENCE_END.finditer(text)]
  sentences = [
    text[start:end].strip() for start, end in itertools.pairwise([0, *ends])
  ]
  return ' '.join([*dict.fromkeys(sentences)][:_MOST_SENTENCES]) or text
