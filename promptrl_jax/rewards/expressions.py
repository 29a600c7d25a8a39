"""Pieces of Python in a text that is mostly words."""

from __future__ import annotations

import ast

from promptrl_jax.prompts import parsing

LONGEST = 200  # characters of an expression
_OPEN = {'(': ')', '[': ']', '{': '}'}


def parse(source: str) -> ast.expr | None:
  """The expression that `source` is, or None if it is none."""
  tree = parsing.parse_or_none(source.strip(), 'eval')
  return tree and tree.body


def bracketed(text: str, opening: int, start: int) -> str:
  """From `start` to the bracket that closes the one at `opening`, or ''."""
  closing: list[str] = []
  for place in range(opening, min(len(text), opening + LONGEST)):
    mark = text[place]
    if mark in _OPEN:
      closing.append(_OPEN[mark])
    elif closing and mark == closing[-1]:
      closing.pop()
      if not closing:
        return text[start : place + 1]
  return ''
