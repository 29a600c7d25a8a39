"""Log-probs of given texts, in batches of a few shapes.

The host's side of `score`: rows are padded as an engine pads them, so that a
bounded number of programs is compiled and what a row gets depends on itself.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from promptrl_jax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  LanguageModelConfig,
)
from promptrl_jax.models.tokenizer import pad_left
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling import encoder_decoder, score
from promptrl_jax.sampling.decode import jit_rows
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.prepare import DecodeParams
from promptrl_jax.sampling.requests import EngineConfig
from promptrl_jax.sampling.seating import rows_of_a_group

_LEAST_LENGTH = 8  # Of a padded text; the next ones are twice as long.


class Scorer:
  """Scores texts after their prompts at temperature 1 without filters."""

  def __init__(
    self,
    config: LanguageModelConfig,
    params: DecodeParams,
    mesh: Mesh,
    settings: EngineConfig,
  ):
    """Compiles nothing yet.

    Args:
      config: the model.
      params: its parameters, from `prepare`.
      mesh: rows are split over it.
      settings: shapes; a text may have as many tokens as a completion.
    """
    self._params = params
    self._settings = settings
    self._split = mesh_lib.rows(mesh)
    groups = mesh_lib.num_row_shards(mesh)
    self._rows = rows_of_a_group(settings, groups) * groups
    run: Any = score.score_prepared
    if isinstance(config, EncoderDecoderConfig):
      run = encoder_decoder.score
    self._score_fn = jit_rows(functools.partial(run, config, Sampling()), mesh)

  def replace_params(self, params: DecodeParams) -> None:
    """Scores from here on with parameters of the same shapes."""
    self._params = params

  def run(
    self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]
  ) -> list[np.ndarray]:
    """Log-probs of the tokens of each text, float32 [N] each.

    Args:
      prompts: token ids, at least one each.
      texts: token ids, as many lists.

    Raises:
      ValueError: a text is empty or too long.
    """
    for i, text in enumerate(texts):
      if not 1 <= len(text) <= self._settings.new_tokens:
        raise ValueError(
          f'text {i} has {len(text)} tokens: expected 1 to '
          f'{self._settings.new_tokens}, the limit of completions'
        )
    found: list[np.ndarray] = [np.zeros(0)] * len(prompts)
    order = sorted(
      range(len(prompts)), key=lambda i: (len(texts[i]), len(prompts[i]))
    )
    for start in range(0, len(order), self._rows):
      some = order[start : start + self._rows]
      logps = self._batch([prompts[i] for i in some], [texts[i] for i in some])
      for i, row in zip(some, logps, strict=False):
        found[i] = row[: len(texts[i])]
    return found

  def _batch(
    self, prompts: list[Sequence[int]], texts: list[Sequence[int]]
  ) -> np.ndarray:
    unused = self._rows - len(prompts)
    length = self._settings.padded(max(map(len, prompts)))
    # A row that is not used has a prompt of one token and no text.
    tokens, mask = pad_left([*prompts, *[(0,)] * unused], length, 0)
    width = _LEAST_LENGTH
    while width < max(map(len, texts)):
      width *= 2
    answers = np.zeros((self._rows, width), np.int32)
    answer_mask = np.zeros((self._rows, width), bool)
    for i, text in enumerate(texts):
      answers[i, : len(text)] = text
      answer_mask[i, : len(text)] = True
    ones = np.ones(self._rows, np.float32)
    args = jax.device_put(
      (tokens, mask, answers, answer_mask, ones), self._split
    )
    return np.asarray(jax.device_get(self._score_fn(self._params, *args)))
