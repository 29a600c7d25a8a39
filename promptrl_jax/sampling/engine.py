"""Continuous batching: a row that ends gives its place to the next prompt.

`decode.generate` runs a batch until its longest row ends. Here the rows are
slots: the host reads prompts into free ones, lets all decode for a few steps,
collects what ended, and refills (Orca, OSDI 2022). Shapes never change, so that
each program is compiled once: one to read prompts and one to copy them per
prompt length, one to decode per number of blocks that the cache of a run needs.
What a draw gets depends on nothing but itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.models.encoder_decoder_config import LanguageModelConfig
from promptrl_jax.sampling import methods, slot_models
from promptrl_jax.sampling import slots as slots_lib
from promptrl_jax.sampling.prepare import DecodeParams
from promptrl_jax.sampling.requests import EngineConfig, Request, Sample, check
from promptrl_jax.sampling.seating import Seating, Shelf, rows_of_a_group


class Engine:
  """Completes prompts; built by `make_engine`."""

  def __init__(
    self,
    model: slots_lib.Model,
    params: DecodeParams,
    mesh: Mesh,
    settings: EngineConfig,
    programs: slots_lib.Programs,
  ):
    self._model = model
    self._params = params
    self._mesh = mesh
    self._settings = settings
    self._programs = programs
    self._split = NamedSharding(mesh, P('data'))

  def run(self, requests: Sequence[Request]) -> list[tuple[Sample, ...]]:
    """Completes prompts.

    Returns:
      The samples of each request, one per draw, in the order of the requests.

    Raises:
      ValueError: a request does not fit the settings or the vocabulary.
    """
    check(requests, self._model.config.vocab_size, self._settings)
    seating = Seating(requests, self._settings, self._mesh.shape['data'])
    slots = self._programs.empty_fn(self._blocks(requests))
    shelves: list[tuple[Shelf, slots_lib.Slots]] = []
    while True:
      slots = self._admit(seating, slots, shelves)
      if not seating.is_busy():
        return seating.results()
      slots, burst = self._programs.advance_fn(
        self._params, slots, *self._put(*seating.burst())
      )
      seating.take(jax.device_get(burst))

  def replace_params(self, params: DecodeParams) -> None:
    """Samples from here on with parameters of the same shapes.

    Args:
      params: from `prepare` on the mesh of the engine.
    """
    self._params = params

  def compiled_programs(self) -> int:
    """Number of programs compiled so far: constant after warm-up."""
    return self._programs.compiled()

  def _admit(
    self,
    seating: Seating,
    slots: slots_lib.Slots,
    shelves: list[tuple[Shelf, slots_lib.Slots]],
  ) -> slots_lib.Slots:
    """Fills free rows, first with draws of prompts that are read already."""
    while True:
      for shelf, prompts in shelves:
        copies = seating.seat(shelf)
        if copies is not None:
          slots = self._programs.insert_fn(
            slots, prompts,
            *self._put(copies.sources, copies.targets, copies.counts),
          )  # fmt: skip
      shelves[:] = [pair for pair in shelves if any(pair[0].jobs)]
      read = seating.next_prompts()
      if read is None:
        return slots
      shelf, *rows = read
      prompts = self._programs.read_fn(self._params, *self._put(*rows))
      shelves.append((shelf, prompts))

  def _blocks(self, requests: Sequence[Request]) -> int:
    """Blocks of a row: attention costs as much as the longest prompt needs."""
    longest = max((len(r.prompt) for r in requests), default=1)
    return self._model.blocks(self._settings.padded(longest))

  def _put(self, *tree: Any) -> Any:
    # Copies: the host writes to its rows while a device may still read them.
    return jax.device_put(jax.tree.map(np.copy, tree), self._split)


def make_engine(
  config: LanguageModelConfig,
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
    mesh: with an axis `data`, over which rows are split in groups. A group is
      one device, which runs a loop of its own, or, with the axes `fsdp` and
      `tensor`, several that share the parameters and decode the same rows; then
      all groups run one loop together.
    settings: shapes.

  Raises:
    ValueError: the longest prompt and completion exceed the context of the
      model.
  """
  model = slot_models.of(
    config, settings.prompt_lengths[-1], settings.new_tokens
  )
  programs = slots_lib.make_programs(
    model, method, mesh,
    rows=rows_of_a_group(settings, mesh.shape['data']),
    most=settings.new_tokens,
  )  # fmt: skip
  return Engine(model, params, mesh, settings, programs)
