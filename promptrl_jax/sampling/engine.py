"""Continuous batching: a slot whose completion ends takes the next prompt.

A padded batch would run until its longest row ends. Here the host prefills
prompts, inserts them into free batch slots, lets all slots decode for a few
steps, collects the completions that ended, and refills their slots (Orca, OSDI
2022). There are few shapes, and each program is compiled once: one prefill and
one insert per prompt length, and one decode per number of slots and of cache
blocks that a run needs. A sample depends on nothing but its own prompt and
parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.models import cache as cache_lib
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.encoder_decoder_config import LanguageModelConfig
from promptrl_jax.sampling import methods
from promptrl_jax.sampling.model import Model, make_model
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

_FEWEST_SLOTS = 4  # of a group, at the end of a run


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
    self._sizes = _sizes(model, params, config.slots_per_group(self._groups))

  def run(self, requests: Sequence[EngineRequest]) -> list[tuple[Sample, ...]]:
    """Returns the samples of each request, one per `SamplingParams`.

    Raises:
      ValueError: a request does not fit the shapes or the vocabulary.
    """
    check(requests, self.model.config.vocab_size, self.config)
    scheduler = Scheduler(
      requests, self.config, self._groups, self._sizes, self._cache
    )
    blocks = self._blocks(requests)
    slots = self.programs.empty_fn(blocks, scheduler.size)
    prefilled = [
      (prompts, self._cache.state(prefill))
      for prefill, prompts in scheduler.reused.items()
    ]
    while True:
      slots = self._fill(scheduler, slots, prefilled)
      if not scheduler.is_running():
        return scheduler.results()
      while (moved := scheduler.shrink()) is not None:
        fewer = self.programs.empty_fn(blocks, scheduler.size)
        slots = self.programs.insert_fn(fewer, slots, *self._put(*moved))
      slots, completions = self.programs.decode_fn(
        self._params, slots, *self._put(*scheduler.next_decode())
      )
      scheduler.record(jax.device_get(completions))

  def replace_params(self, params: DecodeParams) -> None:
    """Samples from here on with parameters of the same shapes."""
    self._params = params
    self._cache.clear()

  def compiled_programs(self) -> int:
    """Number of programs compiled so far: constant after warm-up."""
    return self.programs.compiled()

  def _fill(
    self,
    scheduler: Scheduler,
    slots: SlotState,
    prefilled: list[tuple[PrefilledPrompts, SlotState]],
  ) -> SlotState:
    """Fills free slots, first with completions of prompts already prefilled."""
    while True:
      for waiting, prompts in prefilled:
        assignments = scheduler.assign(waiting)
        if assignments is not None:
          copies = self._put(*assignments)
          slots = self.programs.insert_fn(slots, prompts, *copies)
      prefilled[:] = [pair for pair in prefilled if any(pair[0].waiting)]
      job = scheduler.next_prefill()
      if job is None:
        return slots
      waiting, *rows = job
      prompts = self.programs.prefill_fn(self._params, *self._put(*rows))
      self._cache.add(prompts, waiting.prompt_length, waiting.prompts)
      prefilled.append((waiting, prompts))

  def _blocks(self, requests: Sequence[EngineRequest]) -> int:
    """Cache blocks of a slot: as few as the longest prompt needs.

    Attention costs as much as the blocks, not as the tokens in them.
    """
    longest = max((len(r.prompt) for r in requests), default=1)
    return self.model.blocks(self.config.padded(longest))

  def _put(self, *tree: Any) -> Any:
    # Copies: the host writes to its rows while a device may still read them.
    return jax.device_put(jax.tree.map(np.copy, tree), self._split)


def _sizes(model: Model, params: DecodeParams, most: int) -> tuple[int, ...]:
  """Numbers of slots that a group decodes with, the largest first.

  A step costs as much as the slots, not as the completions in them: the last
  completions of a run are decoded with fewer, if that changes no bit of them.
  On accelerators a step of a small batch costs as much as one of a large one.
  """
  config, sizes = model.config, [most]
  if (
    isinstance(config, TransformerConfig)
    and config.norm == 'rms'
    and config.kv_cache != 'int8'
    and config.head_size % cache_lib.MULTIPLE == 0
    and params.is_row_wise
  ):
    while sizes[-1] >= 2 * _FEWEST_SLOTS:
      sizes.append(sizes[-1] // 2)
  return tuple(sizes)


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
  programs = make_programs(model, method, mesh)
  return Engine(model, params, mesh, shapes, programs)
