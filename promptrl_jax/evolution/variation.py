"""New prompts from old ones, section by section.

  genomes ──draw──> drafts with section edits ──EditFn, one call──> genomes

What is changed is drawn here; how a section is changed is up to an `EditFn`,
which is handed all edits of a generation at once, so that a model is asked in
one batch: `edits.lexical`, `edits.choose_from`, or `rewording.SectionWriter`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from promptrl_jax.evolution.hints import Hint
from promptrl_jax.prompts.genome import PromptGenome


@dataclasses.dataclass(frozen=True)
class SectionEdit:
  """One section that is to be changed.

  Attributes:
    section: its name.
    text: what it says.
    other: what that of a second parent says, if both are to be merged.
    hint: what is to become better, if a hint is to be followed.
    seed: of the draws of this edit.
  """

  section: str
  text: str
  other: str = ''
  hint: str = ''
  seed: int = 0


# Returns the new text of each section; the old one where an edit fails.
EditFn = Callable[[Sequence[SectionEdit]], Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Draft:
  """A genome whose edits are still to be carried out."""

  genome: PromptGenome
  edits: tuple[SectionEdit, ...] = ()


def carry_out(drafts: Sequence[Draft], edit_fn: EditFn) -> list[PromptGenome]:
  """Returns the genomes of drafts; all edits are made in one call.

  A draft whose edits name one section twice ends with the last of them.

  Raises:
    ValueError: there is not a text for each edit.
  """
  edits = [edit for draft in drafts for edit in draft.edits]
  texts = edit_fn(edits) if edits else []
  if len(texts) != len(edits):
    raise ValueError(
      f'edit_fn returned {len(texts)} texts: expected {len(edits)}, one for '
      'each edit'
    )
  remaining = iter(texts)
  genomes = []
  for draft in drafts:
    genome = draft.genome
    for edit in draft.edits:
      genome = genome.with_section(edit.section, next(remaining))
    genomes.append(genome)
  return genomes


def draw_mutation(
  genome: PromptGenome, rate: float, rng: np.random.Generator
) -> Draft:
  """Draws which sections change: each that is not blank, with this probability.

  `rng` is consumed.
  """
  check_share('rate', rate)
  edits = [
    SectionEdit(name, genome.sections[name], seed=draw_seed(rng))
    for name in genome.filled
    if rng.random() < rate
  ]
  return Draft(genome, tuple(edits))


def draw_merge(
  first: PromptGenome, second: PromptGenome, rng: np.random.Generator
) -> Draft:
  """Has each section that two parents say differently made of both.

  A section that is blank in one of them is that of the other. `rng` is
  consumed.
  """
  sections, edits = dict(first.sections), []
  for name, text in second.sections.items():
    mine = sections.get(name, '')
    if not mine.strip():
      sections[name] = text
    elif text.strip() and text.strip() != mine.strip():
      edits.append(SectionEdit(name, mine, text, seed=draw_seed(rng)))
  return Draft(PromptGenome(sections, first.metadata), tuple(edits))


def draw_guided(
  genome: PromptGenome, hint: Hint, strength: float, rng: np.random.Generator
) -> Draft:
  """Has the section of a hint follow it, with probability `strength`.

  `rng` is consumed.
  """
  check_share('strength', strength)
  applies, seed = rng.random() < strength, draw_seed(rng)
  if not applies:
    return Draft(genome)
  text = genome.sections.get(hint.section, '')
  edit = SectionEdit(hint.section, text, hint=hint.text, seed=seed)
  return Draft(genome, (edit,))


def mutate_genome(
  genome: PromptGenome,
  edit_fn: EditFn,
  rate: float = 0.3,
  *,
  rng: np.random.Generator,
) -> PromptGenome:
  """Changes each section that is not blank with probability `rate`.

  `rng` is consumed.
  """
  return carry_out([draw_mutation(genome, rate, rng)], edit_fn)[0]


def guided_mutation(
  genome: PromptGenome,
  hint: Hint,
  edit_fn: EditFn,
  strength: float = 0.5,
  *,
  rng: np.random.Generator,
) -> PromptGenome:
  """Follows a hint with probability `strength`; `rng` is consumed."""
  return carry_out([draw_guided(genome, hint, strength, rng)], edit_fn)[0]


def crossover_genomes(
  first: PromptGenome,
  second: PromptGenome,
  rate: float = 0.5,
  *,
  rng: np.random.Generator,
) -> PromptGenome:
  """Takes each section from the first parent with probability `rate`.

  Otherwise from the second; a section that the chosen parent has not got is
  left out. The order is that of the first parent, which the others follow; so
  is the metadata. `rng` is consumed.
  """
  check_share('rate', rate)
  names = dict.fromkeys([*first.sections, *second.sections])
  givers = [first if rng.random() < rate else second for _ in names]
  sections = {
    name: giver.sections[name]
    for name, giver in zip(names, givers, strict=True)
    if name in giver.sections
  }
  return PromptGenome(sections, first.metadata)


def draw_seed(rng: np.random.Generator) -> int:
  """Draws a seed that any model server takes: 31 bits. `rng` is consumed."""
  return int(rng.integers(2**31))


def check_share(name: str, value: float) -> None:
  if not 0 <= value <= 1:
    raise ValueError(f'{name}={value}: expected a probability in 0..1')
