"""Prompts that were prefilled before, for requests that ask them again.

Strategies sample the same prompt again and again, in other calls of the engine,
and edit it: most of its beginning stays. A prefill is kept with its cache and
logits until newer ones need the memory, and prompts that begin alike need only
be read from where they differ (as by RadixAttention, arXiv 2312.07104).
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from promptrl_jax.sampling.programs import SlotState

Prompt = tuple[int, ...]
_STEP = 16  # Beginnings are found in multiples of so many tokens.


@dataclasses.dataclass(frozen=True)
class Place:
  """A row of a prefill.

  Attributes:
    prefill: number of the prefill.
    padded: length that its prompts are padded to.
    group, row: the group of devices, and the row among those of the group.
    first: where the prompt begins, behind its padding.
  """

  prefill: int
  padded: int
  group: int
  row: int
  first: int


class Beginning(NamedTuple):
  """The first `count` tokens of the prompt at a place."""

  place: Place
  count: int


class PromptCache:
  """Prefills that were used last, up to a number of bytes."""

  def __init__(self, most_bytes: int):
    self._most_bytes = most_bytes
    self._count = 0
    self._bytes = 0
    self._held: set[int] = set()
    self._states: collections.OrderedDict[int, SlotState] = (
      collections.OrderedDict()
    )
    self._prompts: dict[int, list[tuple[Prompt, Place]]] = {}
    self._places: dict[Prompt, dict[int, Place]] = {}
    self._beginnings: dict[Prompt, Place] = {}

  def places(self, prompt: Prompt) -> dict[int, Place]:
    """Where a prompt lies, by group."""
    return self._places.get(prompt, {})

  def beginning(self, prompt: Prompt, least: int) -> Place | None:
    """Where a prompt lies that begins with the same `least` tokens or more."""
    return self._beginnings.get(beginning_of(prompt, least))

  def state(self, prefill: int) -> SlotState:
    """The state of a prefill, which is used now."""
    self._states.move_to_end(prefill)
    return self._states[prefill]

  def hold(self, prefills: Iterable[int]) -> None:
    """Keeps these until `release`, and none that were held before.

    Whoever uses a state keeps it in memory: dropped meanwhile, it would not
    count, and the cache would have up to twice its bytes.
    """
    self._held = set(prefills)

  def release(self, prefill: int) -> None:
    """Lets newer prefills take the place of one that was held."""
    self._held.discard(prefill)

  def copies(
    self, size: int, beginnings: Sequence[Beginning | None]
  ) -> np.ndarray:
    """Keys and values of the first `size` places of left-padded prompts.

    Args:
      beginnings: of each prompt, what those places hold behind the padding;
        None for rows of padding.

    Returns:
      What `CausalModel.prefill` takes: [A, L, 2, size, K, H].
    """
    found = {i: b for i, b in enumerate(beginnings) if b is not None}
    caches = {i: self.state(b.place.prefill).cache for i, b in found.items()}
    layers = next(iter(caches.values()))
    keys = layers[0].keys
    heads, head_size = keys.shape[1], keys.shape[3]
    shape = (len(beginnings), len(layers), 2, size, heads, head_size)
    copies = np.zeros(shape, keys.dtype)
    for i, (place, count) in found.items():
      for to, layer in zip(copies[i], caches[i], strict=True):
        layer.copy_to(
          to[:, size - count :], place.group, place.row, place.first
        )
    return copies

  def add(
    self,
    state: SlotState,
    padded: int,
    prompts: Sequence[tuple[int, int, Prompt]],
  ) -> None:
    """Keeps a prefill of some (group, row, prompt), if others leave room."""
    size = _bytes(state)
    if size > self._most_bytes:
      return
    for prefill in [p for p in self._states if p not in self._held]:
      if self._bytes + size <= self._most_bytes:
        break
      self._drop(prefill)
    if self._bytes + size > self._most_bytes:
      return
    self._states[self._count] = state
    self._bytes += size
    self._prompts[self._count] = []
    for group, row, prompt in prompts:
      place = Place(self._count, padded, group, row, padded - len(prompt))
      self._prompts[self._count].append((prompt, place))
      self._places.setdefault(prompt, {})[group] = place
      for beginning in _beginnings(prompt):
        self._beginnings[beginning] = place
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
      for beginning in _beginnings(prompt):
        if self._beginnings.get(beginning) == place:
          del self._beginnings[beginning]


def beginning_of(prompt: Prompt, least: int) -> Prompt:
  """The tokens that are compared to find at least so many first ones."""
  return prompt[: -(-least // _STEP) * _STEP]


def _beginnings(prompt: Prompt) -> Iterator[Prompt]:
  return (prompt[:n] for n in range(_STEP, len(prompt) + 1, _STEP))


def _bytes(state: SlotState) -> int:
  return sum(leaf.nbytes for leaf in jax.tree.leaves(state))
