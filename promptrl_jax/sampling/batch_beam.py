"""Beam search over prompts of any length in batches of a few shapes."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh

from promptrl_jax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  LanguageModelConfig,
)
from promptrl_jax.models.tokenizer import pad_left
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling.beam import Beams, make_beam_fn
from promptrl_jax.sampling.prepare import DecodeParams
from promptrl_jax.sampling.requests import EngineConfig, Sample


class BeamSearcher:
  """Finds the best completion of each prompt; the host side of `beam`."""

  def __init__(
    self,
    config: LanguageModelConfig,
    beams: Beams,
    params: DecodeParams,
    mesh: Mesh,
    shapes: EngineConfig,
  ):
    """Builds the search; programs are compiled when they are first used.

    Args:
      config: the model.
      beams: width and penalties.
      params: parameters of the model, from `prepare`.
      mesh: devices that rows are split over.
      shapes: prompt lengths, most new tokens, and rows of a batch (slots).

    Raises:
      ValueError: the model is no encoder-decoder.
    """
    if not isinstance(config, EncoderDecoderConfig):
      raise ValueError(
        f'beams={beams.num_beams}: beam search needs an encoder-decoder, and '
        f'{config.family} is a causal model; expected 1 beam'
      )
    self._params = params
    self._shapes = shapes
    self._split = mesh_lib.rows(mesh)
    groups = mesh_lib.num_row_shards(mesh)
    self._rows = shapes.slots_per_group(groups) * groups
    self._search_fn = make_beam_fn(config, beams, shapes.new_tokens, mesh)

  def replace_params(self, params: DecodeParams) -> None:
    """Searches from here on with parameters of the same shapes."""
    self._params = params

  def compiled_programs(self) -> int:
    """Number of programs compiled so far: at most one per prompt length."""
    return self._search_fn._cache_size()

  def run(
    self, prompts: Sequence[Sequence[int]], limits: Sequence[int]
  ) -> list[Sample]:
    """The best completion of each prompt, with log-probs at temperature 1.

    Args:
      prompts: token ids, 1 to the longest of the prompt lengths.
      limits: most new tokens of each, 0 for an empty completion.
    """
    nothing = Sample(np.zeros(0, np.int32), np.zeros(0, np.float32), False)
    samples = [nothing] * len(prompts)
    order = sorted(
      (i for i, limit in enumerate(limits) if limit),
      key=lambda i: len(prompts[i]),
    )
    for start in range(0, len(order), self._rows):
      places = order[start : start + self._rows]
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
    length = self._shapes.padded(max(map(len, prompts)))
    tokens, mask = pad_left([*prompts, *[()] * unused], length, 0)
    most = np.asarray([*limits, *[1] * unused], np.int32)
    rows = jax.device_put((tokens, mask, most), self._split)
    out, _ = jax.device_get(self._search_fn(self._params, *rows))
    return [
      Sample(
        out.tokens[i][out.mask[i]], out.logps[i][out.mask[i]], bool(stopped)
      )
      for i, stopped in enumerate(out.stopped[: len(prompts)])
    ]
