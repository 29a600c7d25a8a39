"""Batches of an encoder-decoder, behind the interface of an `Engine`.

Its prompts live in caches of their own, so rows are not refilled: draws are
sorted by the length of their prompts and run in batches of as many rows as an
engine would have slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from promptrl_jax.models.encoder_decoder_config import EncoderDecoderConfig
from promptrl_jax.models.tokenizer import pad_left
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling import encoder_decoder, methods
from promptrl_jax.sampling.requests import (
  Draw,
  EngineConfig,
  Request,
  Sample,
  check,
)
from promptrl_jax.sampling.seating import rows_of_a_group


class Batches:
  """Answers prompts."""

  def __init__(
    self,
    config: EncoderDecoderConfig,
    method: methods.Sampling,
    params: Any,
    mesh: Mesh,
    settings: EngineConfig = EngineConfig(),
  ):
    """Compiles nothing yet.

    Args:
      config: the model.
      method: filters of the sampled distribution.
      params: its parameters, on the mesh.
      mesh: rows are split over its axes `data` and `fsdp`.
      settings: shapes; `steps` and `prefill_rows` have no meaning here.
    """
    self._config = config
    self._params = params
    self._settings = settings
    self._split = mesh_lib.rows(mesh)
    groups = mesh_lib.num_row_shards(mesh)
    self._rows = rows_of_a_group(settings, groups) * groups
    self._generate_fn = encoder_decoder.make_generate_fn(
      config, method, settings.new_tokens, mesh
    )

  def run(self, requests: Sequence[Request]) -> list[tuple[Sample, ...]]:
    """Answers prompts; as `Engine.run`, and each draw costs an encoding."""
    check(requests, self._config.vocab_size, self._settings)
    samples: dict[tuple[int, int], Sample] = {}
    jobs = [
      (i, place)
      for i, request in enumerate(requests)
      for place in range(len(request.draws))
    ]
    jobs.sort(key=lambda job: len(requests[job[0]].prompt))
    for start in range(0, len(jobs), self._rows):
      some = jobs[start : start + self._rows]
      found = self._run(
        [requests[i].prompt for i, _ in some],
        [requests[i].draws[place] for i, place in some],
      )
      samples.update(zip(some, found, strict=True))
    return [
      tuple(samples[i, place] for place in range(len(request.draws)))
      for i, request in enumerate(requests)
    ]

  def compiled_programs(self) -> int:
    """Number of programs compiled so far: constant after warm-up."""
    return self._generate_fn._cache_size()

  def _run(
    self, prompts: list[Sequence[int]], draws: list[Draw]
  ) -> list[Sample]:
    """One batch."""
    length = self._settings.padded(max(map(len, prompts)))
    unused = self._rows - len(draws)
    tokens, mask = pad_left([*prompts, *[()] * unused], length, 0)
    rest = [Draw(limit=0)] * unused
    column = lambda values, dtype: np.asarray(list(values), dtype)
    rows = [*draws, *rest]
    args = jax.device_put(
      (
        tokens,
        mask,
        column((d.temperature for d in rows), np.float32),
        column((d.seed % 2**32 for d in rows), np.uint32),
        column((d.limit for d in rows), np.int32),
        column((d.top_p for d in rows), np.float32),
      ),
      self._split,
    )
    out = jax.device_get(self._generate_fn(self._params, *args))
    return [
      _sample(draw, out.tokens[i], out.logps[i], out.mask[i], out.stopped[i])
      for i, draw in enumerate(draws)
    ]


def _sample(
  draw: Draw,
  tokens: np.ndarray,
  logps: np.ndarray,
  mask: np.ndarray,
  stopped: bool,
) -> Sample:
  kept = draw.watch(tokens[mask]) if draw.watch else None
  count = mask.sum() if kept is None else kept
  return Sample(
    tokens[:count], logps[:count], bool(stopped) or kept is not None
  )
