"""English word forms by rule, with tables of irregular verbs and plurals.

Forms are named by their ending: `` (base), `s`, `ing`, `ed` (past tense) and
`en` (past participle). Only verbs of the irregular table tell `ed` from `en`.
"""

from __future__ import annotations

import functools
import re

_VERB_TABLE = """
  become became become, begin began begun, break broke broken, bring brought
  brought, build built built, buy bought bought, choose chose chosen, come came
  come, cut cut cut, draw drew drawn, fall fell fallen, feed fed fed, find found
  found, get got got, give gave given, go went gone, grow grew grown, hit hit
  hit, hold held held, input input input, keep kept kept, know knew known, lay
  laid laid, lead led led, leave left left, let let let, lie lay lain, lose lost
  lost, make made made, mean meant meant, meet met met, output output output,
  pay paid paid, put put put, read read read, rise rose risen, run ran run, say
  said said, see saw seen, seek sought sought, sell sold sold, send sent sent,
  set set set, show showed shown, speak spoke spoken, spend spent spent, split
  split split, spread spread spread, stand stood stood, take took taken, tell
  told told, think thought thought, understand understood understood, win won
  won, write wrote written
"""
# base -> (past tense, past participle)
_IRREGULAR_VERBS = {
  base: (past, participle)
  for base, past, participle in map(str.split, _VERB_TABLE.split(','))
}
_IRREGULAR_PLURALS = {
  'child': 'children',
  'criterion': 'criteria',
  'index': 'indices',
  'matrix': 'matrices',
  'person': 'people',
  'series': 'series',
  'vertex': 'vertices',
}
_Y = re.compile(r'[^aeiou]y\Z')
# Two or more syllables with the stress on the last one.
_DOUBLED = frozenset(
  {'begin', 'commit', 'equip', 'input', 'occur', 'omit', 'output', 'permit'}
  | {'prefer', 'refer', 'submit', 'transfer'}
)
_MOST_WORDS = 1 << 14  # whose analyses are kept: problems share their words
_SHORT_SYLLABLE = re.compile(r'(?:[^aeiou]|qu)*[aeiou][^aeiouwxy]')


def inflect(lemma: str, reading: str, form: str) -> str:
  """Returns one form of a base word in lower case."""
  if not form:
    return lemma
  if form == 's':
    if reading == 'noun' and lemma in _IRREGULAR_PLURALS:
      return _IRREGULAR_PLURALS[lemma]
    if lemma.endswith(('s', 'x', 'z', 'ch', 'sh')):
      return lemma + 'es'
    return f'{lemma[:-1]}ies' if _Y.search(lemma) else f'{lemma}s'
  if form == 'ing':
    if lemma.endswith('ie'):
      return lemma[:-2] + 'ying'
    if lemma.endswith('e') and not lemma.endswith(('ee', 'oe', 'ye')):
      return lemma[:-1] + 'ing'
    return _doubled(lemma) + 'ing'
  if form in ('ed', 'en'):
    if lemma in _IRREGULAR_VERBS:
      return _IRREGULAR_VERBS[lemma][form == 'en']
    if lemma.endswith('e'):
      return lemma + 'd'
    if _Y.search(lemma):
      return lemma[:-1] + 'ied'
    return _doubled(lemma) + 'ed'
  raise ValueError(f'form is {form!r}; expected one of "", s, ing, ed, en')


@functools.lru_cache(_MOST_WORDS)
def analyses(word: str) -> tuple[tuple[str, str, str], ...]:
  """Returns every (lemma, reading, form) of a word, base form first.

  A lemma need not be an English word: `computing` could be a form of a verb
  `comput`. Callers look each lemma up in a lexicon.
  """
  found = [(word, reading, '') for reading in ('noun', 'verb', 'adj', 'adv')]
  for reading, form in (
    ('noun', 's'),
    ('verb', 's'),
    ('verb', 'ing'),
    ('verb', 'en'),  # Before `ed`: in statements most are participles.
    ('verb', 'ed'),
  ):
    for lemma in _base_forms(word, reading):
      if lemma != word and inflect(lemma, reading, form) == word:
        found.append((lemma, reading, form))
  return tuple(found)


def _base_forms(word: str, reading: str) -> list[str]:
  """Returns candidate base forms; inflecting them confirms or refutes each."""
  stems = [word[:-n] for n in (1, 2, 3, 4) if len(word) > n]
  guesses = [*stems, *(s + 'e' for s in stems), *(s + 'y' for s in stems)]
  guesses += [s[:-1] for s in stems if s[-1:] == s[-2:-1]]
  guesses += [s + 'ie' for s in stems]
  if reading == 'noun':
    guesses += [k for k, v in _IRREGULAR_PLURALS.items() if v == word]
  else:
    guesses += [k for k, v in _IRREGULAR_VERBS.items() if word in v]
  return list(dict.fromkeys(guesses))


def _doubled(lemma: str) -> str:
  if lemma in _DOUBLED or _SHORT_SYLLABLE.fullmatch(lemma):
    return lemma + lemma[-1]
  return lemma
