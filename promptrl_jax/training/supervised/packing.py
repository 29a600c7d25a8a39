"""Packs prompt-completion pairs into rows of fixed length.

Several pairs lie in one row, and each attends to itself alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from flax import struct

from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.training.supervised.config import SupervisedConfig
from promptrl_jax.training.supervised.corpus import Pair

Encoded = tuple[list[int], int]  # token ids, how many of them are prompt


@struct.dataclass
class PackedRows:
  """R rows of T tokens, several pairs in each.

  Attributes:
    tokens: int32 [R, T].
    segments: int32 [R, T], number of the pair within the row, from 1; 0 is
      padding.
    positions: int32 [R, T], position of each token in its pair.
    replies: bool [R, T], tokens of completions.
    weights: float32 [R, T], loss weight of predicting this token.
  """

  tokens: np.ndarray
  segments: np.ndarray
  positions: np.ndarray
  replies: np.ndarray
  weights: np.ndarray


def pack(
  pairs: Iterator[Pair], tokenizer: Tokenizer, config: SupervisedConfig
) -> PackedRows:
  """Packs pairs of an iterator, which may be endless, into one batch."""
  return pack_encoded(_encoded(pairs, tokenizer), tokenizer.pad_id, config)


def pack_encoded(
  encoded: Iterator[Encoded], pad_id: int, config: SupervisedConfig
) -> PackedRows:
  """Packs sequences into one batch, best fit first.

  A sequence that is longer than a row is left out. The batch ends at the first
  sequence for which no row has room, or with the iterator.
  """
  shape = (config.rows, config.row_length)
  batch = PackedRows(
    tokens=np.full(shape, pad_id, np.int32),
    segments=np.zeros(shape, np.int32),
    positions=np.zeros(shape, np.int32),
    replies=np.zeros(shape, bool),
    weights=np.zeros(shape, np.float32),
  )
  used = np.zeros(config.rows, int)
  count = np.zeros(config.rows, int)
  for ids, prompt_size in encoded:
    if len(ids) > config.row_length:
      continue
    fits = np.flatnonzero(used + len(ids) <= config.row_length)
    if not len(fits):
      break
    row = fits[np.argmax(used[fits])]
    span = slice(used[row], used[row] + len(ids))
    count[row] += 1
    batch.tokens[row, span] = ids
    batch.segments[row, span] = count[row]
    batch.positions[row, span] = np.arange(len(ids))
    is_reply = np.arange(len(ids)) >= prompt_size
    weights = np.where(is_reply, 1.0, config.prompt_weight)
    weights[0] = 0.0
    batch.replies[row, span] = is_reply
    batch.weights[row, span] = weights
    used[row] += len(ids)
  return batch


def _encoded(pairs: Iterator[Pair], tokenizer: Tokenizer) -> Iterator[Encoded]:
  """Yields the token ids of each pair, and how many of them are prompt."""
  while chunk_pairs := list(itertools.islice(pairs, 32)):
    prompts = tokenizer.encode([prompt for prompt, _ in chunk_pairs])
    replies = tokenizer.encode([reply for _, reply in chunk_pairs])
    for prompt, reply in zip(prompts, replies, strict=True):
      start = [*tokenizer.start, *prompt, *tokenizer.end]
      yield [*start, *reply, tokenizer.eos_id], len(start)
