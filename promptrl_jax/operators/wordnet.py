"""Synonyms from a WordNet database on disk, ranked by an embedding.

The database is a folder in Princeton's format (wndb(5WN)), as it is published
(`dict/`), in Debian's `wordnet-base` and in NLTK (`nltk_data/corpora/wordnet`).

As in EPiC (arXiv 2408.11198), synonyms are taken over all senses of a word and
the closest ones by embedding are kept.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Mapping, Sequence

from promptrl_jax.models import sentence_encoder
from promptrl_jax.operators import inflect, lexicon
from promptrl_jax.rewards.similarity import EmbedFn, similarity_rewards

DEFAULT_FOLDER = '/usr/share/wordnet'
_FORMS = {'noun': ('s',), 'verb': ('s', 'ing', 'ed', 'en')}
# Words of closed classes and numerals that WordNet lists as nouns, verbs,
# adjectives or adverbs, beside the stop words of the embedded lexicon.
_CLOSED_CLASS_LIST = """
  aboard alongside amid anybody anyone around aside away barring because beneath
  besides beyond concerning considering despite everybody everyone excluding
  except fewer following half hence how including inside instead latter lest
  like little lots many minus near nobody notwithstanding off opposite otherwise
  outside past per plus regarding round several since somebody someone thence
  thereby thus toward towards underneath unlike versus via whence whenever
  wherever yours zero
  eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
  twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million
  billion first second third fourth fifth sixth seventh eighth ninth tenth nth
"""
_CLOSED_CLASSES = frozenset(_CLOSED_CLASS_LIST.split())
# Similarities are rounded, so that ranks do not depend on the device.
_DECIMALS = 4


class Database:
  """Reads synsets of single words from a WordNet folder."""

  def __init__(self, folder: str = ''):
    """Reads the indices; an empty name stands for `DEFAULT_FOLDER`.

    Raises:
      ValueError: a file is missing or not in WordNet's format.
    """
    self.folder = pathlib.Path(folder or DEFAULT_FOLDER)
    self._offsets = {r: self._read_index(r) for r in lexicon.READINGS}

  def synsets(self, lemma: str, reading: str) -> list[tuple[str, ...]]:
    """Returns the words of each sense, the most frequent sense first."""
    offsets = self._offsets[reading].get(lemma, ())
    if not offsets:
      return []
    with (self.folder / f'data.{reading}').open('rb') as file:
      return [self._read_synset(file, offset) for offset in offsets]

  def has(self, lemma: str, reading: str) -> bool:
    """Whether the base form is known as this part of speech."""
    return lemma in self._offsets[reading]

  def exceptions(self, reading: str) -> list[tuple[str, str]]:
    """Returns (irregular form, base form) pairs, none without the file."""
    path = self.folder / f'{reading}.exc'
    if not path.is_file():
      return []
    rows = [line.split() for line in path.read_text('utf-8').split('\n')]
    return [(row[0], base) for row in rows for base in row[1:]]

  def _read_index(self, reading: str) -> dict[str, tuple[int, ...]]:
    index, data = (self.folder / f'{n}.{reading}' for n in ('index', 'data'))
    for path in (index, data):
      if not path.is_file():
        raise ValueError(
          f'no WordNet file {path}: expected a folder with index.{reading} and '
          f"data.{reading}; install one, for instance Debian's wordnet-base "
          f'({DEFAULT_FOLDER}), and name it in wordnet_path, or use '
          "synonyms='embedded'"
        )
    offsets = {}
    for number, line in enumerate(index.read_text('utf-8').split('\n'), 1):
      # The license stands in lines that begin with spaces.
      if not line.strip() or line.startswith('  '):
        continue
      # lemma pos synset_cnt p_cnt [ptr_symbol...] sense_cnt tagsense_cnt
      # synset_offset [synset_offset...]
      fields = line.split()
      try:
        count = int(fields[2])
        offsets[fields[0]] = tuple(map(int, fields[-count:]))
      except (IndexError, ValueError) as error:
        raise ValueError(
          f'{index}:{number}: not a line of a WordNet index: {line[:80]!r}'
        ) from error
    return offsets

  def _read_synset(self, file, offset: int) -> tuple[str, ...]:
    # synset_offset lex_filenum ss_type w_cnt word lex_id [word lex_id...] ...
    file.seek(offset)
    fields = file.readline().decode('utf-8').split()
    if not fields or fields[0] != f'{offset:08d}':
      raise ValueError(
        f'{file.name} has no synset at byte {offset}: its index belongs to '
        'another version of WordNet'
      )
    words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
    # An adjective may carry its position: `following(a)`.
    return tuple(word.partition('(')[0] for word in words)


class WordNetLexicon:
  """Synonyms of all senses of a word, with the similarity of an embedding.

  Names and terms of several words are left out, as are single letters, which
  name variables. Kept terms are those of the embedded lexicon.
  """

  def __init__(self, database: Database, embed_fn: EmbedFn | None = None):
    """Combines a database and an embedding, n words -> [n, D].

    Similarity is (1 + cosine) / 2. Without an embedding, WordNet's own order
    counts: a synonym in the most frequent sense has 0.9, in the second 0.8, and
    so on down to 0.1.
    """
    embedded = lexicon.load_embedded()
    self.stop = embedded.stop | _CLOSED_CLASSES
    self.keep = embedded.keep
    self.irregular = frozenset(
      (base, reading)
      for reading in _FORMS
      for form, base in database.exceptions(reading)
      if form not in _regular_forms(base, reading)
    )
    self._database = database
    self._embed_fn = embed_fn
    self._known: dict[tuple[str, str], Mapping[str, float]] = {}

  def readings(self, lemma: str) -> frozenset[str]:
    if len(lemma) < 2:
      return frozenset()
    return frozenset(
      r for r in lexicon.READINGS if self._database.has(lemma, r)
    )

  def synonyms(
    self, lemma: str, reading: str, previous: str = '', following: str = ''
  ) -> Mapping[str, float]:
    key = lemma, reading
    if key not in self._known:
      self._known[key] = self._rank(lemma, reading)
    return self._known[key]

  def _rank(self, lemma: str, reading: str) -> dict[str, float]:
    by_sense: dict[str, float] = {}
    for rank, words in enumerate(self._database.synsets(lemma, reading)):
      for word in words:
        if _is_plain(word) and word != lemma:
          by_sense.setdefault(word, round(max(0.9 - 0.1 * rank, 0.1), 1))
    if self._embed_fn is None or not by_sense:
      return by_sense
    words = list(by_sense)
    values = similarity_rewards(self._embed_fn, [lemma] * len(words), words)
    return dict(zip(words, values.round(_DECIMALS).tolist(), strict=True))


def _is_plain(word: str) -> bool:
  """Whether a word is one in lower case, and no letter, name or number."""
  return len(word) > 1 and word.isascii() and word.isalpha() and word.islower()


@functools.cache
def _regular_forms(lemma: str, reading: str) -> Sequence[str]:
  return [inflect.inflect(lemma, reading, form) for form in _FORMS[reading]]


@functools.cache
def load(folder: str = '', embedding: str = '') -> WordNetLexicon:
  """Loads WordNet and, if one is named, the embedding that ranks its words.

  It is named as `models.sentence_encoder.load` takes it.

  Raises:
    ValueError: the database is missing or malformed.
    FileNotFoundError: there is no such encoder.
    ImportError: the encoder needs an extra that is not installed.
  """
  embed_fn = None
  if embedding:
    embed_fn = sentence_encoder.load(embedding)
  return WordNetLexicon(Database(folder), embed_fn)
