"""A prompt in named sections, each of which an operator can change alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from promptrl_jax.prompts.frozen import FrozenMapping

# The sections of a genome that names none, with what stands there. Any other
# name is a section as well.
ABOUT: Mapping[str, str] = FrozenMapping(
  {
    'role': 'who the assistant is and what it is there for',
    'tone': 'how it speaks: style, manner, formality',
    'constraints': 'what it must do and must not do: rules, limits, length',
    'examples': 'examples of good answers',
    'format': 'the form of an answer: lists, headings, structure, layout',
  }
)
SECTIONS = tuple(ABOUT)


@dataclasses.dataclass(frozen=True)
class PromptGenome:
  """An immutable prompt in ordered sections.

  Attributes:
    sections: name -> text, in the order in which they are rendered; a blank
      section is there and is not rendered. `SECTIONS`, all empty, by default.
    metadata: whatever is known of the prompt.
  """

  sections: Mapping[str, str] = FrozenMapping(dict.fromkeys(SECTIONS, ''))
  metadata: Mapping[str, Any] = FrozenMapping()

  def __post_init__(self):
    for name, text in self.sections.items():
      if not isinstance(name, str) or not name.strip():
        raise ValueError(f'section name {name!r}: expected a name in letters')
      if not isinstance(text, str):
        raise TypeError(f'section {name!r} is {text!r}: expected a string')
    object.__setattr__(self, 'sections', FrozenMapping(self.sections))
    object.__setattr__(self, 'metadata', FrozenMapping(self.metadata))

  @property
  def filled(self) -> tuple[str, ...]:
    """Names of the sections that are not blank, in order."""
    return tuple(name for name, text in self.sections.items() if text.strip())

  def with_section(self, name: str, text: str) -> PromptGenome:
    """Returns a genome with this section changed, or added at the end."""
    return dataclasses.replace(self, sections={**self.sections, name: text})

  def render(self, order: Iterable[str] | None = None) -> str:
    """Returns the prompt: sections that are not blank, a blank line between.

    Args:
      order: names of the sections that come first; those that it does not name
        follow in their own order, those that there are not are passed over.
    """
    first = [name for name in order or () if name in self.sections]
    names = dict.fromkeys([*first, *self.sections])
    texts = (self.sections[name].strip() for name in names)
    return '\n\n'.join(filter(None, texts))
