"""Continuous batching: a row that ends gives its place to the next prompt.

`decode.generate` runs a batch until its longest row ends. Here the rows are
slots: the host reads prompts into free ones, lets all decode for a few steps,
collects what ended, and refills. Shapes never change, so that each program is
compiled once: one to read prompts and one to copy them per prompt length, one
to decode. What a request gets depends on nothing but itself.

Each device of a data mesh has slots of its own; all take part in each call.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.sampling import methods
from promptrl_jax.sampling import slots as slots_lib
from promptrl_jax.sampling.prepare import DecodeParams


@dataclasses.dataclass(frozen=True)
class EngineConfig:
  """Shapes of an engine.

  Attributes:
    slots: rows that decode together, rounded up to a multiple of the devices.
    prompt_lengths: tokens that prompts are padded to, ascending; the last one
      is the limit.
    new_tokens: most tokens of any completion.
    steps: most tokens per row between two looks of the host.
    prefill_rows: prompts that a device reads at once; it waits until so many
      slots are free.
  """

  slots: int = 16
  prompt_lengths: tuple[int, ...] = (64, 96, 160, 256, 400)
  new_tokens: int = 80
  steps: int = 8
  prefill_rows: int = 2

  def __post_init__(self):
    for field in ('slots', 'new_tokens', 'steps', 'prefill_rows'):
      if getattr(self, field) < 1:
        raise ValueError(f'{field}={getattr(self, field)}: expected 1 or more')
    lengths = self.prompt_lengths
    if (
      not lengths
      or lengths[0] < 1
      or any(a >= b for a, b in itertools.pairwise(lengths))
    ):
      raise ValueError(
        f'prompt_lengths={lengths}: expected ascending lengths from 1 on'
      )


@dataclasses.dataclass(frozen=True)
class Request:
  """A prompt to complete.

  Attributes:
    prompt: its token ids, at least one.
    limit: most new tokens of each sample.
    temperature: 0 for greedy.
    top_p: nucleus mass in (0, 1].
    seed: of the first sample; sample i has `seed + i`, modulo 2**32. Token t of
      a sample draws from fold_in(key(its seed), t), as in `decode.generate`.
    samples: how many completions; the prompt is read once for all of them.
  """

  prompt: Sequence[int]
  limit: int
  temperature: float = 1.0
  top_p: float = 1.0
  seed: int = 0
  samples: int = 1


@dataclasses.dataclass(frozen=True)
class Sample:
  """A completion.

  Attributes:
    tokens: int32 [T], the stop token included.
    logps: float32 [T], log-probs of `tokens` under the sampled distribution.
    stopped: whether it ended with a stop token, not by its limit.
  """

  tokens: np.ndarray
  logps: np.ndarray
  stopped: bool


@dataclasses.dataclass
class _Job:
  """A sample on its way."""

  index: int  # of the request
  place: int  # among its samples
  drawn: list[tuple[np.ndarray, np.ndarray]]  # tokens and log-probs, by burst


@dataclasses.dataclass
class _Shelf:
  """Prompts that were read together, and their samples that have no slot."""

  prompts: slots_lib.Slots
  length: int  # P
  jobs: list[collections.deque[tuple[int, _Job]]]  # per device, with their row


class Engine:
  """Completes prompts; built by `make_engine`."""

  def __init__(
    self,
    config: TransformerConfig,
    params: DecodeParams,
    mesh: Mesh,
    settings: EngineConfig,
    programs: slots_lib.Programs,
  ):
    self._config = config
    self._params = params
    self._mesh = mesh
    self._settings = settings
    self._programs = programs

  def run(self, requests: Sequence[Request]) -> list[tuple[Sample, ...]]:
    """Completes prompts.

    Returns:
      The samples of each request, in the order of the requests.

    Raises:
      ValueError: a request does not fit the settings or the vocabulary.
    """
    for i, request in enumerate(requests):
      _check(i, request, self._config, self._settings)
    run = _Run(
      self._params, self._mesh, self._settings, self._programs, requests
    )
    run.admit()
    while run.is_busy():
      run.advance()
      run.admit()
    return run.results()

  def compiled_programs(self) -> int:
    """Number of programs compiled so far: constant after warm-up."""
    return self._programs.compiled()


def make_engine(
  config: TransformerConfig,
  method: methods.Sampling,
  params: DecodeParams,
  mesh: Mesh,
  settings: EngineConfig = EngineConfig(),
) -> Engine:
  """An engine whose programs are compiled when they are first used.

  Args:
    config: the model.
    method: filters of the sampled distribution.
    params: parameters of the model, from `prepare` on the same mesh.
    mesh: with the single axis `data`; every device has all parameters.
    settings: shapes.

  Raises:
    ValueError: the mesh splits parameters, or the longest prompt and completion
      exceed the context of the model.
  """
  if mesh.size > mesh.shape.get('data', 0):
    raise ValueError(
      f'mesh {dict(mesh.shape)}: an engine takes a mesh of data alone; sample '
      'with decode.make_generate_fn where parameters are split'
    )
  places = settings.prompt_lengths[-1] + settings.new_tokens
  if places > config.max_positions:
    raise ValueError(
      f'prompt_lengths up to {settings.prompt_lengths[-1]} and '
      f'new_tokens={settings.new_tokens} exceed the context of '
      f'{config.max_positions}'
    )
  programs = slots_lib.make_programs(
    config, method, mesh,
    rows=_local_slots(mesh, settings) * mesh.size,
    places=places,
    most=settings.steps,
  )  # fmt: skip
  return Engine(config, params, mesh, settings, programs)


def _local_slots(mesh: Mesh, settings: EngineConfig) -> int:
  """Slots of each device."""
  return -(-settings.slots // mesh.size)


def _check(
  i: int, request: Request, config: TransformerConfig, settings: EngineConfig
) -> None:
  size, longest = len(request.prompt), settings.prompt_lengths[-1]
  if not 1 <= size <= longest:
    raise ValueError(
      f'request {i}: a prompt of {size} tokens, expected 1 to {longest}, the '
      'last of prompt_lengths'
    )
  if not 0 <= request.limit <= settings.new_tokens:
    raise ValueError(
      f'request {i}: limit={request.limit}, expected 0 to '
      f'new_tokens={settings.new_tokens}'
    )
  try:
    methods.check_row(request.temperature, request.top_p)
  except ValueError as error:
    raise ValueError(f'request {i}: {error}') from None
  if request.samples < 1:
    raise ValueError(
      f'request {i}: samples={request.samples}, expected 1 or more'
    )
  low, high = min(request.prompt), max(request.prompt)
  if low < 0 or high >= config.vocab_size:
    raise ValueError(
      f'request {i}: token {low if low < 0 else high}, expected 0 to '
      f'{config.vocab_size - 1}'
    )


class _Run:
  """Who waits, who sits where, and what they have so far."""

  def __init__(
    self,
    params: DecodeParams,
    mesh: Mesh,
    settings: EngineConfig,
    programs: slots_lib.Programs,
    requests: Sequence[Request],
  ):
    self._params = params
    self._settings = settings
    self._programs = programs
    self._requests = requests
    self._split = NamedSharding(mesh, P('data'))
    self._devices = mesh.size
    self._local = _local_slots(mesh, settings)
    self._group = min(settings.prefill_rows, self._local)
    self._slots = programs.empty_fn()
    count = self._devices * self._local
    zeros = lambda dtype: np.zeros(count, dtype)
    self._rows = slots_lib.Rows(
      first=zeros(np.int32),
      lengths=zeros(np.int32),
      drawn=zeros(np.int32),
      limits=zeros(np.int32),
      temperature=zeros(np.float32),
      top_p=np.ones(count, np.float32),
      seeds=zeros(np.uint32),
    )
    self._sitting: list[_Job | None] = [None] * count
    self._shelves: list[_Shelf] = []
    self._samples: dict[tuple[int, int], Sample] = {}
    self._waiting = {p: collections.deque() for p in settings.prompt_lengths}
    for i, request in enumerate(requests):
      if request.limit:
        self._waiting[self._padded(request)].append(i)
      else:
        for place in range(request.samples):
          self._finish(_Job(i, place, []), False)

  def is_busy(self) -> bool:
    """Whether any row decodes."""
    return any(self._sitting)

  def results(self) -> list[tuple[Sample, ...]]:
    return [
      tuple(self._samples[i, place] for place in range(request.samples))
      for i, request in enumerate(self._requests)
    ]

  def admit(self) -> None:
    """Fills free slots, first with samples of prompts that are read already."""
    while True:
      for shelf in self._shelves:
        self._seat(shelf)
      self._shelves = [shelf for shelf in self._shelves if any(shelf.jobs)]
      idle = [d for d in range(self._devices) if not self._on_shelves(d)]
      room = {d: len(self._free(d)) for d in idle}
      left = sum(map(len, self._waiting.values()))
      # A last prompt or two do not wait for company.
      if not left or max(room.values(), default=0) < min(self._group, left):
        return
      self._shelves.append(self._read(room))

  def advance(self) -> None:
    """Decodes for a few steps and takes out the rows that end."""
    more = any(self._waiting.values())
    enough = [
      self._group if more or self._on_shelves(d) else self._local
      for d in range(self._devices)
    ]
    self._slots, burst = self._programs.advance_fn(
      self._params,
      self._slots,
      *self._put(self._rows, np.asarray(enough, np.int32)),
    )
    burst = jax.device_get(burst)
    counts = burst.mask.sum(axis=1)
    self._rows.drawn[:] += counts
    for row in np.flatnonzero(counts):
      job, count = self._sitting[row], counts[row]
      assert job is not None
      # Copies: a view would keep the whole burst.
      job.drawn.append(
        (burst.tokens[row, :count].copy(), burst.logps[row, :count].copy())
      )
      stopped = bool(burst.stopped[row])
      if stopped or self._rows.drawn[row] >= self._rows.limits[row]:
        self._finish(job, stopped)
        self._sitting[row] = None
        self._rows.drawn[row] = self._rows.limits[row] = 0
        self._rows.top_p[row] = 1.0  # or its last nucleus would cost a sort

  def _put(self, *tree: Any) -> Any:
    # Copies: the host writes to its rows while a device may still read them.
    return jax.device_put(jax.tree.map(np.copy, tree), self._split)

  def _padded(self, request: Request) -> int:
    lengths = self._settings.prompt_lengths
    return next(p for p in lengths if p >= len(request.prompt))

  def _free(self, device: int) -> list[int]:
    """Free slots of a device, counted from its first."""
    start = device * self._local
    sitting = self._sitting[start : start + self._local]
    return [i for i, job in enumerate(sitting) if job is None]

  def _on_shelves(self, device: int) -> bool:
    return any(shelf.jobs[device] for shelf in self._shelves)

  def _read(self, room: dict[int, int]) -> _Shelf:
    """Reads waiting prompts of one padded length, the next one's.

    Args:
      room: free slots of the devices that get prompts; no device gets more
        prompts than it can seat a sample of each.
    """
    length = min(
      (p for p, queue in self._waiting.items() if queue),
      key=lambda p: self._waiting[p][0],
    )
    queue = self._waiting[length]
    count = self._devices * self._group
    tokens = np.zeros((count, length), np.int32)
    mask = np.zeros((count, length), bool)
    jobs = [collections.deque() for _ in range(self._devices)]
    # Prompt by prompt to each device in turn, so that all get about as many.
    for i, device in itertools.product(range(self._group), room):
      if queue and len(jobs[device]) < room[device]:
        index = queue.popleft()
        request = self._requests[index]
        row = device * self._group + i
        tokens[row, length - len(request.prompt) :] = request.prompt
        mask[row, length - len(request.prompt) :] = True
        jobs[device].extend(
          (i, _Job(index, place, [])) for place in range(request.samples)
        )
    prompts = self._programs.read_fn(self._params, *self._put(tokens, mask))
    return _Shelf(prompts, length, jobs)

  def _seat(self, shelf: _Shelf) -> None:
    """Copies prompts of a shelf into free slots, as many as there are."""
    sources = np.zeros((self._devices, self._local), np.int32)
    targets = np.zeros_like(sources)
    counts = np.zeros(self._devices, np.int32)
    for device, jobs in enumerate(shelf.jobs):
      for n, slot in enumerate(self._free(device)[: len(jobs)]):
        source, job = jobs.popleft()
        sources[device, n], targets[device, n] = source, slot
        counts[device] = n + 1
        self._sit(device * self._local + slot, job, shelf.length)
    if counts.any():
      self._slots = self._programs.insert_fn(
        self._slots, shelf.prompts,
        *self._put(sources.ravel(), targets.ravel(), counts),
      )  # fmt: skip

  def _sit(self, row: int, job: _Job, padded: int) -> None:
    request = self._requests[job.index]
    rows = self._rows
    self._sitting[row] = job
    rows.first[row] = padded - len(request.prompt)
    rows.lengths[row] = len(request.prompt)
    rows.drawn[row] = 0
    rows.limits[row] = request.limit
    rows.temperature[row] = request.temperature
    rows.top_p[row] = request.top_p
    rows.seeds[row] = (request.seed + job.place) % 2**32

  def _finish(self, job: _Job, stopped: bool) -> None:
    tokens, logps = zip(*job.drawn, strict=True) if job.drawn else ((), ())
    self._samples[job.index, job.place] = Sample(
      np.concatenate([np.zeros(0, np.int32), *tokens]),
      np.concatenate([np.zeros(0, np.float32), *logps]),
      stopped,
    )
