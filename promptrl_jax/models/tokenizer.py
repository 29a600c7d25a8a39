"""A `tokenizer.json` as three functions: encode, pad, decode."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

PAD, BOS, EOS = '<pad>', '<bos>', '<eos>'


@dataclasses.dataclass(frozen=True)
class Tokenizer:
  """Text to ids and back.

  Attributes:
    backend: the trained tokenizer.
    pad_id, bos_id, eos_id: special tokens.
  """

  backend: tokenizers.Tokenizer
  pad_id: int
  bos_id: int
  eos_id: int

  @property
  def vocab_size(self) -> int:
    return self.backend.get_vocab_size()

  def encode(self, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, without special tokens."""
    encoded = self.backend.encode_batch(list(texts), add_special_tokens=False)
    return [e.ids for e in encoded]

  def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
    """Texts of rows of ids; special tokens are left out."""
    return self.backend.decode_batch(
      [[int(i) for i in row] for row in ids], skip_special_tokens=True
    )

  def pad_left(
    self, rows: Sequence[Sequence[int]], length: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Left-pads rows to `length`: int32 tokens [B, length] and bool mask."""
    tokens = np.full((len(rows), length), self.pad_id, np.int32)
    mask = np.zeros((len(rows), length), bool)
    for i, row in enumerate(rows):
      if len(row) > length:
        raise ValueError(f'row {i} has {len(row)} tokens, more than {length}')
      if len(row):
        tokens[i, -len(row) :] = row
        mask[i, -len(row) :] = True
    return tokens, mask


def _wrap(backend: tokenizers.Tokenizer) -> Tokenizer:
  vocab = backend.get_vocab()
  missing = [name for name in (PAD, BOS, EOS) if name not in vocab]
  if missing:
    raise ValueError(f'tokenizer lacks the special tokens {missing}')
  return Tokenizer(backend, vocab[PAD], vocab[BOS], vocab[EOS])


def load(path: str | pathlib.Path) -> Tokenizer:
  """Reads a `tokenizer.json`."""
  path = pathlib.Path(path)
  if not path.is_file():
    raise FileNotFoundError(f'no tokenizer at {path}')
  return _wrap(tokenizers.Tokenizer.from_file(str(path)))


def train(texts: Iterable[str], vocab_size: int) -> Tokenizer:
  """Trains byte-level BPE (arXiv 1508.07909); digits are tokens of their own.

  A number that is split into digits can be copied digit by digit, so a small
  model need not have met it before.
  """
  backend = tokenizers.Tokenizer(models.BPE())
  backend.pre_tokenizer = pre_tokenizers.Sequence(
    [
      pre_tokenizers.Digits(individual_digits=True),
      pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
  )
  backend.decoder = decoders.ByteLevel()
  trainer = trainers.BpeTrainer(
    vocab_size=vocab_size,
    special_tokens=[PAD, BOS, EOS],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
  )
  backend.train_from_iterator(texts, trainer)
  return _wrap(backend)
