"""Lexical mutation: replaces some words of a prompt by synonyms.

The mutation action of PROMIS, after EPiC (arXiv 2408.11198). Unlike in EPiC,
white space, examples and inflection survive, every word that is not replaced
stays as it is, and both the similarity threshold and the cap on candidates have
an effect.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import random
import re
from collections.abc import Sequence

from promptrl_jax.operators import inflect, wordnet
from promptrl_jax.operators import lexicon as lexicon_lib
from promptrl_jax.operators import spans as spans_lib

SOURCES = ('embedded', 'wordnet')

_WORD = re.compile(r'\w+')
_CLAUSE_END = re.compile(r'[.,:;!?()"]|\n\s*\n|\n\s*[-*]\s')
_SENTENCE_END = re.compile(r'[.:!?"]|\n\s*\n|\n\s*[-*]\s')
# A word after or before one of these characters is part of a name, a path, a
# compound or code.
_BEFORE = frozenset(".'-/\\@#$%=&<*+")
_AFTER = frozenset("([-/\\@='’")
_PREPOSITION_LIST = """
  about above across after against among around as at before behind below
  between by during except for from in inside into of on onto over per through
  under until upon with within without
"""
_VERB_CUE_LIST = """
  to that which who it you they we i must should shall will would can could may
  might and or then not does do
"""
_PREPOSITIONS = frozenset(_PREPOSITION_LIST.split())
_VERB_CUES = frozenset(_VERB_CUE_LIST.split())
_AN = re.compile(r'[aeio]|u(?!ni[qfotv]|s[aei])|hour|honest|heir')


@dataclasses.dataclass(frozen=True)
class LexicalConfig:
  """Settings of the mutation.

  Attributes:
    probability: probability of replacing each replaceable word.
    max_candidates: maximum number of synonyms per word; the closest are kept.
    similarity_threshold: minimum similarity of a synonym, in [0, 1]. The
      embedded lexicon states 0.9 (close), 0.7 (loose) and 0.5 (meaning changes
      a little); an embedding gives (1 + cosine) / 2.
    synonyms: source of the synonyms, `embedded` or `wordnet`.
    wordnet_path: folder of the WordNet database; empty for
      `wordnet.DEFAULT_FOLDER`.
    embedding: the sentence encoder that ranks WordNet's synonyms, `shipped`,
      `minilm` (extra `embedding`) or a folder; empty ranks them by how frequent
      their sense is.
  """

  probability: float = 0.5
  max_candidates: int = 10
  similarity_threshold: float = 0.7
  synonyms: str = 'embedded'
  wordnet_path: str = ''
  embedding: str = ''

  def __post_init__(self):
    if not 0 <= self.probability <= 1:
      raise ValueError(
        f'probability is {self.probability}; expected a number in [0, 1]'
      )
    if self.max_candidates < 0:
      raise ValueError(
        f'max_candidates is {self.max_candidates}; expected at least 0'
      )
    if self.synonyms not in SOURCES:
      raise ValueError(
        f'synonyms is {self.synonyms!r}; expected one of {", ".join(SOURCES)}'
      )
    for name in ('wordnet_path', 'embedding'):
      if getattr(self, name) and self.synonyms != 'wordnet':
        raise ValueError(
          f"{name} is {getattr(self, name)!r}; it needs synonyms='wordnet'"
        )


@dataclasses.dataclass(frozen=True)
class Replaceable:
  """A word that may be replaced: its half-open range in the text.

  The options are in the word's form and case, closest first.
  """

  start: int
  end: int
  options: tuple[str, ...]


def load_lexicon(config: LexicalConfig) -> lexicon_lib.Lexicon:
  """Loads the synonyms that a config asks for; a second call is free."""
  if config.synonyms == 'wordnet':
    return wordnet.load(config.wordnet_path, config.embedding)
  return lexicon_lib.load_embedded()


def mutate(
  text: str,
  rng: random.Random,
  config: LexicalConfig = LexicalConfig(),
  protected: Sequence[str] = (),
  lexicon: lexicon_lib.Lexicon | None = None,
) -> str:
  """Replaces words of a text by synonyms; keeps the rest byte for byte.

  Names that are `protected`, such as the entry point, are never replaced. The
  synonyms are those of the config unless there is a `lexicon`.
  """
  pieces, position = [], 0
  for word in replaceable_words(text, config, protected, lexicon):
    if rng.random() < config.probability:
      pieces += [text[position : word.start], rng.choice(word.options)]
      position = word.end
  return ''.join([*pieces, text[position:]])


def replaceable_words(
  text: str,
  config: LexicalConfig = LexicalConfig(),
  protected: Sequence[str] = (),
  lexicon: lexicon_lib.Lexicon | None = None,
) -> list[Replaceable]:
  """Returns the words that `mutate` chooses from, in order of the text."""
  if lexicon is None:
    lexicon = load_lexicon(config)
  words = list(_WORD.finditer(text))
  spans = spans_lib.protected_spans(text, protected)
  kept = _kept_terms([w[0].lower() for w in words], lexicon.keep)
  replaceable = []
  for i, word in enumerate(words):
    if i in kept or _touches(spans, word) or not _is_common_word(text, word):
      continue
    gap = text[words[i - 1].end() : word.start()] if i else '.'
    if word[0].istitle() and not _SENTENCE_END.search(gap):
      continue  # A proper noun.
    previous = following = ''
    if not _CLAUSE_END.search(gap):
      previous = words[i - 1][0].lower()
    if i + 1 < len(words) and not _CLAUSE_END.search(
      text[word.end() : words[i + 1].start()]
    ):
      following = words[i + 1][0].lower()
    options = _options(word[0], previous, following, config, lexicon)
    if options:
      replaceable.append(Replaceable(*word.span(), options))
  return replaceable


def _is_common_word(text: str, word: re.Match[str]) -> bool:
  """Whether a token is a plain word, not an identifier or part of one."""
  token = word[0]
  if not (token.isascii() and token.isalpha()):
    return False
  if not (token.islower() or token.istitle() or token.isupper()):
    return False
  before = text[word.start() - 1 : word.start()] if word.start() else ''
  if before in _BEFORE:
    return False
  after = text[word.end() : word.end() + 1]
  then = text[word.end() + 1 : word.end() + 2]
  # A full stop or colon joins only what follows at once: `math.sqrt`, `a:b`.
  return after not in _AFTER and not (after in {'.', ':'} and then.isalnum())


def _touches(spans: Sequence[spans_lib.Span], word: re.Match[str]) -> bool:
  """Whether a word overlaps a sorted list of spans."""
  last = bisect.bisect_left(spans, (word.end(), -1))
  return any(end > word.start() for _, end in spans[:last])


def _kept_terms(words: Sequence[str], terms: Sequence[str]) -> set[int]:
  """Returns indices of the words of kept terms; the last may be a plural."""
  by_first = _by_first_word(tuple(terms))
  kept = set()
  for i, word in enumerate(words):
    for parts in by_first.get(word, ()):
      run = words[i : i + len(parts)]
      plural = inflect.inflect(parts[-1], 'noun', 's')
      if run[:-1] == parts[:-1] and run[-1] in (parts[-1], plural):
        kept.update(range(i, i + len(parts)))
  return kept


@functools.lru_cache(maxsize=8)  # The terms are those of a lexicon.
def _by_first_word(terms: tuple[str, ...]) -> dict[str, list[list[str]]]:
  """Kept terms in words, by the first one and the plural of a single one."""
  by_first: dict[str, list[list[str]]] = {}
  for term in terms:
    parts = term.split()
    by_first.setdefault(parts[0], []).append(parts)
    if len(parts) == 1:
      by_first.setdefault(inflect.inflect(term, 'noun', 's'), []).append(parts)
  return by_first


def _options(
  token: str,
  previous: str,
  following: str,
  config: LexicalConfig,
  lexicon: lexicon_lib.Lexicon,
) -> tuple[str, ...]:
  """Returns replacements in the token's form and case, closest first."""
  word = token.lower()
  if word in lexicon.stop:
    return ()
  known = [
    (lemma, reading, form)
    for lemma, reading, form in inflect.analyses(word)
    if reading in lexicon.readings(lemma)
  ]
  # A word with an entry of its own is not looked up by its base form.
  known = [k for k in known if not k[2]] or known
  reading = _reading({r: f for _, r, f in reversed(known)}, previous, following)
  similarities: dict[str, float] = {}
  for lemma, of, form in known:
    if of == reading:
      for other, value in lexicon.synonyms(
        lemma, reading, previous, following
      ).items():
        if form and (other, reading) in lexicon.irregular:
          continue
        surface = inflect.inflect(other, reading, form)
        similarities[surface] = max(value, similarities.get(surface, 0.0))
  close = [
    (-value, surface)
    for surface, value in similarities.items()
    if value >= config.similarity_threshold and _agrees(previous, surface)
  ]
  surfaces = [surface for _, surface in sorted(close)[: config.max_candidates]]
  return tuple(_with_case(surface, token) for surface in surfaces)


