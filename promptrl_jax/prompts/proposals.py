"""Requests for a better text, given what became of those before it.

The text is anything that steers a system whose results are scored: an
instruction, a system prompt, the statement of a task.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from promptrl_jax.prompts import meta
from promptrl_jax.prompts.templates import Messages

_TAGGED = re.compile(r'<text>\n?(.*?)\n?</text>', re.DOTALL)

_ANSWER = (
  'Put the new text, complete and ready to use, between <text> and </text>.'
)
REFLECT = (
  'A system is steered by the text below, and its result on each input is '
  'scored: the higher, the better. Read what came of some inputs. Find out '
  'which mistakes have the same cause, and which facts about the task and '
  'which ways to do it the feedback shows that the text leaves out. Then write '
  'a better text. It will be used on many other inputs of this kind, so state '
  f'what holds for all of them instead of single answers. {_ANSWER}'
)
MERGE = (
  'Two texts steer the same system, and each does well on inputs where the '
  'other one does not. Write one text that keeps what is useful in both, says '
  f'nothing twice, and settles what they disagree about. {_ANSWER}'
)


@dataclasses.dataclass(frozen=True)
class Case:
  """One input and what became of it; an empty part is not shown."""

  shown: str
  score: float
  feedback: str = ''


def reflect(text: str, cases: Sequence[Case]) -> Messages:
  """Asks for a better text, given cases of the present one."""
  parts = [REFLECT, _tagged(text)]
  for number, case in enumerate(cases, 1):
    lines = [f'# Input {number}', case.shown, f'Score: {case.score:g}']
    lines += [f'Feedback:\n{case.feedback}'] if case.feedback else []
    parts.append('\n'.join(line for line in lines if line))
  return (('user', '\n\n'.join(parts)),)


def merge(first: str, second: str) -> Messages:
  """Asks for one text made of two."""
  return (('user', '\n\n'.join([MERGE, _tagged(first), _tagged(second)])),)


def read(reply: str) -> str:
  """Returns the text in a reply, or '' if there is nothing in it.

  That is the last text between tags. A model that leaves them out has answered
  with the text alone; see `meta.read`.
  """
  tagged = _TAGGED.findall(reply)
  return tagged[-1].strip() if tagged else meta.read(reply)


def _tagged(text: str) -> str:
  return f'<text>\n{text}\n</text>'
