"""Scores token sequences of any length in batches of a few shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

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


class RowBatches:
  """Runs rows of any length in batches of a few shapes on a mesh."""

  def __init__(self, params: DecodeParams, mesh: Mesh, shapes: EngineConfig):
    self._params = params
    self._shapes = shapes
    self._split = mesh_lib.rows(mesh)
    groups = mesh_lib.num_row_shards(mesh)
    self._rows = shapes.slots_per_group(groups) * groups

  def replace_params(self, params: DecodeParams) -> None:
    """Runs from here on with parameters of the same shapes."""
    self._params = params

  def _batches(self, order: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(order), self._rows):
      yield order[start : start + self._rows]

  def _call(
    self,
    jitted_fn: Callable[..., Any],
    prompts: Sequence[Sequence[int]],
    unused: Sequence[int],
    *rows: np.ndarray,
  ) -> Any:
    """Calls a function of parameters, prompts, their mask and further rows.

    The rows without a prompt have that of `unused`.
    """
    length = self._shapes.padded(max(map(len, prompts)))
    padding = [unused] * (self._rows - len(prompts))
    placed = jax.device_put(
      (*pad_left([*prompts, *padding], length, 0), *rows), self._split
    )
    return jax.device_get(jitted_fn(self._params, *placed))


class BatchScorer(RowBatches):
  """Log-probs of completions at temperature 1 without filters."""

  def __init__(
    self,
    config: LanguageModelConfig,
    params: DecodeParams,
    mesh: Mesh,
    shapes: EngineConfig,
  ):
    super().__init__(params, mesh, shapes)
    model = make_model(config, shapes.prompt_limit, shapes.new_tokens)
    self._score_fn = make_score_fn(model, Sampling(), mesh)

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
    for places in self._batches(order):
      rows = self._batch(
        [prompts[i] for i in places], [texts[i] for i in places]
      )
      for i, row in zip(places, rows, strict=False):
        logps[i] = row[: len(texts[i])]
    return logps

  def _batch(
    self, prompts: list[Sequence[int]], texts: list[Sequence[int]]
  ) -> np.ndarray:
    width = _LEAST_LENGTH
    while width < max(map(len, texts)):
      width *= 2
    completions = np.zeros((self._rows, width), np.int32)
    completion_mask = np.zeros((self._rows, width), bool)
    for i, text in enumerate(texts):
      completions[i, : len(text)] = text
      completion_mask[i, : len(text)] = True
    ones = np.ones(self._rows, np.float32)
    # An unused row has a prompt of one token and no text.
    return self._call(
      self._score_fn, prompts, (0,), completions, completion_mask, ones
    )
