"""The four wordings of a statement: canonical, paraphrased, terse, noisy.

A register changes the words and never the task. Text inside double quotes and
every digit is left alone, since both belong to the task.
"""

from __future__ import annotations

import random
import re

from promptrl_jax.tasks.minicode.family import Family, Params, fill

REGISTERS = ('canonical', 'paraphrased', 'terse', 'noisy')

# Words that mean the same in a task statement. Part of the frozen suite, and
# not the lexicon that the lexical operator searches.
_SYNONYMS = {
  'list': ('array', 'sequence', 'collection'),
  'string': ('text', 'piece of text', 'character sequence'),
  'number': ('value', 'figure'),
  'numbers': ('values', 'figures'),
  'integer': ('whole number',),
  'integers': ('whole numbers',),
  'element': ('item', 'entry', 'member'),
  'elements': ('items', 'entries', 'members'),
  'items': ('elements', 'entries', 'members'),
  'find': ('determine', 'obtain', 'work out'),
  'return': ('give back', 'hand back', 'output'),
  'compute': ('calculate', 'evaluate'),
  'sum': ('total', 'combined value'),
  'greater': ('larger', 'higher', 'bigger'),
  'smaller': ('lower', 'lesser'),
  'largest': ('biggest', 'highest'),
  'smallest': ('lowest', 'least'),
  'remove': ('drop', 'eliminate', 'strip out'),
  'keep': ('retain', 'preserve'),
  'count': ('tally', 'enumerate'),
  'check': ('test', 'decide'),
  'every': ('each', 'each single'),
  'first': ('initial', 'leading'),
  'last': ('final', 'closing'),
  'given': ('supplied', 'provided'),
  'word': ('term',),
  'words': ('terms',),
  'letter': ('character', 'symbol'),
  'letters': ('characters', 'symbols'),
  'dictionary': ('mapping', 'lookup table'),
  'function': ('routine', 'procedure'),
  'equal': ('identical',),
  'multiply': ('scale',),
  'convert': ('turn', 'transform'),
  'replace': ('swap', 'substitute'),
}

_OPENINGS = (
  'Hello there!',
  'Hi, I hope you are doing well.',
  'Thanks in advance for your help.',
  'I am working on a small project at the moment.',
  'My teacher gave us this exercise on Monday.',
  'This came up in a meeting yesterday.',
  'Sorry to bother you again.',
  'I have been stuck on this since lunch.',
  'We use Python at our company.',
  'It is raining outside and I have time to code.',
  'This is for my cousin, who likes puzzles.',
  'A quick one before the weekend.',
)

_CLOSINGS = (
  'Many thanks!',
  'Please take your time.',
  'Speed is not important here.',
  'I would really appreciate it.',
  'The old version was lost when a laptop broke.',
  'Somebody else will write the documentation.',
  'Do not worry about the style too much.',
  'We will review it together on Friday.',
  'By the way, the coffee machine is broken.',
  'No hurry, but today would be nice.',
)

_POLITE = (
  ('Write a function to', 'Could you please write a function to'),
  ('Write a function to', 'I would like you to write me a function to'),
  ('Write a function to', 'It would be great to have a function to'),
  ('Write a function to', 'If possible, kindly write some function to'),
)

_PROTECTED = re.compile(r'("[^"]*")')
_WORD = re.compile(r'[A-Za-z]{5,}')


def render(
  family: Family, params: Params, register: str, rng: random.Random
) -> str:
  """Returns the statement of a problem in one register; draws from `rng`."""
  if register == 'canonical':
    return fill(family.canonical, params)
  if register == 'terse':
    return fill(family.terse, params)
  if register == 'paraphrased':
    text = fill(rng.choice(family.paraphrases), params)
    return _substitute_synonyms(text, rng)
  if register == 'noisy':
    return _add_noise(fill(family.canonical, params), rng)
  raise ValueError(f'register {register!r}: expected one of {REGISTERS}')


def _outside_quotes(text: str, edit) -> str:
  """Applies `edit` to the parts of `text` that are not in double quotes."""
  parts = _PROTECTED.split(text)
  return ''.join(part if part.startswith('"') else edit(part) for part in parts)


def _substitute_synonyms(text: str, rng: random.Random) -> str:
  """Replaces each word of the table by a synonym with probability 0.4."""

  def swap(match: re.Match[str]) -> str:
    word = match.group()
    options = _SYNONYMS.get(word.lower())
    if options is None or rng.random() >= 0.4:
      return word
    choice = rng.choice(options)
    return choice.capitalize() if word[0].isupper() else choice

  return _outside_quotes(text, lambda part: re.sub('[A-Za-z]+', swap, part))


def misspell(word: str, rng: random.Random) -> str:
  """Swaps two inner letters, drops one or doubles one."""
  place = rng.randrange(1, len(word) - 2)
  kind = rng.randrange(3)
  if kind == 0:
    pair = word[place + 1] + word[place]
    return word[:place] + pair + word[place + 2 :]
  if kind == 1:
    return word[:place] + word[place + 1 :]
  return word[:place] + word[place] + word[place:]


def _add_noise(text: str, rng: random.Random) -> str:
  """Adds polite filler, one or two irrelevant sentences and about two typos."""
  if rng.random() < 0.6:
    text = text.replace(*rng.choice(_POLITE), 1)
  rate = 2.0 / max(1, len(_WORD.findall(text)))

  def spoil(match: re.Match[str]) -> str:
    return (
      misspell(match.group(), rng) if rng.random() < rate else match.group()
    )

  text = _outside_quotes(text, lambda part: _WORD.sub(spoil, part))
  sides = rng.choice(('before', 'after', 'both'))
  if sides != 'after':
    text = f'{rng.choice(_OPENINGS)} {text}'
  if sides != 'before':
    text = f'{text} {rng.choice(_CLOSINGS)}'
  return text
