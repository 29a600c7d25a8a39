"""The slot scheduler: which completions wait, and which batch slot each has.

It runs on the host, on arrays of NumPy. Slots come in groups: the devices of a
group decode together, and a prompt that a group has prefilled can only be
inserted into slots of that group.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from promptrl_jax.models.tokenizer import pad_left
from promptrl_jax.sampling.loop import Completions
from promptrl_jax.sampling.model import InputBatch
from promptrl_jax.sampling.prompt_cache import (
  Beginning,
  Place,
  Prompt,
  PromptCache,
)
from promptrl_jax.sampling.requests import (
  EngineConfig,
  EngineRequest,
  Sample,
  SamplingParams,
)
from promptrl_jax.sampling.waiting import WaitingPrompts

_STEPS_OF_THE_LAST = 16  # of a call, while slots could be given up


@dataclasses.dataclass
class _Sequence:
  """A completion in progress."""

  request: int  # index of its request
  index: int  # among the completions of that request
  params: SamplingParams
  tokens: list[np.ndarray] = dataclasses.field(default_factory=list)
  logps: list[np.ndarray] = dataclasses.field(default_factory=list)
  certainty: list[np.ndarray] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class PrefilledPrompts:
  """Prompts of one prefill, and their completions that wait for a slot.

  Attributes:
    waiting: a queue per group of (row of the prefill, completion).
    prompts: group, row and tokens of each prompt that was not prefilled before.
  """

  prompt_length: int
  waiting: list[collections.deque[tuple[int, _Sequence]]]
  prompts: list[tuple[int, int, Prompt]] = dataclasses.field(
    default_factory=list
  )


@dataclasses.dataclass(frozen=True)
class PrefillJob:
  """What a prefill reads.

  Attributes:
    tokens: [groups * A, P], left-padded.
    mask: False on padding.
    end: how many of the last tokens are read.
    beginnings: of each prompt, where the tokens before them are known; None for
      rows of padding, or if all of P is read.
  """

  prefilled: PrefilledPrompts
  tokens: np.ndarray
  mask: np.ndarray
  end: int
  beginnings: list[Beginning | None]


class Scheduler:
  """Assigns the completions of one `Engine.run` to batch slots.

  Attributes:
    size: slots of a group.
    batch: what each slot holds, [groups * size].
    reused: by the number of an earlier prefill, the completions of its prompts.
  """

  def __init__(
    self,
    requests: Sequence[EngineRequest],
    config: EngineConfig,
    groups: int,
    sizes: Sequence[int] = (),
    cache: PromptCache | None = None,
    reads_ends: bool = False,
  ):
    """Puts the completions into queues.

    Args:
      groups: of devices.
      sizes: numbers of slots of a group to choose from, the largest first;
        empty: that of the config alone.
      cache: prompts that were prefilled before.
      reads_ends: whether the end of a prompt may be read alone, see
        `EngineConfig.ends`.
    """
    self._requests = requests
    self._config = config
    self._groups = groups
    total = sum(len(request.samples) for request in requests)
    sizes = list(sizes) or [config.slots_per_group(groups)]
    # From the smallest size that holds all completions at once, if one does.
    while len(sizes) > 1 and groups * sizes[1] >= total:
      sizes.pop(0)
    self._sizes = sizes
    # Rows of padding cost as much as prompts: one that is alone is read alone.
    self._at_once = min(config.prefill_rows_per_group(groups), self.size)
    self._free_all()
    self._unassigned = [0] * groups  # completions of prefilled prompts
    self._ended: list[tuple[int, int, Sample]] = []
    self._waiting: WaitingPrompts[list[_Sequence]] = WaitingPrompts(
      config, cache if reads_ends else None
    )
    self.reused: dict[int, PrefilledPrompts] = {}
    for i, bundles in itertools.groupby(
      self._bundles(), key=lambda sequences: sequences[0].request
    ):
      prompt = tuple(requests[i].prompt)
      places = dict(cache.places(prompt)) if cache else {}
      for sequences in bundles:
        if places:
          group = min(places, key=self._unassigned.__getitem__)
          self._reuse(places.pop(group), sequences)
        else:
          self._waiting.add(prompt, sequences)

  @property
  def size(self) -> int:
    return self._sizes[0]

  def is_running(self) -> bool:
    """Whether any slot decodes."""
    return any(self._running)

  def take(self) -> list[tuple[int, int, Sample]]:
    """What has ended since the last call: request, its sample, sample."""
    taken, self._ended = self._ended, []
    return taken

  def next_decode(self) -> tuple[InputBatch, np.ndarray, np.ndarray]:
    """Arguments of the next `programs.decode`.

    The last two, int32 [groups], are the number of free slots that ends the
    call, and its most steps.
    """
    config = self._config
    watched = any(s and s.params.watch for s in self._running)
    steps = config.steps if watched else config.new_tokens
    more = bool(self._waiting)
    enough_free = []
    for group, unassigned in enumerate(self._unassigned):
      free = len(self._free(group))
      if more or unassigned:
        enough_free.append(max(self._at_once, free + 1))
      elif len(self._sizes) > 1 and self.size - free > self._sizes[1]:
        enough_free.append(self.size - self._sizes[1])
      else:
        enough_free.append(self.size)
    if len(self._sizes) > 1 and not more:
      # A group with few completions must not run on while others could shrink.
      steps = min(steps, _STEPS_OF_THE_LAST)
    return (
      self.batch,
      np.asarray(enough_free, np.int32),
      np.full(self._groups, steps, np.int32),
    )

  def shrink(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Moves the last completions to fewer slots.

    Returns:
      Arguments of `programs.insert` of the slots so far into fewer ones, as of
      `assign`; None while they are needed, or are the fewest already.
    """
    if len(self._sizes) < 2 or self._waiting or any(self._unassigned):
      return None
    used = [
      [i for i, s in enumerate(self._of_group(group)) if s is not None]
      for group in range(self._groups)
    ]
    if max(map(len, used)) > self._sizes[1]:
      return None
    batch, running, size = self.batch, self._running, self.size
    self._sizes.pop(0)
    self._free_all()
    sources = np.zeros((self._groups, self.size), np.int32)
    targets = np.zeros_like(sources)
    counts = np.array(list(map(len, used)), np.int32)
    for group, slots in enumerate(used):
      for target, source in enumerate(slots):
        sources[group, target], targets[group, target] = source, target
        old, new = group * size + source, group * self.size + target
        self._running[new] = running[old]
        for before, after in zip(
          jax.tree.leaves(batch), jax.tree.leaves(self.batch), strict=True
        ):
          after[new] = before[old]
    return sources.ravel(), targets.ravel(), counts

  def next_prefill(self) -> PrefillJob | None:
    """The prompts to prefill now, of one padded length: that of the next one.

    Returns:
      None if no prompt waits or too few slots are free. No group gets more
      prompts than it has slots to start one completion of each, and none gets
      prompts while completions of earlier ones wait for a slot.
    """
    idle = [g for g in range(self._groups) if not self._unassigned[g]]
    room = {g: len(self._free(g)) for g in idle}
    left = len(self._waiting)
    most = self._groups * self._at_once
    useful = sum(min(free, self._at_once) for free in room.values())
    # Rows of padding cost as much as prompts; the last prompts must not wait.
    if not left or useful < min(left, most // 2 + 1):
      return None
    length, end, taken = self._waiting.take(useful)
    queue = collections.deque(taken)
    prompts: list[Sequence[int]] = [()] * most
    beginnings: list[Beginning | None] = [None] * most
    prefilled = PrefilledPrompts(
      length, [collections.deque() for _ in range(self._groups)]
    )
    # Prompt by prompt to each group in turn, so that all get about as many.
    for i, group in itertools.product(range(self._at_once), room):
      if queue and i < room[group]:
        prompt, sequences, beginning = queue.popleft()
        row = group * self._at_once + i
        prompts[row], beginnings[row] = prompt, beginning
        prefilled.prompts.append((group, i, prompt))
        prefilled.waiting[group].extend((i, s) for s in sequences)
        self._unassigned[group] += len(sequences)
    return PrefillJob(prefilled, *pad_left(prompts, length, 0), end, beginnings)

  def assign(
    self, prefilled: PrefilledPrompts
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Gives free slots to completions of prefilled prompts.

    Returns:
      Arguments of `programs.insert`, all int32: rows of the prefilled prompts
      and slots of their group [groups * slots], and how many of either are
      valid in each group; None without a free slot.
    """
    sources = np.zeros((self._groups, self.size), np.int32)
    targets = np.zeros_like(sources)
    counts = np.zeros(self._groups, np.int32)
    for group, waiting in enumerate(prefilled.waiting):
      for n, slot in enumerate(self._free(group)[: len(waiting)]):
        source, sequence = waiting.popleft()
        sources[group, n], targets[group, n] = source, slot
        counts[group] = n + 1
        self._start(group * self.size + slot, sequence, prefilled.prompt_length)
      self._unassigned[group] -= int(counts[group])
    if not counts.any():
      return None
    return sources.ravel(), targets.ravel(), counts

  def record(self, completions: Completions) -> None:
    """Keeps the tokens of a decode call, and frees the slots that ended."""
    tokens = np.asarray(completions.tokens)
    logps = np.asarray(completions.logps)
    measured = completions.certainty
    certainty = None
    if measured is not None:
      certainty = np.stack([measured.logps, measured.entropies])
    counts = np.sum(completions.mask, axis=1)
    self.batch.generated[:] += counts
    for slot in np.flatnonzero(counts):
      sequence, count = self._running[slot], counts[slot]
      assert sequence is not None
      stopped, watch = bool(completions.stopped[slot]), sequence.params.watch
      kept = watch(tokens[slot, :count]) if watch else None
      if kept is not None:
        count, stopped = kept, True
      # Copies: a view would keep the arrays of the whole call.
      sequence.tokens.append(tokens[slot, :count].copy())
      sequence.logps.append(logps[slot, :count].copy())
      if certainty is not None:
        sequence.certainty.append(certainty[:, slot, :count].copy())
      if stopped or self.batch.generated[slot] >= self.batch.max_tokens[slot]:
        self._finish(sequence, stopped)
        self._running[slot] = None
        self.batch.generated[slot] = self.batch.max_tokens[slot] = 0
        # A nucleus would go on costing a search in every step.
        self.batch.top_p[slot] = 1.0

  def _bundles(self) -> Iterator[list[_Sequence]]:
    """Completions of a prompt that one group is to generate."""
    total = sum(len(request.samples) for request in self._requests)
    most = max(1, math.ceil(total / self._groups))  # so that all have work
    for i, request in enumerate(self._requests):
      sequences = []
      for index, params in enumerate(request.samples):
        sequence = _Sequence(i, index, params)
        if params.max_tokens:
          sequences.append(sequence)
        else:
          self._finish(sequence, False)
      for start in range(0, len(sequences), most):
        yield sequences[start : start + most]

  def _reuse(self, place: Place, sequences: list[_Sequence]) -> None:
    """Lets completions wait for slots beside a prompt of an earlier prefill."""
    prefilled = self.reused.setdefault(
      place.prefill,
      PrefilledPrompts(
        place.padded, [collections.deque() for _ in range(self._groups)]
      ),
    )
    prefilled.waiting[place.group].extend((place.row, s) for s in sequences)
    self._unassigned[place.group] += len(sequences)

  def _free(self, group: int) -> list[int]:
    """Free slots of a group, counted from its first."""
    running = self._of_group(group)
    return [i for i, sequence in enumerate(running) if sequence is None]

  def _of_group(self, group: int) -> list[_Sequence | None]:
    return self._running[group * self.size : (group + 1) * self.size]

  def _free_all(self) -> None:
    count = self._groups * self.size
    self.batch = InputBatch.free(count)
    self._running: list[_Sequence | None] = [None] * count

  def _start(self, slot: int, sequence: _Sequence, padded: int) -> None:
    size = len(self._requests[sequence.request].prompt)
    batch, params = self.batch, sequence.params
    self._running[slot] = sequence
    batch.prompt_start[slot] = padded - size
    batch.prompt_lengths[slot] = size
    batch.generated[slot] = 0
    batch.max_tokens[slot] = params.max_tokens
    batch.temperature[slot] = params.temperature
    batch.top_p[slot] = params.top_p
    batch.seeds[slot] = params.seed % 2**32

  def _finish(self, sequence: _Sequence, stopped: bool) -> None:
    sample = Sample(
      np.concatenate([np.zeros(0, np.int32), *sequence.tokens]),
      np.concatenate([np.zeros(0, np.float32), *sequence.logps]),
      stopped,
      np.concatenate(sequence.certainty, axis=1)
      if sequence.certainty
      else None,
    )
    self._ended.append((sequence.request, sequence.index, sample))
