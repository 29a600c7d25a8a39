"""Reads the tokenizer files of a folder in Hugging Face's layout.

`tokenizer.json` holds the vocabulary and the rules. Further files, all of them
optional, say which tokens start, end and pad a text, and hold the chat
template.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import tokenizers

TOKENIZER = 'tokenizer.json'
CONFIG = 'tokenizer_config.json'
TEMPLATE = 'chat_template.jinja'
_SPECIAL_MAP = 'special_tokens_map.json'
_GENERATION = 'generation_config.json'
_MODEL = 'config.json'
# Encoders use other names for the tokens around a text.
_NAMES = {
  'bos': ('bos_token', 'cls_token'),
  'eos': ('eos_token', 'sep_token'),
  'pad': ('pad_token',),
}


@dataclasses.dataclass(frozen=True)
class Files:
  """The content of a folder's tokenizer files.

  Attributes:
    special: text of each special token by its name, such as `bos_token`.
    generation: fields of `config.json`, overridden by `generation_config.json`.
  """

  backend: tokenizers.Tokenizer
  config: Mapping[str, Any]
  special: Mapping[str, str]
  generation: Mapping[str, Any]
  template: str | None

  def ids(self, kind: str) -> tuple[int, ...]:
    """Returns the ids of `bos`, `eos` or `pad`, the tokenizer's own first."""
    ids = []
    for name in _NAMES[kind]:
      if name in self.special:
        token_id = self.backend.token_to_id(self.special[name])
        if token_id is None:
          raise ValueError(
            f'{CONFIG} has {name}={self.special[name]!r}, which is not in the '
            f'vocabulary: add it to {TOKENIZER} or correct the name'
          )
        ids.append(token_id)
        break
    generation_ids = self.generation.get(f'{kind}_token_id')
    if not isinstance(generation_ids, list):
      generation_ids = [generation_ids]
    size = self.backend.get_vocab_size()
    # Some configs have -1 for "none".
    ids += [i for i in generation_ids if i is not None and 0 <= i < size]
    return tuple(dict.fromkeys(ids))

  def around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the ids that the tokenizer adds before and after a text."""
    start, end = around(self.backend)
    adds_bos = self.config.get('add_bos_token')
    if adds_bos is not None:
      start = self.ids('bos')[:1] if adds_bos else ()
    return start, end


def around(
  backend: tokenizers.Tokenizer,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
  """Returns the ids that a backend adds before and after a text."""
  probe = 'a'
  inside = backend.encode(probe, add_special_tokens=False).ids
  with_special = backend.encode(probe, add_special_tokens=True).ids
  size = len(inside)
  for i in range(len(with_special) - size + 1):
    if with_special[i : i + size] == inside:
      return tuple(with_special[:i]), tuple(with_special[i + size :])
  return (), ()


def read(folder: pathlib.Path) -> Files:
  """Reads the tokenizer files of a folder.

  Raises:
    FileNotFoundError: the folder has no tokenizer.
    ValueError: a file cannot be read or converted; the text names it.
  """
  if not folder.is_dir():
    raise FileNotFoundError(f'no tokenizer at {folder}')
  config = _json(folder / CONFIG)
  backend = _backend(folder)
  # Callers truncate and pad texts; the settings in the file are ignored.
  backend.no_truncation()
  backend.no_padding()
  _add_missing(backend, config)
  special = {}
  for source in (_json(folder / _SPECIAL_MAP), config):
    for name, value in source.items():
      text = value.get('content') if isinstance(value, dict) else value
      if name.endswith('_token') and isinstance(text, str):
        special[name] = text
  model = _json(folder / _MODEL)
  generation = _json(folder / _GENERATION)
  generation = {
    **model,
    **{k: v for k, v in generation.items() if v is not None},
  }
  return Files(backend, config, special, generation, _template(folder, config))


def _json(path: pathlib.Path) -> dict[str, Any]:
  """Returns the content of a JSON file; empty if there is no such file."""
  if not path.is_file():
    return {}
  try:
    return json.loads(path.read_text(encoding='utf-8'))
  except ValueError as error:
    raise ValueError(f'{path} is no JSON: {error}') from None


def _backend(folder: pathlib.Path) -> tokenizers.Tokenizer:
  """Reads `tokenizer.json`, or converts the files of an older folder."""
  path = folder / TOKENIZER
  if path.is_file():
    try:
      return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # The library raises nothing narrower.
      raise ValueError(f'{path} cannot be read: {error}') from None
  if not any((folder / n).is_file() for n in (CONFIG, 'vocab.json')) and not (
    [*folder.glob('*.model')]
  ):
    raise FileNotFoundError(f'no tokenizer at {folder}: it lacks {TOKENIZER}')
  # Takes seconds, and a type checker would read all of its models.
  transformers = importlib.import_module('transformers')

  try:
    converted = transformers.AutoTokenizer.from_pretrained(
      folder, local_files_only=True
    )
    return converted.backend_tokenizer
  except Exception as error:  # Every tokenizer class fails in its own way.
    raise ValueError(
      f'{folder} has no {TOKENIZER}, and transformers cannot make one: '
      f'{error!r}. Convert it where the packages that it asks for are '
      'installed, and save it with save_pretrained'
    ) from error


def _add_missing(
  backend: tokenizers.Tokenizer, config: Mapping[str, Any]
) -> None:
  """Adds tokens that older folders list only in the config."""
  listed = config.get('added_tokens_decoder') or {}
  for expected, entry in sorted((int(k), v) for k, v in listed.items()):
    if backend.token_to_id(entry['content']) is not None:
      continue
    known = ('lstrip', 'rstrip', 'normalized', 'single_word', 'special')
    token = tokenizers.AddedToken(
      entry['content'], **{k: entry[k] for k in known if k in entry}
    )
    if entry.get('special'):
      backend.add_special_tokens([token])
    else:
      backend.add_tokens([token])
    token_id = backend.token_to_id(entry['content'])
    if token_id != expected:
      raise ValueError(
        f'{CONFIG} gives {entry["content"]!r} the id {expected}, the '
        f'vocabulary {token_id}: the files belong to different tokenizers'
      )


def _template(folder: pathlib.Path, config: Mapping[str, Any]) -> str | None:
  """Returns the source of the chat template, or None."""
  if (folder / TEMPLATE).is_file():
    return (folder / TEMPLATE).read_text(encoding='utf-8')
  template = config.get('chat_template')
  template = template or _json(folder / 'chat_template.json').get(
    'chat_template'
  )
  if not isinstance(template, list):
    return template
  named = {entry['name']: entry['template'] for entry in template}
  if 'default' not in named:
    raise ValueError(
      f'{folder / CONFIG} has chat templates {", ".join(named)}, none of them '
      f'"default": write the one to use to {TEMPLATE}'
    )
  return named['default']
