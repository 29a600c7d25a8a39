"""Scores token sequences of any length in batches of a few shapes.

This is the host side of `score`: rows are padded to the lengths of an engine,
so that a bounded number of programs is compiled, and the log-probs of a row
depend on that row alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh

from promptrl_jax.models.encoder_decoder_config import LanguageModelConfig
from promptrl_jax.models.tokenizer import pad_left
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.model import make_model
from promptrl_jax.sampling.prepare import DecodeParams
from promptrl_jax.sampling.requests import EngineConfig
from promptrl_jax.sampling.score import make_score_fn

_LEAST_LENGTH = 8  # Of a padded text; longer ones double it.


class BatchScorer:
  """Log-probs of completions at temperature 1 without filters."""

  def __init__(
    self,
    config: LanguageModelConfig,
    params: DecodeParams,
    mesh: Mesh,
    shapes: EngineConfig,
  ):
    """Builds the scorer; programs are compiled when they are first used.

    Args:
      config: the model.
      params: its parameters, from `prepare`.
      mesh: devices that rows are split over.
      shapes: a scored text may have as many tokens as a completion.
    """
    self._params = params
    self._shapes = shapes
    self._split = mesh_lib.rows(mesh)
    groups = mesh_lib.num_row_shards(mesh)
    self._rows = shapes.slots_per_group(groups) * groups
    model = make_model(config, shapes.prompt_limit, shapes.new_tokens)
    self._score_fn = make_score_fn(model, Sampling(), mesh)

  def replace_params(self, params: DecodeParams) -> None:
    """Scores from here on with parameters of the same shapes."""
    self._params = params

  def run(
    self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]
  ) -> list[np.ndarray]:
    """Log-probs of the tokens of each text after its prompt, float32 [N].

    Raises:
      ValueError: a text is empty or too long.
    """
    for i, text in enumerate(texts):
      if not 1 <= len(text) <= self._shapes.new_tokens:
        raise ValueError(
          f'text {i} has {len(text)} tokens: expected 1 to '
          f'{self._shapes.new_tokens}, the limit of completions'
        )
    logps: list[np.ndarray] = [np.zeros(0)] * len(prompts)
    order = sorted(
      range(len(prompts)), key=lambda i: (len(texts[i]), len(prompts[i]))
    )
    for start in range(0, len(order), self._rows):
      places = order[start : start + self._rows]
      rows = self._batch(
        [prompts[i] for i in places], [texts[i] for i in places]
      )
      for i, row in zip(places, rows, strict=False):
        logps[i] = row[: len(texts[i])]
    return logps

  def _batch(
    self, prompts: list[Sequence[int]], texts: list[Sequence[int]]
  ) -> np.ndarray:
    unused = self._rows - len(prompts)
    length = self._shapes.padded(max(map(len, prompts)))
    # An unused row has a prompt of one token and no text.
    tokens, mask = pad_left([*prompts, *[(0,)] * unused], length, 0)
    width = _LEAST_LENGTH
    while width < max(map(len, texts)):
      width *= 2
    completions = np.zeros((self._rows, width), np.int32)
    completion_mask = np.zeros((self._rows, width), bool)
    for i, text in enumerate(texts):
      completions[i, : len(text)] = text
      completion_mask[i, : len(text)] = True
    ones = np.ones(self._rows, np.float32)
    rows = jax.device_put(
      (tokens, mask, completions, completion_mask, ones), self._split
    )
    return np.asarray(jax.device_get(self._score_fn(self._params, *rows)))