def _reading(forms: dict[str, str], previous: str, following: str) -> str:
  """Returns the part of speech in the clause, empty if none is plausible.

  `forms` maps each that the word may be to its form; neighbours are empty at
  the ends of the clause.
  """
  opens_phrase = following in lexicon_lib.DETERMINERS
  after_noun_cue = (
    previous in lexicon_lib.DETERMINERS or previous in _PREPOSITIONS
  ) and previous != 'that'
  plausible = set(forms)
  if forms.get('verb') in ('', 's') and after_noun_cue:
    plausible.discard('verb')  # "in order", "the sum"
  if 'noun' in forms and previous == 'to' and opens_phrase:
    plausible.discard('noun')  # "to list the", "to sum all"
  if 'adj' in forms and opens_phrase:
    plausible.discard('adj')  # "given a list"
  if len(plausible) < 2:
    return ''.join(plausible)
  if forms.get('verb') in ('ing', 'en', 'ed'):
    return 'verb'
  verb_cue = not previous or previous in _VERB_CUES
  if 'verb' in plausible and (
    opens_phrase or following in ('whether', 'if', 'how', 'that')
  ):
    return 'verb'  # "Count the", "and sum all"
  if 'verb' in plausible and verb_cue and following != 'of':
    return 'verb'
  names_noun = following.isalpha() and following not in _PREPOSITIONS
  if 'adj' in plausible and names_noun and following not in _VERB_CUES:
    return 'adj'  # "the total number"
  return next(r for r in ('noun', 'adj', 'adv', 'verb') if r in plausible)


def _agrees(previous: str, word: str) -> bool:
  """Whether a word can follow the article, which stays as it is."""
  if previous in ('a', 'an'):
    return (previous == 'an') == bool(_AN.match(word))
  return True


def _with_case(word: str, like: str) -> str:
  if like.isupper() and len(like) > 1:
    return word.upper()
  return word.capitalize() if like[0].isupper() else word
