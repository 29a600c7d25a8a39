"""Continuous batching: a slot whose completion ends takes the next prompt.

A padded batch would run until its longest row ends. Here the host prefills
prompts, inserts them into free batch slots, lets all slots decode for a few
steps, collects the completions that ended, and refills their slots (Orca, OSDI
2022). There are few shapes, and each program is compiled once: one prefill per
prompt length, and one for each length of its end where the tokens before are
known; one insert per prompt length, and one decode per number of slots and of
cache blocks that a run needs. A sample depends on nothing but its own prompt
and parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.models import native
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.encoder_decoder_config import LanguageModelConfig
from promptrl_jax.sampling import methods
from promptrl_jax.sampling.model import Model, make_model
from promptrl_jax.sampling.packing import pack
from promptrl_jax.sampling.prepare import DecodeParams
from promptrl_jax.sampling.programs import Programs, SlotState, make_programs
from promptrl_jax.sampling.prompt_cache import PromptCache
from promptrl_jax.sampling.requests import (
  EngineConfig,
  EngineRequest,
  Sample,
  check,
)
from promptrl_jax.sampling.scheduler import PrefilledPrompts, Scheduler

_FEW_SLOTS = 4  # of a group, at the end of a run; then one

# Prompts, their state, and the number of their prefill if it is an earlier one.
_Prefilled = tuple[PrefilledPrompts, SlotState, int | None]


class Engine:
  """Completes prompts of token ids; built by `make_engine`."""

  def __init__(
    self,
    model: Model,
    params: DecodeParams,
    mesh: Mesh,
    config: EngineConfig,
    programs: Programs,
  ):
    self.model = model
    self.programs = programs
    self.config = config
    self._params = params
    self._groups = mesh.shape['data']
    self._split = NamedSharding(mesh, P('data'))
    self._cache = PromptCache(config.prompt_cache_bytes)
    self._is_row_wise = _is_row_wise(model, params)
    most = config.slots_per_group(self._groups)
    self._sizes = _sizes(most) if self._is_row_wise else (most,)
    # On CPU, the pages of new slots took a quarter of a training's time. On an
    # accelerator they cost nothing, and a trainer needs them between the runs.
    self._keeps_slots = mesh.devices.flat[0].platform == 'cpu'
    self._kept: dict[int, SlotState] = {}  # slots of the last run, by size
    self._blocks = 0  # of their caches

  def run(self, requests: Sequence[EngineRequest]) -> list[tuple[Sample, ...]]:
    """Returns the samples of each request, one per `SamplingParams`.

    Raises:
      ValueError: a request does not fit the shapes or the vocabulary.
    """
    samples = {
      (request, index): sample
      for request, index, sample in self.run_each(requests)
    }
    return [
      tuple(samples[i, index] for index in range(len(request.samples)))
      for i, request in enumerate(requests)
    ]

  def run_each(
    self, requests: Sequence[EngineRequest]
  ) -> Iterator[tuple[int, int, Sample]]:
    """Yields (request, its sample, sample) as they end; see `run`."""
    check(requests, self.model.config.vocab_size, self.config)
    scheduler = Scheduler(
      requests,
      self.config,
      self._groups,
      self._sizes,
      self._cache,
      reads_ends=self._is_row_wise and self.config.prompt_cache_bytes > 0,
    )
    self._set_blocks(requests)
    slots = self._free_slots(scheduler.size)
    self._cache.hold(scheduler.reused)
    prefilled: list[_Prefilled] = [
      (prompts, self._cache.state(prefill), prefill)
      for prefill, prompts in scheduler.reused.items()
    ]
    while True:
      slots = self._fill(scheduler, slots, prefilled)
      if not scheduler.is_running():
        self._keep(scheduler.size, slots)
        yield from scheduler.take()
        return
      size = scheduler.size
      while (moved := scheduler.shrink()) is not None:
        fewer = self._free_slots(scheduler.size)
        fewer = self.programs.insert_fn(fewer, slots, self._copies(*moved))
        self._keep(size, slots)
        slots, size = fewer, scheduler.size
      slots, completions = self.programs.decode_fn(
        self._params, slots, self._rows(*scheduler.next_decode())
      )
      # The devices go on while somebody looks at what has ended.
      yield from scheduler.take()
      scheduler.record(jax.device_get(completions))

  def replace_params(self, params: DecodeParams) -> None:
    """Samples from here on with parameters of the same shapes."""
    self._params = params
    self._cache.clear()
    self._kept.clear()  # Free memory for whoever made the parameters.

  def compiled_programs(self) -> int:
    """Number of programs compiled so far: constant after warm-up."""
    return self.programs.compiled()

  def _fill(
    self,
    scheduler: Scheduler,
    slots: SlotState,
    prefilled: list[_Prefilled],
  ) -> SlotState:
    """Fills free slots, first with completions of prompts already prefilled."""
    while True:
      for waiting, prompts, _ in prefilled:
        assignments = scheduler.assign(waiting)
        if assignments is not None:
          copies = self._copies(*assignments)
          slots = self.programs.insert_fn(slots, prompts, copies)
      for waiting, _, number in prefilled:
        if number is not None and not any(waiting.waiting):
          self._cache.release(number)
      prefilled[:] = [one for one in prefilled if any(one[0].waiting)]
      job = scheduler.next_prefill()
      if job is None:
        return slots
      waiting = job.prefilled
      rows = jax.device_put((job.tokens, job.mask), self._split)
      if known := job.tokens.shape[1] - job.end:
        before = self._cache.copies(known, job.beginnings)
        before = jax.device_put(before, self._split)
        prompts = self.programs.finish_fn(self._params, *rows, before)
      else:
        prompts = self.programs.prefill_fn(self._params, *rows)
      self._cache.add(prompts, waiting.prompt_length, waiting.prompts)
      prefilled.append((waiting, prompts, None))

  def _set_blocks(self, requests: Sequence[EngineRequest]) -> None:
    """Chooses the cache blocks of a slot: those of the longest prompt.

    Attention costs as much as the blocks, not as the tokens in them, unless
    rows are independent: then the most blocks so far serve all runs.
    """
    longest = max((len(r.prompt) for r in requests), default=1)
    blocks = self.model.blocks(self.config.padded(longest))
    if self._is_row_wise:
      blocks = max(blocks, self._blocks)
    if blocks != self._blocks:
      self._kept.clear()
      self._blocks = blocks

  def _free_slots(self, size: int) -> SlotState:
    """Slots of an earlier run, with their old content, or new ones."""
    kept = self._kept.pop(size, None)
    return kept or self.programs.empty_fn(self._blocks, size)

  def _keep(self, size: int, slots: SlotState) -> None:
    if self._keeps_slots:
      self._kept[size] = slots

  def _copies(
    self, sources: np.ndarray, targets: np.ndarray, counts: np.ndarray
  ) -> jax.Array:
    return self._rows((sources, targets), counts)

  def _rows(self, rows: Any, *per_group: np.ndarray) -> jax.Array:
    return jax.device_put(pack(rows, *per_group), self._split)


def _is_row_wise(model: Model, params: DecodeParams) -> bool:
  """Whether the rows beside it change no bit of a row, on this machine."""
  config = model.config
  return (
    isinstance(config, TransformerConfig)
    and config.norm == 'rms'
    and config.kv_cache != 'int8'
    and native.fits(config.head_size, config.dtype)
    and params.is_row_wise
  )


def _sizes(most: int) -> tuple[int, ...]:
  """Numbers of slots that a group decodes with, the largest first.

  A step costs as much as the slots, not as the completions in them: the last
  completions of a run are decoded with fewer, if that changes no bit of them,
  and the last one, or the only one, alone, in half the time of four. On
  accelerators a step of a small batch costs as much as one of a large one.
  """
  sizes = [most]
  while sizes[-1] >= 2 * _FEW_SLOTS:
    sizes.append(sizes[-1] // 2)
  return (*sizes, 1) if most > 1 else (1,)


def make_engine(
  config: LanguageModelConfig,
  method: methods.Sampling,
  params: DecodeParams,
  mesh: Mesh,
  shapes: EngineConfig = EngineConfig(),
) -> Engine:
  """An engine whose programs are compiled when they are first used.

  Args:
    mesh: with an axis `data`, over which slots are split in groups. A group is
      one device, which runs a loop of its own, or, with the axes `fsdp` and
      `tensor`, several that share the parameters and decode the same slots;
      then all groups run one loop together.

  Raises:
    ValueError: the longest prompt and completion exceed the context of the
      model.
  """
  model = make_model(config, shapes.prompt_limit, shapes.new_tokens)
  programs = make_programs(model, method, mesh, shapes.certainty)
  return Engine(model, params, mesh, shapes, programs)
