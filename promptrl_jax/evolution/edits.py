"""Section edits that ask no model."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from promptrl_jax.evolution.diversity import cosines, word_vectors
from promptrl_jax.evolution.variation import EditFn, SectionEdit
from promptrl_jax.operators import lexical as lexical_lib
from promptrl_jax.operators.lexical import LexicalConfig


def follow(edit: SectionEdit) -> str:
  """Adds a hint to the end of a section, on a line of its own, once."""
  if edit.hint in edit.text:
    return edit.text
  return '\n'.join(filter(None, [edit.text.rstrip(), edit.hint]))


def join(edit: SectionEdit) -> str:
  """Adds those lines of a second section that the first one has not got."""
  lines = edit.text.rstrip().split('\n')
  more = [line for line in edit.other.rstrip().split('\n') if line not in lines]
  return '\n'.join([*lines, *more])


def lexical(config: LexicalConfig = LexicalConfig()) -> EditFn:
  """Replaces words by synonyms; hints are added, and two sections joined."""

  def edit_one(edit: SectionEdit) -> str:
    if edit.hint:
      return follow(edit)
    if edit.other:
      return join(edit)
    return lexical_lib.mutate(edit.text, random.Random(edit.seed), config)

  return lambda edits: [edit_one(edit) for edit in edits]


def choose_from(bank: Mapping[str, Sequence[str]]) -> EditFn:
  """Draws another wording of a section from those that are known.

  A hint draws the wording with whose words it has the largest cosine, or is
  added where it has none in common with any. A section without a wording of its
  own stays as it is.

  Args:
    bank: section -> its wordings.
  """

  def edit_one(edit: SectionEdit) -> str:
    others = [text for text in bank.get(edit.section, ()) if text != edit.text]
    if edit.hint:
      near = cosines(word_vectors([edit.hint, *others]))
      near = near[0, 1:]
      is_near = near.size and near.max() > 0
      return others[int(near.argmax())] if is_near else follow(edit)
    if edit.other:
      return (edit.text, edit.other)[edit.seed % 2]
    rng = np.random.default_rng(edit.seed)
    return others[rng.integers(len(others))] if others else edit.text

  return lambda edits: [edit_one(edit) for edit in edits]
