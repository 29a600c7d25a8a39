"""Which replies in words are taken: one guard for all that ask in words.

A model that is asked for a statement, a section, an instruction or a reflection
may be cut off in the middle of a sentence, answer with nothing that can be
read, or repeat what it was told to do. Such a reply is refused, with one of
these reasons, and the call counts; what stands in its place is up to the
caller, who may have further reasons of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from promptrl_jax.llm.backend import Completion
from promptrl_jax.rewards import guards

NO_ROOM = 'no_room'  # the model's context cannot hold the request: no call
CUT = 'cut'  # the reply ended at the limit of its tokens
MALFORMED = 'malformed'  # the reply holds no text of the form that was asked
INSTRUCTION = 'instruction'  # the text has words of the request's instruction


def is_cut(completion: Completion) -> bool:
  """Whether the limit of tokens ended a reply."""
  return completion.finish_reason == 'length'


def refusal(
  completion: Completion | None,
  text: str,
  instruction: str,
  allowed: Sequence[str] = (),
) -> str:
  """Returns why a reply is not taken; '' if it is.

  Args:
    completion: the reply; None if the request had no room.
    text: what was read from it; '' if there is nothing in it.
    instruction: what the model was told to do.
    allowed: texts of the task, whose words are not the instruction's alone.
  """
  if completion is None:
    return NO_ROOM
  if is_cut(completion):
    return CUT
  if not text:
    return MALFORMED
  return INSTRUCTION if guards.quotes(text, instruction, allowed) else ''
