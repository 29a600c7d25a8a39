"""Sentence embeddings: by the encoder that is shipped, or by another one.

  text --features--> rows of a table, by hashes of words and letter n-grams
       --sum, normalize--> one unit vector

The shipped encoder is one table. A word that it has never read still has a
vector, that of its letters: "Enriching Word Vectors with Subword Information",
Bojanowski et al., 2017 (https://arxiv.org/abs/1607.04606), trained on pairs by
`experiments/train_encoder.py`. NumPy sums the rows, so that nothing is compiled
and a text's vector does not depend on the other texts.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import math
import os
import pathlib
import re
import zlib
from collections.abc import Sequence

import numpy as np
from safetensors import numpy as safetensors

from promptrl_jax.files import write_atomically
from promptrl_jax.prompts.examples import EmbedFn

SHIPPED = 'shipped'
FOLDER = pathlib.Path(__file__).parents[1] / 'assets' / 'sentence_encoder'
_CONFIG, _WEIGHTS = 'config.json', 'model.safetensors'
_FORMAT = 'hashed_features_1'
# Letters, numbers, and each other mark alone.
_TOKEN = re.compile(r'[^\W\d_]+|\d+|[^\w\s]|_')
_CACHED_WORDS = 1 << 16


@dataclasses.dataclass(frozen=True)
class TableConfig:
  """Shape of the table.

  Attributes:
    rows: the hash of a feature, modulo `rows`, is its row; row 0 belongs to
      every text, so that one without words has a vector, too.
    size: E, length of a vector.
    grams: lengths of the letter n-grams of a word.
    shortest: words of fewer letters have no n-grams.
  """

  rows: int = 16384
  size: int = 192
  grams: tuple[int, ...] = (3, 4)
  shortest: int = 4

  def __post_init__(self):
    if self.rows < 2 or self.size < 1:
      raise ValueError(
        f'rows={self.rows}, size={self.size}: expected a table of at least '
        'two rows and one column'
      )
    if any(n < 1 for n in self.grams):
      raise ValueError(f'grams={self.grams}: expected lengths from 1 on')


def features(text: str, config: TableConfig) -> tuple[list[int], list[float]]:
  """Returns the rows of a text and the weight of each.

  A word that occurs n times weighs 1 + log n. Its n-grams weigh as much as the
  word: the sum of their vectors is about as long as the root of their number.
  """
  rows, weights = [0], [1.0]
  counts = collections.Counter(_TOKEN.findall(text.lower()))
  for token, count in counts.items():
    weight = 1 + math.log(count)
    word, *grams = _word_rows(token, config)
    rows += [word, *grams]
    weights += (
      [weight, *[weight * len(grams) ** -0.5] * len(grams)]
      if grams
      else [weight]
    )
  return rows, weights


@functools.lru_cache(_CACHED_WORDS)
def _word_rows(word: str, config: TableConfig) -> tuple[int, ...]:
  names = [f'w{word}']
  if word.isalpha() and len(word) >= config.shortest:
    marked = f'<{word}>'
    names += [
      f'g{marked[i : i + n]}'
      for n in config.grams
      for i in range(len(marked) - n + 1)
    ]
  hashes = (zlib.crc32(name.encode('utf-8', 'replace')) for name in names)
  return tuple(1 + h % (config.rows - 1) for h in hashes)


def make_embed_fn(config: TableConfig, table: np.ndarray) -> EmbedFn:
  """Builds the embedding function of a table: n texts to float32 [n, E].

  Raises:
    ValueError: the table [rows, E] is not as the config says.
  """
  if table.shape != (config.rows, config.size):
    raise ValueError(
      f'table of shape {table.shape}: the config says '
      f'{(config.rows, config.size)}'
    )

  def embed_fn(texts: Sequence[str]) -> np.ndarray:
    check_texts(texts)
    vectors = np.zeros((len(texts), config.size), np.float32)
    for vector, text in zip(vectors, texts, strict=True):
      rows, weights = features(text, config)
      vector[:] = np.asarray(weights, np.float32) @ table[rows]
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(norms, np.finfo(np.float32).tiny)

  return embed_fn


def check_texts(texts: Sequence[str]) -> None:
  """Raises a TypeError unless `texts` is a list of strings."""
  if isinstance(texts, str):
    raise TypeError(f'one text, {texts[:40]!r}: expected a list of texts')
  for i, text in enumerate(texts):
    if not isinstance(text, str):
      raise TypeError(f'texts[{i}] is {text!r}: expected a string')


def save_table(
  folder: str | os.PathLike[str], config: TableConfig, table: np.ndarray
) -> None:
  """Writes a folder that `load` reads: each row in int8, with its scale."""
  scales = np.abs(table).max(axis=1, keepdims=True) / 127
  scales = np.maximum(scales, np.finfo(np.float16).tiny).astype(np.float16)
  codes = np.rint(table / scales.astype(np.float32)).clip(-127, 127)
  folder = pathlib.Path(folder)
  tensors = {'codes': codes.astype(np.int8), 'scales': scales}
  write_atomically(folder / _WEIGHTS, safetensors.save(tensors))
  values = {'format': _FORMAT, **dataclasses.asdict(config)}
  text = json.dumps(values, indent=2) + '\n'
  write_atomically(folder / _CONFIG, text.encode())


def load_table(
  folder: str | os.PathLike[str],
) -> tuple[TableConfig, np.ndarray]:
  """Reads what `save_table` wrote.

  Raises:
    FileNotFoundError: there is no such folder, or it lacks a file.
    ValueError: it holds something else.
  """
  folder = pathlib.Path(folder)
  values = json.loads((folder / _CONFIG).read_text(encoding='utf-8'))
  if values.pop('format', None) != _FORMAT:
    raise ValueError(
      f'{folder / _CONFIG}: expected "format": "{_FORMAT}", as '
      '`experiments.train_encoder` writes it'
    )
  config = TableConfig(**{**values, 'grams': tuple(values['grams'])})
  tensors = safetensors.load((folder / _WEIGHTS).read_bytes())
  scales = tensors['scales'].astype(np.float32)
  return config, tensors['codes'].astype(np.float32) * scales


@functools.cache
def load(source: str = SHIPPED) -> EmbedFn:
  """Returns the embedding function of an encoder; a second call is free.

  Args:
    source: `shipped`, `minilm` (extra `embedding`), a folder that
      `experiments.train_encoder` wrote, or what `embed.load_embed_fn` takes.
      Nothing is chosen by what is installed: results would depend on it.

  Returns:
    n texts -> float32 [n, E] of unit length; of a folder of Hugging Face, as
    its settings say.

  Raises:
    FileNotFoundError: there is no such encoder.
    ImportError: `minilm` without the extra `embedding`.
  """
  folder = FOLDER if source == SHIPPED else pathlib.Path(source)
  if _is_table(folder):
    return make_embed_fn(*load_table(folder))
  from promptrl_jax.models import embed  # JAX is slow to import.

  return embed.load_embed_fn(source)


def embed(texts: Sequence[str], source: str = SHIPPED) -> np.ndarray:
  """Embeds texts, float32 [n, E], with an encoder as `load` names it."""
  return load(source)(texts)


def _is_table(folder: pathlib.Path) -> bool:
  path = folder / _CONFIG
  if not path.is_file():
    return folder == FOLDER  # Whose missing file is then named.
  return 'format' in json.loads(path.read_text(encoding='utf-8'))
