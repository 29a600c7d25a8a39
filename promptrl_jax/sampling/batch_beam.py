"""Beam search over prompts of any length in batches of a few shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jax.sharding import Mesh

from promptrl_jax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  LanguageModelConfig,
)
from promptrl_jax.sampling.batch_scorer import RowBatches
from promptrl_jax.sampling.beam import Beams, make_beam_fn
from promptrl_jax.sampling.prepare import DecodeParams
from promptrl_jax.sampling.requests import EngineConfig, Sample


class BeamSearcher(RowBatches):
  """Finds the best completion of each prompt; the host side of `beam`."""

  def __init__(
    self,
    config: LanguageModelConfig,
    beams: Beams,
    params: DecodeParams,
    mesh: Mesh,
    shapes: EngineConfig,
  ):
    """Builds the search; a ValueError if the model is no encoder-decoder."""
    if not isinstance(config, EncoderDecoderConfig):
      raise ValueError(
        f'beams={beams.num_beams}: beam search needs an encoder-decoder, and '
        f'{config.family} is a causal model; expected 1 beam'
      )
    super().__init__(params, mesh, shapes)
    self._search_fn = make_beam_fn(config, beams, shapes.new_tokens, mesh)

  def compiled_programs(self) -> int:
    """Number of programs compiled so far: at most one per prompt length."""
    return self._search_fn._cache_size()

  def run(
    self, prompts: Sequence[Sequence[int]], limits: Sequence[int]
  ) -> list[Sample]:
    """The best completion of each prompt, with log-probs at temperature 1."""
    nothing = Sample(np.zeros(0, np.int32), np.zeros(0, np.float32), False)
    samples = [nothing] * len(prompts)
    order = sorted(
      (i for i, limit in enumerate(limits) if limit),
      key=lambda i: len(prompts[i]),
    )
    for places in self._batches(order):
      batch = self._batch(
        [prompts[i] for i in places], [limits[i] for i in places]
      )
      for i, sample in zip(places, batch, strict=True):
        samples[i] = sample
    return samples

  def _batch(
    self, prompts: list[Sequence[int]], limits: list[int]
  ) -> list[Sample]:
    unused = self._rows - len(prompts)
    most = np.asarray([*limits, *[1] * unused], np.int32)
    out, _ = self._call(self._search_fn, prompts, (), most)
    return [
      Sample(
        out.tokens[i][out.mask[i]], out.logps[i][out.mask[i]], bool(stopped)
      )
      for i, stopped in enumerate(out.stopped[: len(prompts)])
    ]
