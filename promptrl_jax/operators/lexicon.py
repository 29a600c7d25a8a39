"""Synonyms and their similarity: the interface and the embedded lexicon.

The embedded lexicon, `lexicon.txt`, is written for statements of programming
tasks and describes its own format. `wordnet.py` is the other source.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import re
from collections.abc import Mapping
from typing import Protocol

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
    irregular: (base form, reading) pairs that replace base forms only, because
      `inflect` does not know their other forms.
  """

  @property
  def stop(self) -> frozenset[str]: ...

  @property
  def keep(self) -> tuple[str, ...]: ...

  @property
  def irregular(self) -> frozenset[tuple[str, str]]: ...

  def readings(self, lemma: str) -> frozenset[str]:
    """Returns the parts of speech that a base form is known as."""
    ...

  def synonyms(
    self, lemma: str, reading: str, previous: str = '', following: str = ''
  ) -> Mapping[str, float]:
    """Returns other base forms and their similarity in [0, 1].

    Neighbours choose between senses; they are in lower case, empty if there is
    none in the clause.
    """
    ...


@dataclasses.dataclass(frozen=True)
class EmbeddedLexicon:
  """Synonyms read from groups in the format of `lexicon.txt`.

  Attributes:
    stop, keep, irregular: as in `Lexicon`.
    groups: `[lemma, reading][condition][word]` -> similarity; the condition is
      empty, `before WORD` or `after determiner`.
  """

  stop: frozenset[str]
  keep: tuple[str, ...]
  groups: Mapping[tuple[str, str], Mapping[str, Mapping[str, float]]]
  irregular: frozenset[tuple[str, str]] = frozenset()

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
def load_embedded() -> EmbeddedLexicon:
  """Loads the lexicon that the package carries."""
  path = importlib.resources.files('promptrl_jax.operators') / 'lexicon.txt'
  return parse(path.read_text(encoding='utf-8'))
