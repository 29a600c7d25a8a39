"""The wordings of a statement, and the forms of a result.

What a coder does not know can be of different kinds, and each calls for
another way out:

  plain   nothing is wrong but the problem itself
  story   several sentences in other words: to be written anew
  rare    words that nobody learned, whose synonyms are common: to be replaced
  loose   words with several readings, which only further answers tell apart
  form    the statement does not say in which form the result is wanted; what
          the failed test shows of it has to be read: to be repaired

A problem may have a wording and a form. Text inside double quotes and every
digit belong to the task and stay as they are.
"""

from __future__ import annotations

import random
import re

from promptrl_jax.tasks.minicode2.grammar import (
  PLAIN_FRAME,
  Params,
  Template,
  fill,
)

# Each rare word stands for the common one of the plain statements.
RARE = {
  'greater': 'ampler',
  'smaller': 'tinier',
  'divisible': 'severable',
  'remainder': 'residue',
  'even': 'twinned',
  'odd': 'untwinned',
  'different': 'dissimilar',
  'longer': 'lengthier',
  'shorter': 'curter',
  'first': 'foremost',
  'last': 'hindmost',
  'start': 'commence',
  'starts': 'commences',
  'end': 'culminate',
  'contain': 'harbour',
  'contains': 'harbours',
  'lack': 'forgo',
  'vowels': 'vocalics',
  'consonants': 'nonvocalics',
  'squares': 'quadrates',
  'doubles': 'dyads',
  'doubled': 'dyadic',
  'negatives': 'antipodes',
  'halves': 'moieties',
  'rounded': 'blunted',
  'digits': 'ciphers',
  'digit': 'cipher',
  'increases': 'accretions',
  'multiples': 'manifolds',
  'distances': 'remotenesses',
  'capital': 'majuscule',
  'title': 'rubric',
  'reversals': 'retroversions',
  'initial': 'inceptive',
  'final': 'terminal',
  'repetitions': 'iterances',
  'lengths': 'prolixities',
  'length': 'prolixity',
  'successors': 'epigones',
  'places': 'loci',
  'keys': 'headings',
  'key': 'heading',
  'values': 'yields',
  'value': 'yield',
  'sum': 'aggregate',
  'sums': 'aggregates',
  'product': 'resultant',
  'largest': 'hugest',
  'smallest': 'tiniest',
  'count': 'census',
  'ascending': 'upbound',
  'descending': 'downbound',
  'reversed': 'retroverted',
  'distinct': 'disparate',
  'unique': 'singular',
  'spread': 'gulf',
  'mean': 'median',
  'running': 'rolling',
  'joined': 'spliced',
  'alphabetical': 'abecedarian',
  'longest': 'lengthiest',
  'shortest': 'curtest',
  'total': 'gross',
}

WORDINGS = ('plain', 'story', 'rare')

# Forms of a result by its type: what is returned for the value `$v`.
FORMS = {
  'int': {'text': 'str($v)', 'list': '[$v]', 'tuple': '($v,)'},
  'str': {'list': '[$v]', 'capital': '($v).upper()', 'spaced': "' '.join($v)"},
  'list': {
    'tuple': 'tuple($v)',
    'text': "' '.join(map(str, $v))",
    'quoted': 'str($v)',
  },
}

_OPENINGS = (
  'My teacher gave us this exercise on Monday.',
  'I have been stuck on this since lunch.',
  'This came up in a meeting yesterday.',
  'My cousin likes puzzles, and here is hers.',
  'A quick one before the weekend.',
  'It is raining outside and I have time to code.',
)
_SOURCES = (
  'Somebody hands me $place of $text.',
  'There is $place with $text here.',
  'We keep our $text in $place.',
  'You get $place full of $text.',
)
_KEPT = (
  'Only the ones $kept matter.',
  'Forget all but the ones $kept.',
  'I care about the ones $kept.',
  'Take the ones $kept and no others.',
)
_EACH = (
  'Then think of $each.',
  'What I look at is $each.',
  'For the next part use $each.',
  'Work with $each.',
)
_RESULTS = (
  'In the end I need $result.',
  'Tell me $result.',
  'What I want is $result.',
  'Please give me $result.',
)
_CLOSINGS = (
  'Many thanks!',
  'No hurry, but today would be nice.',
  'Speed is not important here.',
  'Do not worry about the style too much.',
  'We will review it together on Friday.',
  'The old version was lost when a laptop broke.',
)

# Other beginnings of a plain statement.
_FRAMES = (
  'Write a python function that finds',
  'Implement a function which returns',
  'Create a function to compute',
  'Given the input, return',
)

_QUOTED = re.compile(r'("[^"]*")')
_WORD = re.compile(r'[a-z]+')


def story(template: Template, params: Params, rng: random.Random) -> str:
  """The statement in several sentences of other words."""
  domain = template.domain
  kept = ' and '.join(f.story for f in template.filters if f.story)
  parts = [
    (_SOURCES, {'place': domain.place, 'text': domain.text}),
    (_KEPT, {'kept': kept}),
    (_EACH, {'each': template.map.story}),
    (_RESULTS, {'result': template.reduce.story}),
  ]
  sentences = [
    fill(rng.choice(forms), words)
    for forms, words in parts
    if all(words.values())
  ]
  if rng.random() < 0.7:
    sentences.insert(0, rng.choice(_OPENINGS))
  if rng.random() < 0.7:
    sentences.append(rng.choice(_CLOSINGS))
  return fill(' '.join(sentences), params)


def rare(template: Template, params: Params, rng: random.Random) -> str:
  """The plain statement with one or two of its words replaced by rare ones."""
  pieces = _QUOTED.split(template.statement(params))
  places = [
    (i, word.span())
    for i, text in enumerate(pieces)
    if not text.startswith('"')
    for word in _WORD.finditer(text)
    if word.group() in RARE
  ]
  chosen = rng.sample(places, min(len(places), rng.randint(1, 2)))
  for i, (start, end) in sorted(chosen, reverse=True):
    text = pieces[i]
    pieces[i] = text[:start] + RARE[text[start:end]] + text[end:]
  return ''.join(pieces)


def reframe(statement: str, rng: random.Random) -> str:
  """Lets a plain statement begin in another way; a story stays as it is."""
  return statement.replace(PLAIN_FRAME, rng.choice(_FRAMES), 1)


def render(
  template: Template, params: Params, wording: str, rng: random.Random
) -> str:
  """The statement of a problem in a wording; draws from `rng`."""
  if wording == 'plain':
    return template.statement(params)
  if wording == 'story':
    return story(template, params, rng)
  if wording == 'rare':
    return rare(template, params, rng)
  raise ValueError(f'wording {wording!r}: expected one of {WORDINGS}')
