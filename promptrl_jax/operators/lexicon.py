"""Which words may stand for which others, and how close they are.

Two sources: the embedded lexicon, written for statements of programming tasks
(`lexicon.txt`, which describes its own format), and WordNet through NLTK where
both are installed. Stop words and kept terms are the embedded ones in either.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import re
from collections.abc import Mapping
from typing import Any, Protocol

READINGS = ('noun', 'verb', 'adj', 'adv')
DETERMINERS = frozenset(
  {'a', 'an', 'the', 'this', 'that', 'these', 'those', 'each', 'every', 'any'}
  | {'all', 'some', 'no', 'both', 'its', 'their', 'your', 'his', 'her', 'two'}
  | {'three', 'one', 'another', 'other'}
)
_HEADER = re.compile(
  r'(?P<reading>noun|verb|adj|adv)'
  r'(?: (?P<condition>before [a-z]+|after determiner))? (?P<value>0\.\d+|1\.0)'
)


class Lexicon(Protocol):
  """A source of synonyms.

  Attributes:
    stop: closed-class words, lower case.
    keep: terms, in lower case and singular, whose words are never replaced.
  """

  @property
  def stop(self) -> frozenset[str]: ...

  @property
  def keep(self) -> tuple[str, ...]: ...

  def readings(self, lemma: str) -> frozenset[str]:
    """The parts of speech that a base form is known as."""
    ...

  def synonyms(
    self, lemma: str, reading: str, previous: str = '', following: str = ''
  ) -> Mapping[str, float]:
    """Other base forms and their similarity in [0, 1].

    Args:
      lemma: base form.
      reading: part of speech, one of `READINGS`.
      previous, following: neighbours in lower case, empty if there is none in
        the clause; they choose between senses.
    """
    ...


@dataclasses.dataclass(frozen=True)
class EmbeddedLexicon:
  """Synonyms read from groups in the format of `lexicon.txt`.

  Attributes:
    stop, keep: as in `Lexicon`.
    groups: similarity of each replacement, `[lemma, reading][condition][word]`;
      the condition is empty, `before WORD` or `after determiner`.
  """

  stop: frozenset[str]
  keep: tuple[str, ...]
  groups: Mapping[tuple[str, str], Mapping[str, Mapping[str, float]]]

  def readings(self, lemma: str) -> frozenset[str]:
    return frozenset(r for r in READINGS if (lemma, r) in self.groups)

  def synonyms(
    self, lemma: str, reading: str, previous: str = '', following: str = ''
  ) -> Mapping[str, float]:
    senses = self.groups.get((lemma, reading), {})
    if f'before {following}' in senses:
      return senses[f'before {following}']
    if previous in DETERMINERS and 'after determiner' in senses:
      return senses['after determiner']
    return senses.get('', {})


class WordNetLexicon:
  """Synonyms from WordNet.

  WordNet has no similarity of words, but lists the senses of a word by how
  frequent they are: a synonym in the most frequent sense has 0.9, in the second
  0.8, and so on down to 0.1. Names and terms of several words are left out.
  """

  def __init__(self, wordnet: Any):
    """Wraps a loaded `nltk.corpus.wordnet` reader."""
    embedded = _embedded()
    self.stop, self.keep = embedded.stop, embedded.keep
    self._wordnet = wordnet

  def readings(self, lemma: str) -> frozenset[str]:
    return frozenset(r for r in READINGS if self._synsets(lemma, r))

  def synonyms(
    self, lemma: str, reading: str, previous: str = '', following: str = ''
  ) -> Mapping[str, float]:
    similarities: dict[str, float] = {}
    for rank, synset in enumerate(self._synsets(lemma, reading)):
      for name in synset.lemma_names():
        if name.isalpha() and name.islower() and name != lemma:
          similarities.setdefault(name, round(max(0.9 - 0.1 * rank, 0.1), 1))
    return similarities

  def _synsets(self, lemma: str, reading: str) -> list[Any]:
    letter = {'noun': 'n', 'verb': 'v', 'adj': 'a', 'adv': 'r'}[reading]
    found = self._wordnet.synsets(lemma, pos=letter)
    # The reader also finds the base form of an inflected word; we do that.
    return [s for s in found if lemma in s.lemma_names()]


def load(source: str = 'auto') -> Lexicon:
  """A lexicon.

  Args:
    source: `embedded`, `wordnet`, or `auto` for WordNet where it is installed
      and else the embedded one.

  Raises:
    ValueError: unknown source.
    RuntimeError: `wordnet` was asked for, and `nltk` or its corpus is missing.
  """
  if source not in ('embedded', 'wordnet', 'auto'):
    raise ValueError(
      f'source is {source!r}; expected embedded, wordnet or auto'
    )
  if source != 'embedded':
    try:
      return _wordnet()
    except (ImportError, LookupError) as error:
      if source == 'wordnet':
        missing = 'nltk' if isinstance(error, ImportError) else 'its corpus'
        raise RuntimeError(
          f"source is 'wordnet', but {missing} is not installed; run `pip "
          'install nltk` and `python -m nltk.downloader wordnet`, or use '
          "source='embedded'"
        ) from None
  return _embedded()


def parse(text: str) -> EmbeddedLexicon:
  """Reads the format of `lexicon.txt`.

  Raises:
    ValueError: a line is not understood; its number and text are named.
  """
  stop: set[str] = set()
  keep: list[str] = []
  groups: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
  for number, line in enumerate(text.split('\n'), 1):
    if not line.strip() or line.startswith('#'):
      continue
    header, _, rest = line.partition(':')
    match = _HEADER.fullmatch(header)
    if header == 'stop':
      stop.update(rest.split())
    elif header == 'keep':
      keep.extend(term.strip() for term in rest.split(';'))
    elif match and rest.split():
      sources, _, targets = rest.partition('->')
      for word in sources.split():
        senses = groups.setdefault((word, match['reading']), {})
        sense = senses.setdefault(match['condition'] or '', {})
        for other in (targets or sources).split():
          if other != word:
            sense[other] = max(sense.get(other, 0.0), float(match['value']))
    else:
      raise ValueError(
        f'line {number} of the lexicon is {line!r}; expected a line like '
        '"noun 0.9: element item", "stop: ..." or "keep: ..."'
      )
  return EmbeddedLexicon(frozenset(stop), tuple(keep), groups)


@functools.cache
def _embedded() -> EmbeddedLexicon:
  path = importlib.resources.files('promptrl_jax.operators') / 'lexicon.txt'
  return parse(path.read_text(encoding='utf-8'))


@functools.cache
def _wordnet() -> WordNetLexicon:
  from nltk.corpus import wordnet  # pyright: ignore[reportMissingImports]

  wordnet.ensure_loaded()  # The reader is lazy: fail here or never.
  return WordNetLexicon(wordnet)
