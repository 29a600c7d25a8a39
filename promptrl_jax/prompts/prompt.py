"""A prompt with its version, and the versions that it went through."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from promptrl_jax.prompts.frozen import FrozenMapping


@dataclasses.dataclass(frozen=True)
class Prompt:
  """One version of a text; `str` is the text, `len` its characters.

  Attributes:
    text: what a model is sent.
    version: number of refinements since the first version.
    metadata: whatever is known of it; copied, and cannot be changed.
    parent: the version that it was refined from. Two prompts are compared
      without their parents.
  """

  text: str
  version: int = 0
  metadata: Mapping[str, Any] = FrozenMapping()
  parent: Prompt | None = dataclasses.field(
    default=None, repr=False, compare=False
  )

  def __post_init__(self):
    if not isinstance(self.text, str):
      raise TypeError(f'text={self.text!r}: expected a string')
    if self.version < 0:
      raise ValueError(f'version={self.version}: expected 0 or more')
    object.__setattr__(self, 'metadata', FrozenMapping(self.metadata))

  def with_refinement(self, new_text: str, **metadata: Any) -> Prompt:
    """Returns the next version; metadata is merged over that of this one."""
    merged = {**self.metadata, **metadata}
    return Prompt(new_text, self.version + 1, merged, self)

  def ancestry(self) -> Iterator[Prompt]:
    """Yields this prompt, its parent, and so on to the first version."""
    prompt: Prompt | None = self
    while prompt is not None:
      yield prompt
      prompt = prompt.parent

  def __str__(self) -> str:
    return self.text

  def __len__(self) -> int:
    return len(self.text)

  def __bool__(self) -> bool:
    """An empty prompt is a prompt."""
    return True


class PromptHistory:
  """Prompts in the order in which they came up."""

  def __init__(self, prompts: Iterable[Prompt] = ()):
    self._prompts = list(prompts)

  def append(self, prompt: Prompt) -> None:
    self._prompts.append(prompt)

  @property
  def current(self) -> Prompt | None:
    """The last one; None if there is none."""
    return self._prompts[-1] if self._prompts else None

  def __len__(self) -> int:
    return len(self._prompts)

  def __iter__(self) -> Iterator[Prompt]:
    return iter(self._prompts)

  def __getitem__(self, place: int) -> Prompt:
    return self._prompts[place]
