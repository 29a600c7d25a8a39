"""Tokenizers: text to token ids and back."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from promptrl_jax.files import write_atomically
from promptrl_jax.models import gguf_model, gguf_tokenizer, tokenizer_files
from promptrl_jax.models.chat_template import ChatTemplate, Messages
from promptrl_jax.models.encoder_decoder_config import LanguageModelConfig
from promptrl_jax.models.gguf_file import GgufFile
from promptrl_jax.models.torch_file import CheckpointError

PAD, BOS, EOS = '<pad>', '<bos>', '<eos>'

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Tokenizer:
  """A tokenizer with the special tokens of its model.

  Attributes:
    pad_id: token for padding. It may have another meaning elsewhere, since
      masks, not ids, mark padding.
    eos_ids: tokens that end a completion when the model generates them,
      `eos_id` first.
    start, end: ids that the model expects before and after a text; `end` is
      empty for models that continue a text (see `pretrained.load_pretrained`).
  """

  backend: tokenizers.Tokenizer
  pad_id: int
  bos_id: int | None
  eos_id: int
  eos_ids: tuple[int, ...] = ()
  start: tuple[int, ...] = ()
  end: tuple[int, ...] = ()
  chat: ChatTemplate | None = None

  @property
  def vocab_size(self) -> int:
    """V, number of tokens including special ones."""
    return self.backend.get_vocab_size()

  def encode(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns the token ids of each text, without special tokens."""
    encoded = self.backend.encode_batch(list(texts), add_special_tokens=False)
    return [e.ids for e in encoded]

  def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
    """Returns the text of each row of ids, without special tokens."""
    return self.backend.decode_batch(
      [[int(i) for i in row] for row in ids], skip_special_tokens=True
    )

  def decode_after(self, ids: Sequence[Sequence[int]]) -> list[str]:
    """Returns the text of each row of ids as the continuation of a text.

    With a SentencePiece vocabulary, `decode` drops the space before the first
    word, and so the first indentation of a completion; this method keeps it.
    """
    anchor, size = self._anchor
    texts = self.decode([[*anchor, *row] for row in ids])
    return [text[size:] for text in texts]

  @functools.cached_property
  def _anchor(self) -> tuple[list[int], int]:
    """Ids of a short text to continue, and the text's length."""
    (ids,) = self.encode(['a'])
    return ids, len(self.decode([ids])[0])

  def ids_with(self, text: str) -> tuple[int, ...]:
    """Returns the ids of the tokens whose text has `text` in it."""
    ids = range(self.vocab_size)
    texts = self.decode([[i] for i in ids])
    return tuple(i for i in ids if text in texts[i])

  def render(self, messages: Messages) -> list[int]:
    """Returns the ids of a conversation up to the model's next token.

    A message of the role `text` is continued as it stands.
    """
    if self.chat is None or [role for role, _ in messages] == ['text']:
      text = '\n'.join(content for _, content in messages)
      return [*self.start, *self.encode([text])[0], *self.end]
    # The template itself writes the leading special token.
    text = self.chat.text(messages)
    return [*self.encode([text])[0], *self.end]


def with_special_tokens(
  config: LanguageModelConfig, tokenizer: Tokenizer, stop: Sequence[str] = ()
) -> LanguageModelConfig:
  """Returns a model's config with the stop and padding tokens of its tokenizer.

  A chat model ends its turn with more tokens than its config may name. Tokens
  that contain one of the strings `stop` end its text, too.
  """
  found = [i for text in stop for i in tokenizer.ids_with(text)]
  ends = (*config.eos_token_ids, *tokenizer.eos_ids, *found)
  return dataclasses.replace(
    config,
    eos_token_ids=tuple(dict.fromkeys(ends)),
    pad_token_id=tokenizer.pad_id,
  )


def pad_left(
  rows: Sequence[Sequence[int]], length: int, pad_id: int
) -> tuple[np.ndarray, np.ndarray]:
  """Left-pads rows of ids to int32 [B, length], and their bool mask.

  Raises:
    ValueError: a row is longer than `length`.
  """
  tokens = np.full((len(rows), length), pad_id, np.int32)
  mask = np.zeros((len(rows), length), bool)
  for i, row in enumerate(rows):
    if len(row) > length:
      raise ValueError(f'row {i} has {len(row)} tokens, more than {length}')
    if len(row):
      tokens[i, -len(row) :] = row
      mask[i, -len(row) :] = True
  return tokens, mask


def difference(one: Tokenizer, other: Tokenizer) -> str:
  """Describes how two vocabularies differ; empty if they are equal."""
  ids, others = one.backend.get_vocab(), other.backend.get_vocab()
  for token, i in sorted(ids.items(), key=lambda pair: pair[1]):
    if others.get(token) != i:
      return (
        f'{token!r} is {i} in one, {others.get(token, "missing")} in the other'
      )
  if more := others.keys() - ids.keys():
    return f'{len(more)} tokens more, {min(more)!r} among them'
  return ''


