"""Undo edits of the statement: all of them, or the last one; then ask."""

from __future__ import annotations

from promptrl_jax.operators.operator import Operator, Question


def _reset(episode, tools):
  del tools
  episode.undo_all()
  return Question(episode.prompt())


def _undo(episode, tools):
  del tools
  episode.undo()
  return Question(episode.prompt())


RESET_PROMPT = Operator(
  'reset_prompt',
  calls=1,
  apply=_reset,
  available=lambda episode: episode.edited,
  rival='',
)
UNDO = Operator(
  'undo',
  calls=1,
  apply=_undo,
  available=lambda episode: bool(episode.history),
  rival='',
)
