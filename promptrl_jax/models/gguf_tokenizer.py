"""The tokenizer that the metadata of a GGUF file describes.

A file holds the vocabulary and the merges, but only the name of the rules by
which a text is split before them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from promptrl_jax.models.gguf_file import GgufFile
from promptrl_jax.models.torch_file import CheckpointError

_LOG = logging.getLogger(__name__)
_PREFIX = 'tokenizer.ggml.'
_CHAT = 'tokenizer.chat_template'
# Kinds of tokens.
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4
_TURN_ENDS = ('<|eot_id|>', '<|eom_id|>', '<|im_end|>', '<|end|>')
_TURN_ENDS += ('<end_of_turn>',)
_SPACE = '▁'  # SentencePiece writes a space so.
_SPECIAL = {
  'bos_token': 'bos_token_id',
  'eos_token': 'eos_token_id',
  'unk_token': 'unknown_token_id',
  'pad_token': 'padding_token_id',
}
# How byte-level vocabularies split a text, as their authors published it.
_WORDS = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
  r'| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
)
_UPPER, _LOWER = (
  r'[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]',
  r'[\p{Ll}\p{Lm}\p{Lo}\p{M}]',
)
_LETTERS = r'[^\r\n\p{L}\p{N}]?'
_TEKKEN = (
  f'{_LETTERS}{_UPPER}*{_LOWER}+|{_LETTERS}{_UPPER}+{_LOWER}*'
  r'|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+'
)
_LLAMA3, _QWEN2 = _WORDS % '{1,3}', _WORDS % ''
_SPLITS = {
  'llama-bpe': _LLAMA3,
  'llama3': _LLAMA3,
  'llama-v3': _LLAMA3,
  'qwen2': _QWEN2,
  'deepseek-r1-qwen': _QWEN2,
  'tekken': _TEKKEN,
}
_COMPOSED = ('qwen2', 'deepseek-r1-qwen')  # accents join their letters first
# Vocabularies whose tokens stay whole, whatever the merges say.
_WHOLE = ('llama-bpe', 'llama3', 'llama-v3', 'tekken')
_GPT2 = ('default', 'gpt-2')
_DIGITS = ('smollm',)  # as GPT-2, with each digit by itself
PRE_TOKENIZERS = (*_SPLITS, *_GPT2, *_DIGITS)


def backend(file: GgufFile) -> tokenizers.Tokenizer:
  """Builds the tokenizer.

  Raises:
    CheckpointError: the file has no vocabulary, or one of an unknown kind.
  """
  kind, tokens = _get(file, 'model'), _get(file, 'tokens')
  builders = {'gpt2': _byte_level, 'llama': _sentence_piece}
  if tokens is None or kind not in builders:
    raise CheckpointError(
      f'{file.path} has a tokenizer of the kind {kind!r} with '
      f'{len(tokens or ())} tokens: expected one of {", ".join(builders)}'
    )
  kinds = [int(k) for k in _get(file, 'token_type', [_NORMAL] * len(tokens))]
  for name in ('token_type', 'scores'):
    if (count := len(_get(file, name, tokens))) != len(tokens):
      raise CheckpointError(
        f'{file.path} has {count} numbers in {_PREFIX}{name}: expected one for '
        f'each of {len(tokens)} tokens'
      )
  built = builders[kind](file, tokens, kinds)
  for wanted, is_special in ((_CONTROL, True), (_USER_DEFINED, False)):
    added = [
      AddedToken(token, normalized=False, special=is_special)
      for token, k in zip(tokens, kinds, strict=True)
      if k == wanted and built.token_to_id(token) is not None
    ]
    (built.add_special_tokens if is_special else built.add_tokens)(added)
  return built


def special(file: GgufFile) -> dict[str, str]:
  """Returns the text of each special token by its name in chat templates."""
  tokens = _get(file, 'tokens', [])
  ids = {name: _special_id(file, key) for name, key in _SPECIAL.items()}
  return {name: tokens[i] for name, i in ids.items() if i is not None}


def chat_template(file: GgufFile) -> str | None:
  return file.metadata.get(_CHAT)


def listed_ends(file: GgufFile) -> list[int]:
  """Returns the ids that Ollama lists where several tokens end a text."""
  count = len(_get(file, 'tokens', []))
  return [int(i) for i in _get(file, 'eos_token_ids', []) if 0 <= i < count]


def turn_ends(file: GgufFile) -> list[int]:
  """Returns the ids of tokens that end a turn, which a file need not name.

  They go by their text, as in llama.cpp, but only if the chat template writes
  them: a file without a template has no turns, and its texts end as they did
  in training.
  """
  template = chat_template(file) or ''
  written = {end for end in _TURN_ENDS if end in template}
  kinds = _get(file, 'token_type', [])
  return [
    i
    for i, token in enumerate(_get(file, 'tokens', [])[: len(kinds)])
    if token in written and kinds[i] in (_CONTROL, _USER_DEFINED)
  ]


def around(file: GgufFile) -> tuple[tuple[int, ...], tuple[int, ...]]:
  """Returns the ids that the model expects before and after a text.

  Raises:
    CheckpointError: the file asks for a token that it does not name.
  """
  starts = _get(file, 'model') == 'llama' or _get(file, 'pre') in _WHOLE
  ids = []
  for name, is_used in (('bos', starts), ('eos', False)):
    token = _special_id(file, f'{name}_token_id')
    is_used = _get(file, f'add_{name}_token', is_used)
    if is_used and token is None:
      raise CheckpointError(
        f'{file.path} puts a token at an end of each text: expected '
        f'{_PREFIX}{name}_token_id to say which'
      )
    ids.append((token,) if is_used else ())
  start, end = ids
  return start, end


def _special_id(file: GgufFile, key: str) -> int | None:
  token, count = _get(file, key), len(_get(file, 'tokens', []))
  if token is not None and not 0 <= token < count:
    raise CheckpointError(
      f'{file.path} has {_PREFIX}{key}={token}: expected one of its {count} '
      'tokens'
    )
  return token


def _get(file: GgufFile, name: str, default: Any = None) -> Any:
  return file.metadata.get(_PREFIX + name, default)


def _byte_level(
  file: GgufFile, tokens: Sequence[str], kinds: Sequence[int]
) -> tokenizers.Tokenizer:
  del kinds
  pre = _get(file, 'pre')
  if pre is None:
    pre = 'default'
    _LOG.warning(
      f'{file.path} lacks {_PREFIX}pre: its texts are split by the rules of '
      'GPT-2, with which another model may answer worse'
    )
  if pre not in PRE_TOKENIZERS:
    raise CheckpointError(
      f'{file.path} splits texts by the rules {pre!r}: expected one of '
      f'{", ".join(PRE_TOKENIZERS)}'
    )
  if _get(file, 'merges') is None:
    raise CheckpointError(
      f'{file.path} lacks {_PREFIX}merges, without which texts stay bytes'
    )
  merges = [tuple(str(merge).split(' ')) for merge in _get(file, 'merges')]
  try:
    model = BPE(_ids(tokens), merges, ignore_merges=pre in _WHOLE)  # pyright: ignore[reportArgumentType]
  except Exception as error:  # The library raises nothing narrower.
    raise CheckpointError(
      f'{file.path}: {_PREFIX}merges: expected two tokens of the vocabulary in '
      f'each: {error}'
    ) from None
  built = tokenizers.Tokenizer(model)
  by_bytes = pre_tokenizers.ByteLevel(
    add_prefix_space=False, use_regex=pre not in _SPLITS
  )
  first = []
  if pre in _COMPOSED:
    built.normalizer = normalizers.NFC()
  if pre in _SPLITS:
    first = [pre_tokenizers.Split(Regex(_SPLITS[pre]), 'isolated')]
  elif pre in _DIGITS:
    first = [pre_tokenizers.Digits(individual_digits=True)]
  built.pre_tokenizer = pre_tokenizers.Sequence([*first, by_bytes])
  built.decoder = decoders.ByteLevel()
  return built


def _sentence_piece(
  file: GgufFile, tokens: Sequence[str], kinds: Sequence[int]
) -> tokenizers.Tokenizer:
  is_gemma = file.metadata['general.architecture'].startswith('gemma')
  if is_gemma:  # Its files have runs of spaces as such.
    tokens = [t if t.strip(' ') else _SPACE * len(t) for t in tokens]
  ids = _ids(tokens)
  usable = (_NORMAL, _USER_DEFINED)
  pieces = [t for t, k in zip(tokens, kinds, strict=True) if k in usable]
  if not is_gemma:  # Gemma's scores are not in the order of its merges.
    if (given := _get(file, 'scores')) is None:
      raise CheckpointError(
        f'{file.path} lacks {_PREFIX}scores, which order the merges of its '
        'tokens'
      )
    scores = dict(zip(tokens, given, strict=True))
    pieces.sort(key=lambda piece: -scores[piece])
  unknown = special(file).get('unk_token')
  built = tokenizers.Tokenizer(
    BPE(
      ids,
      list(_merges(pieces, ids)),
      unk_token=unknown,
      fuse_unk=True,
      byte_fallback=True,
    )
  )
  has_prefix = _get(file, 'add_space_prefix', True)
  spaces = normalizers.Replace(' ', _SPACE)
  parts = [
    decoders.Replace(_SPACE, ' '),
    decoders.ByteFallback(),
    decoders.Fuse(),
  ]
  if has_prefix:
    prefix = normalizers.Prepend(_SPACE)
    built.normalizer = normalizers.Sequence([prefix, spaces])
    parts.append(decoders.Strip(' ', 1, 0))
  else:
    built.normalizer = spaces
  built.decoder = decoders.Sequence(parts)
  return built


def _ids(tokens: Sequence[str]) -> dict[str, int]:
  return {token: i for i, token in enumerate(tokens)}


def _merges(
  pieces: Sequence[str], ids: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
  """Yields the pairs that make each piece, the piece merged first in front."""
  id_of = ids.get
  for piece in pieces:
    pairs = []
    for i in range(1, len(piece)):
      left = id_of(first := piece[:i])
      if left is not None:
        right = id_of(second := piece[i:])
        if right is not None:
          pairs.append((left, right, first, second))
    pairs.sort()
    for _, _, first, second in pairs:
      yield first, second
