"""Requests for another description of a task: reworded, mutated or crossed.

  WordingPrompt --write_request--> model --read--> a statement, or ''

The three requests of EPiC (arXiv 2408.11198): `elaborate` makes its first
population, `mutate` and `cross` the generations that follow. The reply stands
between markers, so that talk around it is told from the description.
"""

from __future__ import annotations

import dataclasses

from promptrl_jax.prompts.template import Messages

START, END = '<task>', '</task>'

_ANSWER = (
  f'Answer with the new description between {START} and {END} and nothing '
  'else. Write no code.'
)
INSTRUCTIONS = {
  'elaborate': (
    'You improve descriptions of Python functions for a programmer who reads '
    'nothing else. Say of which type each argument and the result are, and '
    'spell out every step and special case that the description implies. '
    + _ANSWER
  ),
  'mutate': (
    'You reword descriptions of Python functions so that they are clearer. '
    'Keep the meaning and every number and name. ' + _ANSWER
  ),
  'cross': (
    'You merge two descriptions of the same Python function into one that has '
    'the clearest parts of both. ' + _ANSWER
  ),
}


@dataclasses.dataclass(frozen=True)
class WordingPrompt:
  """A request for a description.

  Attributes:
    operator: one of `INSTRUCTIONS`.
    statement: the description to start from.
    signature: first line of the program.
    other: a second description, for `cross` alone.
    words: most words that are asked for; 0 for any number.
  """

  operator: str
  statement: str
  signature: str
  other: str = ''
  words: int = 0

  def __post_init__(self):
    if self.operator not in INSTRUCTIONS:
      raise ValueError(
        f'operator {self.operator!r}: expected one of {", ".join(INSTRUCTIONS)}'
      )
    if bool(self.other) != (self.operator == 'cross'):
      raise ValueError(
        f'operator {self.operator!r} with other={self.other!r}: a second '
        'description is for cross, which needs one'
      )

  @property
  def instruction(self) -> str:
    """What the model is told to do."""
    limit = f' Use at most {self.words} words.' if self.words else ''
    return INSTRUCTIONS[self.operator] + limit


_LARGEST = 'Write a function to find the largest number in a list.'
_SIGNATURE = 'def largest(numbers):'
# One exchange for each request. Without it a small model answers with programs.
_EXAMPLES = {
  'elaborate': (
    WordingPrompt('elaborate', _LARGEST, _SIGNATURE),
    'The function takes a list of integers or floats. It compares all of them '
    'and returns the one with the greatest value, also if all numbers are '
    'negative. For a list with one number it returns that number.',
  ),
  'mutate': (
    WordingPrompt('mutate', _LARGEST, _SIGNATURE),
    'Given a list of numbers, return the greatest number that is in it.',
  ),
  'cross': (
    WordingPrompt(
      'cross',
      _LARGEST,
      _SIGNATURE,
      'Given numbers, some of them negative, return the maximum.',
    ),
    'Given a list of numbers, some of them negative, find and return the '
    'largest one.',
  ),
}


def write_request(prompt: WordingPrompt) -> Messages:
  """Returns messages for an instruction-tuned model, with one example."""
  example, answer = _EXAMPLES[prompt.operator]
  return (
    ('system', prompt.instruction),
    ('user', _question(example)),
    ('assistant', f'{START}{answer}{END}'),
    ('user', _question(prompt)),
  )


def _question(prompt: WordingPrompt) -> str:
  parts = [prompt.signature, prompt.statement]
  if prompt.other:
    parts = [
      prompt.signature,
      f'First description: {prompt.statement}',
      f'Second description: {prompt.other}',
    ]
  return '\n\n'.join(parts)


def read(reply: str) -> str:
  """Returns the description between the markers, or '' if it is malformed.

  The end marker may be missing, since it is a stop string of the request; the
  start marker may not, and no marker may occur twice.
  """
  before, start, rest = reply.partition(START)
  body, _, after = rest.partition(END)
  if not start or START in body + after or END in before + after:
    return ''
  return body.strip()
