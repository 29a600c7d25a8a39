"""Requests for other words: for the description of a task, or for a section.

  WordingPrompt --write_request--> model --read--> a text, or ''

The three requests of EPiC (arXiv 2408.11198): `elaborate` makes its first
population, `mutate` and `cross` the generations that follow. The same for one
section of a system prompt: `mutate_section`, `cross_sections`, and
`guide_section`, which follows a hint. The reply stands between markers, so that
talk around it is told from the text.
"""

from __future__ import annotations

import dataclasses

from promptrl_jax.prompts.template import Messages

START, END = '<task>', '</task>'

_ANSWER = (
  f'Answer with the new description between {START} and {END} and nothing '
  'else. Write no code.'
)
_ANSWER_SECTION = (
  f'Answer with the new section between {START} and {END} and nothing else.'
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
  'mutate_section': (
    'You reword one section of a prompt that tells an assistant how to answer '
    'people. Say what it says in another way: more concretely, more briefly or '
    'with another stress. ' + _ANSWER_SECTION
  ),
  'cross_sections': (
    'You merge two versions of the same section of a prompt that tells an '
    'assistant how to answer people. Keep what is useful in both, say nothing '
    'twice, and settle what they disagree about. ' + _ANSWER_SECTION
  ),
  'guide_section': (
    'You change one section of a prompt that tells an assistant how to answer '
    'people, so that it follows a hint. Keep everything that the hint leaves '
    'alone. ' + _ANSWER_SECTION
  ),
}
# Requests that merge two texts, and those that follow a hint.
CROSSING = ('cross', 'cross_sections')
GUIDED = ('guide_section',)


@dataclasses.dataclass(frozen=True)
class WordingPrompt:
  """A request for a description or a section.

  Attributes:
    operator: one of `INSTRUCTIONS`.
    statement: the description or section to start from.
    signature: first line of the program; of a section, what it is about.
    other: a second one, for `CROSSING` alone.
    words: most words that are asked for; 0 for any number.
    hint: what is to become better, for `GUIDED` alone.
  """

  operator: str
  statement: str
  signature: str
  other: str = ''
  words: int = 0
  hint: str = ''

  def __post_init__(self):
    if self.operator not in INSTRUCTIONS:
      raise ValueError(
        f'operator {self.operator!r}: expected one of {", ".join(INSTRUCTIONS)}'
      )
    if bool(self.other) != (self.operator in CROSSING):
      raise ValueError(
        f'operator {self.operator!r} with other={self.other!r}: a second '
        f'description is for {" and ".join(CROSSING)}, which need one'
      )
    if bool(self.hint) != (self.operator in GUIDED):
      raise ValueError(
        f'operator {self.operator!r} with hint={self.hint!r}: a hint is for '
        f'{" and ".join(GUIDED)}, which needs one'
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
  'mutate_section': (
    WordingPrompt('mutate_section', 'Be brief.', 'tone: how it speaks'),
    'Answer in one or two short sentences, without an introduction.',
  ),
  'cross_sections': (
    WordingPrompt(
      'cross_sections',
      'Be brief and friendly.',
      'tone: how it speaks',
      'Speak like a patient teacher. Be brief.',
    ),
    'Be brief, and as friendly as a patient teacher.',
  ),
  'guide_section': (
    WordingPrompt(
      'guide_section',
      'Answer in full sentences.',
      'format: the form of an answer',
      hint='The steps were hard to find.',
    ),
    'Answer in full sentences. Put each step on a line of its own.',
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
    one = 'description' if prompt.operator == 'cross' else 'version'
    parts = [
      prompt.signature,
      f'First {one}: {prompt.statement}',
      f'Second {one}: {prompt.other}',
    ]
  if prompt.hint:
    parts.append(f'Hint: {prompt.hint}')
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
