"""Prompts that were prefilled before, for requests that ask them again.

Strategies sample the same prompt again and again, in other calls of the engine.
A prefill is kept with its cache and logits until newer ones need the memory.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

import jax

from promptrl_jax.sampling.programs import SlotState

Prompt = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Place:
  """A row of a prefill.

  Attributes:
    prefill: number of the prefill.
    padded: length that its prompts are padded to.
    group, row: the group of devices, and the row among those of the group.
  """

  prefill: int
  padded: int
  group: int
  row: int


class PromptCache:
  """Prefills that were used last, up to a number of bytes."""

  def __init__(self, most_bytes: int):
    self._most_bytes = most_bytes
    self._count = 0
    self._bytes = 0
    self._states: collections.OrderedDict[int, SlotState] = (
      collections.OrderedDict()
    )
    self._prompts: dict[int, list[tuple[Prompt, Place]]] = {}
    self._places: dict[Prompt, dict[int, Place]] = {}

  def places(self, prompt: Prompt) -> dict[int, Place]:
    """Where a prompt lies, by group."""
    return self._places.get(prompt, {})

  def state(self, prefill: int) -> SlotState:
    """The state of a prefill, which is used now."""
    self._states.move_to_end(prefill)
    return self._states[prefill]

  def add(
    self,
    state: SlotState,
    padded: int,
    prompts: Sequence[tuple[int, int, Prompt]],
  ) -> None:
    """Keeps a prefill of some (group, row, prompt)."""
    size = _bytes(state)
    if size > self._most_bytes:
      return
    while self._bytes + size > self._most_bytes:
      self._drop(next(iter(self._states)))
    self._states[self._count] = state
    self._bytes += size
    self._prompts[self._count] = []
    for group, row, prompt in prompts:
      place = Place(self._count, padded, group, row)
      self._prompts[self._count].append((prompt, place))
      self._places.setdefault(prompt, {})[group] = place
    self._count += 1

  def clear(self) -> None:
    """Forgets all: the parameters are others."""
    self.__init__(self._most_bytes)

  def _drop(self, prefill: int) -> None:
    state = self._states.pop(prefill)
    self._bytes -= _bytes(state)
    for prompt, place in self._prompts.pop(prefill):
      # A later prefill of the prompt may have taken the place, and be gone.
      by_group = self._places.get(prompt, {})
      if by_group.get(place.group) == place:
        del by_group[place.group]
      if not by_group:
        self._places.pop(prompt, None)


def _bytes(state: SlotState) -> int:
  return sum(leaf.nbytes for leaf in jax.tree.leaves(state))