def _wrap(backend: tokenizers.Tokenizer) -> Tokenizer:
  """Returns the `Tokenizer` of a backend with our own special tokens."""
  vocab = backend.get_vocab()
  missing = [name for name in (PAD, BOS, EOS) if name not in vocab]
  if missing:
    raise ValueError(f'tokenizer lacks the special tokens {missing}')
  bos, eos = vocab[BOS], vocab[EOS]
  return Tokenizer(backend, vocab[PAD], bos, eos, (eos,), (bos,))


def load(path: str | os.PathLike[str]) -> Tokenizer:
  """Reads a folder in Hugging Face's layout, a GGUF file, or `tokenizer.json`.

  The last one is such as `save` writes after `train`.

  Raises:
    FileNotFoundError: the path has no tokenizer.
    ValueError: the tokenizer cannot be read, or has no token that ends a text.
  """
  if gguf_model.is_gguf(path):
    return _of_gguf(gguf_model.opened(path))
  path = pathlib.Path(path)
  if path.is_file():
    return _wrap(tokenizers.Tokenizer.from_file(str(path)))
  files = tokenizer_files.read(path)
  backend = files.backend
  special_ids = [backend.token_to_id(name) for name in (PAD, BOS, EOS)]
  if not files.config and None not in special_ids:
    return _wrap(backend)
  bos, eos, pad = (files.ids(kind) for kind in ('bos', 'eos', 'pad'))
  if not eos:
    raise ValueError(
      f'no token ends a text: set eos_token in {path / tokenizer_files.CONFIG}'
    )
  if not pad:
    _log_once(f'{path.name} has no pad token: padding is {eos[0]}, its eos')
  chat = None
  if files.template is not None:
    chat = ChatTemplate(files.template, files.special)
  return Tokenizer(
    backend,
    (pad or eos)[0],
    bos[0] if bos else None,
    eos[0],
    eos,
    *files.around(),
    chat,
  )


def _of_gguf(file: GgufFile) -> Tokenizer:
  backend = gguf_tokenizer.backend(file)
  values = gguf_model.special_ids(file)
  eos = tuple(values['eos_token_id'])
  if not eos:
    raise CheckpointError(f'{file.path}: no token ends a text')
  pad = values['pad_token_id']
  chat, source = None, gguf_tokenizer.chat_template(file)
  if source:
    chat = ChatTemplate(source, gguf_tokenizer.special(file))
  return Tokenizer(
    backend,
    eos[0] if pad is None else pad,
    values['bos_token_id'],
    eos[0],
    eos,
    *gguf_tokenizer.around(file),
    chat,
  )


@functools.cache
def _log_once(message: str) -> None:
  _LOG.warning(message)


def save(folder: str | os.PathLike[str], tokenizer: Tokenizer) -> None:
  """Writes files that `load` and transformers can read.

  A tokenizer with the special tokens of `train` needs `tokenizer.json` only.
  """
  folder = pathlib.Path(folder)
  name_of = tokenizer.backend.id_to_token
  ids = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id)
  names = [None if i is None else name_of(i) for i in ids]
  text = _complete(tokenizer).to_str(pretty=True) + '\n'
  write_atomically(folder / tokenizer_files.TOKENIZER, text.encode())
  if names == [PAD, BOS, EOS] and tokenizer == _wrap(tokenizer.backend):
    return
  values: dict[str, Any] = {
    **(tokenizer.chat.special if tokenizer.chat else {}),
    **dict(zip(('pad_token', 'bos_token', 'eos_token'), names, strict=True)),
    'tokenizer_class': 'PreTrainedTokenizerFast',
    'clean_up_tokenization_spaces': False,
  }
  content = (json.dumps(values, indent=2) + '\n').encode()
  write_atomically(folder / tokenizer_files.CONFIG, content)
  if tokenizer.chat is not None:
    content = tokenizer.chat.source.encode()
    write_atomically(folder / tokenizer_files.TEMPLATE, content)


def _complete(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
  """Returns a backend that puts `start` and `end` around a text by itself.

  That of a GGUF file does not, nor that of a folder with `add_bos_token` or of
  `train`; transformers reads nothing else.
  """
  start, end = tokenizer.start, tokenizer.end
  if tokenizer_files.around(tokenizer.backend) == (start, end):
    return tokenizer.backend
  backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
  # Names of their own, since a token may have a sign that templates read.
  backend.post_processor = processors.TemplateProcessing(
    single=[*(f'<{i}>' for i in start), '$A', *(f'<{i}>' for i in end)],
    special_tokens=[
      {'id': f'<{i}>', 'ids': [i], 'tokens': [str(backend.id_to_token(i))]}
      for i in dict.fromkeys((*start, *end))
    ],
  )
  return backend


def train(texts: Iterable[str], vocab_size: int) -> Tokenizer:
  """Trains byte-level BPE (arXiv 1508.07909) with single-digit tokens.

  A model can copy a number digit by digit, even if the number was not in its
  training data.
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
