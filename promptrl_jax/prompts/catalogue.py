"""Ready texts for the sections of a system prompt.

First populations are drawn from them, and mutations without a model replace a
section by another one.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np

from promptrl_jax.prompts.genome import SECTIONS, PromptGenome

ALTERNATIVES: dict[str, tuple[str, ...]] = {
  'role': (
    'You are a helpful assistant.',
    'You are a patient teacher.',
    'You are an experienced engineer.',
    'You are a well-read friend.',
  ),
  'tone': (
    'Write plainly.',
    'Write in a formal tone.',
    'Write in a warm, friendly tone.',
    'Write with enthusiasm.',
  ),
  'constraints': (
    'Answer in at most two sentences.',
    'Answer in about five sentences.',
    'Be thorough and mention exceptions.',
    'Say how sure you are.',
  ),
  'examples': (
    '',
    'Give an example.',
    'Show a snippet of code.',
  ),
  'format': (
    'Write one paragraph.',
    'Use a bulleted list.',
    'Use numbered steps.',
    'Begin with a summary.',
    'End with a question to the reader.',
  ),
}
assert tuple(ALTERNATIVES) == SECTIONS


def draw(rng: np.random.Generator) -> PromptGenome:
  """A genome with a known text in each section; `rng` is consumed."""
  return PromptGenome(
    {n: texts[rng.integers(len(texts))] for n, texts in ALTERNATIVES.items()}
  )


@functools.cache
def every() -> tuple[PromptGenome, ...]:
  """All genomes of the catalogue."""
  return tuple(
    PromptGenome(dict(zip(ALTERNATIVES, texts, strict=True)))
    for texts in itertools.product(*ALTERNATIVES.values())
  )
