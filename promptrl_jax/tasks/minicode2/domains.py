"""The domains of the suite with their filters, maps and reduces, as data."""

from __future__ import annotations

import random

from promptrl_jax.tasks.minicode2.grammar import Domain, piece

_SMALL = range(2, 10)
_MIDDLE = range(5, 31)
_LETTERS = 'abcdefghilmnoprstuw'
_MARKS = ('-', '_', '+', '/', '*', '.', '=')
_COUNTS = (2, 3, 4)
_WORDS = (
  *('apple', 'bread', 'cloud', 'dance', 'eagle', 'flame', 'grape', 'house'),
  *('island', 'jungle', 'kite', 'lemon', 'moon', 'nest', 'ocean', 'pearl'),
  *('queen', 'river', 'stone', 'tree', 'under', 'violet', 'water', 'yellow'),
  *('zebra', 'ant', 'bee', 'cat', 'dog', 'egg', 'fox', 'gem', 'hat', 'ice'),
  *('jam', 'key', 'lamp', 'map', 'net', 'oak', 'pen', 'rose', 'sun', 'tent'),
  *('urn', 'van', 'wolf', 'arm', 'bell', 'corn', 'door', 'ear', 'fern', 'gold'),
  *('hill', 'ink', 'jar', 'king', 'leaf', 'milk', 'noon', 'oven', 'pond'),
  *('rain', 'sand', 'tiger', 'uncle', 'valley', 'winter', 'autumn', 'basket'),
  *('candle', 'dragon', 'engine', 'forest', 'garden', 'hammer'),
)


def _number(rng: random.Random) -> int:
  return rng.randint(1, 40)


def _word(rng: random.Random) -> str:
  return rng.choice(_WORDS)


def _letter(rng: random.Random) -> str:
  return rng.choice(_LETTERS + 'aeiou')


def _entry(rng: random.Random) -> tuple[str, int]:
  return rng.choice(_WORDS), _number(rng)


# --- Filters ------------------------------------------------------------------

ALL = piece('all', '', '', '')

_NUMBER_FILTERS = (
  ALL,
  piece('above', 'greater than $k', 'that top $k', 'x > $k', k=_MIDDLE),
  piece('below', 'smaller than $k', 'that stay under $k', 'x < $k', k=_MIDDLE),
  piece(
    'multiple',
    'divisible by $k',
    'that $k goes into without rest',
    'x % $k == 0',
    k=_SMALL,
  ),
  piece(
    'remainder',
    'that leave remainder 1 when divided by $k',
    'where one is left over after taking out all the ${k}s',
    'x % $k == 1',
    k=range(3, 10),
  ),
  piece('even', 'that are even', 'which two people can share', 'x % 2 == 0'),
  piece('odd', 'that are odd', 'which two people cannot share', 'x % 2 == 1'),
  piece(
    'ending',
    'that end in $k',
    'whose closing figure is $k',
    'x % 10 == $k',
    k=range(10),
  ),
  piece(
    'other', 'different from $k', 'that are not $k', 'x != $k', k=range(1, 41)
  ),
  piece(
    'first',
    'among the first $n',
    'out of the $n at the front',
    '$source[:$n]',
    n=_COUNTS,
  ),
  piece(
    'last',
    'among the last $n',
    'out of the $n at the back',
    '$source[-$n:]',
    n=_COUNTS,
  ),
)
_LOOSE_NUMBER_FILTERS = (
  piece(
    'near',
    'close to $k',
    'in the area of $k',
    'abs(x - $k) <= 3',
    'abs(x - $k) <= 6',
    'abs(x - $k) <= 12',
    k=_MIDDLE,
    exact='at most 3 away from $k',
  ),
  piece(
    'upwards',
    'around $k or more',
    'from $k or so upwards',
    'x > $k',
    'x > $k - 8',
    'x > $k + 6',
    k=range(10, 31),
    exact='greater than $k',
  ),
  piece(
    'small',
    'that are small',
    'of the little kind',
    'x < 10',
    'x < 18',
    'x < 26',
    exact='smaller than 10',
  ),
  piece(
    'big',
    'that are big',
    'of the large kind',
    'x > 15',
    'x > 23',
    'x > 31',
    exact='greater than 15',
  ),
  piece(
    'spaced',
    'at regular places',
    'you meet at regular steps',
    '$source[::2]',
    '$source[1::2]',
    '$source[::3]',
    exact='at every second place',
  ),
)
_WORD_FILTERS = (
  ALL,
  piece(
    'longer',
    'longer than $n letters',
    'that take more than $n letters to write',
    'len(w) > $n',
    n=_COUNTS,
  ),
  piece(
    'shorter',
    'shorter than $n letters',
    'that take under $n letters to write',
    'len(w) < $n',
    n=(4, 5, 6),
  ),
  piece(
    'starting',
    'that start with "$c"',
    'which open on "$c"',
    "w.startswith('$c')",
    c=_LETTERS,
  ),
  piece(
    'ending',
    'that end with "$c"',
    'which close on "$c"',
    "w.endswith('$c')",
    c='adeglmnrstw',
  ),
  piece(
    'containing',
    'that contain "$c"',
    'with "$c" somewhere inside',
    "'$c' in w",
    c='aeilnorstu',
  ),
  piece(
    'lacking',
    'that lack "$c"',
    'with "$c" nowhere inside',
    "'$c' not in w",
    c='aeilnorstu',
  ),
  piece(
    'even', 'of even length', 'whose letters come in pairs', 'len(w) % 2 == 0'
  ),
  piece(
    'first',
    'among the first $n',
    'out of the $n at the front',
    '$source[:$n]',
    n=_COUNTS,
  ),
  piece(
    'last',
    'among the last $n',
    'out of the $n at the back',
    '$source[-$n:]',
    n=_COUNTS,
  ),
)
_LOOSE_WORD_FILTERS = (
  piece(
    'long',
    'that are long',
    'of the lengthy kind',
    'len(w) > 3',
    'len(w) > 4',
    'len(w) > 5',
    exact='longer than 3 letters',
  ),
  piece(
    'short',
    'that are short',
    'of the brief kind',
    'len(w) < 4',
    'len(w) < 5',
    'len(w) < 6',
    exact='shorter than 4 letters',
  ),
  piece(
    'early',
    'early in the alphabet',
    'from the top of the alphabet',
    "w < 'f'",
    "w < 'k'",
    "w < 'p'",
    exact='before "f" in the alphabet',
  ),
  piece(
    'spaced',
    'at regular places',
    'you meet at regular steps',
    '$source[::2]',
    '$source[1::2]',
    '$source[::3]',
    exact='at every second place',
  ),
)
_LETTER_FILTERS = (
  ALL,
  piece('vowels', 'that are vowels', 'one can sing', "c in 'aeiou'"),
  piece(
    'consonants', 'that are consonants', 'one cannot sing', "c not in 'aeiou'"
  ),
  piece(
    'before',
    'before "$c" in the alphabet',
    'which a dictionary lists ahead of "$c"',
    "c < '$c'",
    c='efghilmnoprs',
  ),
  piece(
    'after',
    'after "$c" in the alphabet',
    'which a dictionary lists behind "$c"',
    "c > '$c'",
    c='cdefghilmno',
  ),
  piece(
    'other',
    'different from "$c"',
    'that are not "$c"',
    "c != '$c'",
    c='aeiolnrst',
  ),
  piece(
    'first',
    'among the first $n',
    'out of the $n at the front',
    '$source[:$n]',
    n=_COUNTS,
  ),
  piece(
    'last',
    'among the last $n',
    'out of the $n at the back',
    '$source[-$n:]',
    n=_COUNTS,
  ),
)
_LOOSE_LETTER_FILTERS = (
  piece(
    'early',
    'early in the alphabet',
    'from the top of the alphabet',
    "c < 'f'",
    "c < 'k'",
    "c < 'p'",
    exact='before "f" in the alphabet',
  ),
  piece(
    'spaced',
    'at regular places',
    'you meet at regular steps',
    '$source[::2]',
    '$source[1::2]',
    '$source[::3]',
    exact='at every second place',
  ),
)
_ENTRY_FILTERS = (
  ALL,
  piece(
    'above',
    'whose value is greater than $k',
    'worth more than $k',
    'v > $k',
    k=_MIDDLE,
  ),
  piece(
    'below',
    'whose value is smaller than $k',
    'worth under $k',
    'v < $k',
    k=_MIDDLE,
  ),
  piece(
    'multiple',
    'whose value is divisible by $k',
    'worth something that $k goes into without rest',
    'v % $k == 0',
    k=_SMALL,
  ),
  piece(
    'even',
    'whose value is even',
    'worth something two people can share',
    'v % 2 == 0',
  ),
  piece(
    'odd',
    'whose value is odd',
    'worth something two people cannot share',
    'v % 2 == 1',
  ),
  piece(
    'longer',
    'whose key is longer than $n letters',
    'with a name that takes more than $n letters to write',
    'len(k) > $n',
    n=_COUNTS,
  ),
  piece(
    'starting',
    'whose key starts with "$c"',
    'with a name which opens on "$c"',
    "k.startswith('$c')",
    c=_LETTERS,
  ),
  piece(
    'containing',
    'whose key contains "$c"',
    'with a name that has "$c" somewhere inside',
    "'$c' in k",
    c='aeilnorstu',
  ),
)
_LOOSE_ENTRY_FILTERS = (
  piece(
    'near',
    'whose value is close to $k',
    'worth something in the area of $k',
    'abs(v - $k) <= 3',
    'abs(v - $k) <= 6',
    'abs(v - $k) <= 12',
    k=_MIDDLE,
    exact='whose value is at most 3 away from $k',
  ),
  piece(
    'small',
    'whose value is small',
    'worth little',
    'v < 10',
    'v < 18',
    'v < 26',
    exact='whose value is smaller than 10',
  ),
  piece(
    'big',
    'whose value is big',
    'worth a lot',
    'v > 15',
    'v > 23',
    'v > 31',
    exact='whose value is greater than 15',
  ),
  piece(
    'long',
    'whose key is long',
    'with a name of the lengthy kind',
    'len(k) > 3',
    'len(k) > 4',
    'len(k) > 5',
    exact='whose key is longer than 3 letters',
  ),
)

# --- Maps ---------------------------------------------------------------------

SAME = piece('same', '', '', '')

_NUMBER_MAPS = (
  SAME,
  piece('squares', 'the squares of', 'each one times itself', 'x * x'),
  piece('doubles', 'the doubles of', 'each one taken two times', 'x * 2'),
  piece('negatives', 'the negatives of', 'each one below zero instead', '-x'),
  piece(
    'halves',
    'the rounded halves of',
    'one of two equal shares of each',
    'x // 2',
  ),
  piece(
    'digits', 'the final digits of', 'the closing figure of each', 'x % 10'
  ),
  piece(
    'digit_sums',
    'the digit sums of',
    'the figures of each put together',
    'sum(int(d) for d in str(x))',
  ),
  piece(
    'increases',
    'the increases by $a of',
    'each one with $a on top',
    'x + $a',
    a=range(2, 20),
  ),
  piece(
    'multiples',
    'the multiples by $a of',
    'each one taken $a times',
    'x * $a',
    a=range(3, 12),
  ),
  piece(
    'distances',
    'the distances from $a of',
    'how far each one is from $a',
    'abs(x - $a)',
    a=range(5, 31),
  ),
)
_WORD_MAPS = (
  SAME,
  piece('capitals', 'the capital forms of', 'each one shouted', 'w.upper()'),
  piece(
    'titles', 'the title forms of', 'each one like a name', 'w.capitalize()'
  ),
  piece(
    'reversals', 'the reversals of', 'each one from back to front', 'w[::-1]'
  ),
  piece('initials', 'the initial letters of', 'what each one opens on', 'w[0]'),
  piece('finals', 'the final letters of', 'what each one closes on', 'w[-1]'),
  piece('repeats', 'the repetitions of', 'each one said two times', 'w * 2'),
  piece(
    'lengths',
    'the lengths of',
    'how many letters each one takes',
    'len(w)',
    kind='int',
  ),
  piece(
    'vowels',
    'the vowel counts of',
    'how many sounds of each one can be sung',
    "sum(c in 'aeiou' for c in w)",
    kind='int',
  ),
)
_LETTER_MAPS = (
  SAME,
  piece('capitals', 'the capital forms of', 'each one shouted', 'c.upper()'),
  piece('repeats', 'the repetitions of', 'each one said two times', 'c * 2'),
  piece(
    'successors',
    'the successors of',
    'the one that follows each',
    'chr(ord(c) + 1)',
  ),
  piece(
    'places',
    'the alphabet places of',
    'where each one stands in the alphabet',
    'ord(c) - 96',
    kind='int',
  ),
)
_ENTRY_MAPS = (
  piece('keys', 'the keys of', 'their names', 'k', kind='str'),
  piece('values', 'the values of', 'what they are worth', 'v', kind='int'),
  piece(
    'doubles',
    'the doubled values of',
    'what they are worth, taken two times',
    'v * 2',
    kind='int',
  ),
  piece(
    'lengths',
    'the key lengths of',
    'how many letters their names take',
    'len(k)',
    kind='int',
  ),
)

# --- Reduces ------------------------------------------------------------------

_NUMBER_REDUCES = (
  piece('sum', 'the sum of', 'what all of it comes to', 'sum($v)'),
  piece(
    'product',
    'the product of',
    'what it comes to when you multiply',
    'result = 1\nfor n in $v:\n  result *= n\nresult',
  ),
  piece('largest', 'the largest of', 'the one that tops all others', 'max($v)'),
  piece('smallest', 'the smallest of', 'the one below all others', 'min($v)'),
  piece('count', 'the count of', 'how many there are', 'len($v)'),
  piece(
    'list',
    'the list of',
    'one after another, as they come',
    'list($v)',
    kind='list',
  ),
  piece(
    'ascending',
    'the ascending list of',
    'one after another, from low to high',
    'sorted($v)',
    kind='list',
  ),
  piece(
    'descending',
    'the descending list of',
    'one after another, from high to low',
    'sorted($v, reverse=True)',
    kind='list',
  ),
  piece(
    'reversed',
    'the reversed list of',
    'one after another, from back to front',
    'list($v)[::-1]',
    kind='list',
  ),
  piece(
    'distinct',
    'the distinct count of',
    'how many different ones there are',
    'len(set($v))',
  ),
  piece(
    'unique',
    'the unique list of',
    'each different one once, from low to high',
    'sorted(set($v))',
    kind='list',
  ),
  piece(
    'spread',
    'the spread of',
    'how far the top one is from the bottom one',
    'max($v) - min($v)',
  ),
  piece('first', 'the first of', 'the one at the front', 'list($v)[0]'),
  piece('last', 'the last of', 'the one at the back', 'list($v)[-1]'),
  piece(
    'mean',
    'the rounded mean of',
    'what a fair share of it is',
    'sum($v) // len($v)',
  ),
  piece(
    'running',
    'the running sums of',
    'how it grows step by step',
    'sums = []\ntotal = 0\nfor n in $v:\n'
    '  total += n\n  sums.append(total)\nsums',
    kind='list',
  ),
)
_TEXT_REDUCES = (
  piece(
    'join',
    'the text joined by "$s" of',
    'all glued together with "$s"',
    "'$s'.join($v)",
    s=_MARKS,
  ),
  piece('text', 'the joined text of', 'all glued together', "''.join($v)"),
  piece('count', 'the count of', 'how many there are', 'len($v)', kind='int'),
  piece(
    'list',
    'the list of',
    'one after another, as they come',
    'list($v)',
    kind='list',
  ),
  piece(
    'alphabetical',
    'the alphabetical list of',
    'one after another, as in a dictionary',
    'sorted($v)',
    kind='list',
  ),
  piece(
    'reversed',
    'the reversed list of',
    'one after another, from back to front',
    'list($v)[::-1]',
    kind='list',
  ),
  piece(
    'longest',
    'the longest of',
    'the one that takes the most room',
    'max($v, key=len)',
  ),
  piece(
    'shortest',
    'the shortest of',
    'the one that takes the least room',
    'min($v, key=len)',
  ),
  piece('first', 'the first of', 'the one at the front', 'list($v)[0]'),
  piece('last', 'the last of', 'the one at the back', 'list($v)[-1]'),
  piece(
    'distinct',
    'the distinct count of',
    'how many different ones there are',
    'len(set($v))',
    kind='int',
  ),
  piece(
    'size',
    'the total length of',
    'how much room all of it takes',
    "len(''.join($v))",
    kind='int',
  ),
)
_LETTER_REDUCES = tuple(
  p for p in _TEXT_REDUCES if p.name not in ('longest', 'shortest', 'size')
)


def _phrase(words: list[str]) -> str:
  return ' '.join(words)


DOMAINS = (
  Domain(
    'numbers',
    argument='nums',
    source='nums',
    element='x',
    kind='int',
    text='numbers',
    place='a list',
    draw=_number,
    build=list,
    sizes=(4, 6),
    filters=_NUMBER_FILTERS + _LOOSE_NUMBER_FILTERS,
    maps=_NUMBER_MAPS,
    reduces={'int': _NUMBER_REDUCES},
  ),
  Domain(
    'words',
    argument='text',
    source='text.split()',
    element='w',
    kind='str',
    text='words',
    place='a sentence',
    draw=_word,
    build=_phrase,
    sizes=(3, 6),
    filters=_WORD_FILTERS + _LOOSE_WORD_FILTERS,
    maps=_WORD_MAPS,
    reduces={'int': _NUMBER_REDUCES, 'str': _TEXT_REDUCES},
  ),
  Domain(
    'letters',
    argument='word',
    source='word',
    element='c',
    kind='str',
    text='letters',
    place='a word',
    draw=_letter,
    build=''.join,
    sizes=(5, 9),
    filters=_LETTER_FILTERS + _LOOSE_LETTER_FILTERS,
    maps=_LETTER_MAPS,
    reduces={'int': _NUMBER_REDUCES, 'str': _LETTER_REDUCES},
  ),
  Domain(
    'entries',
    argument='table',
    source='table.items()',
    element='k, v',
    kind='int',
    text='entries',
    place='a dictionary',
    draw=_entry,
    build=dict,
    sizes=(3, 5),
    filters=_ENTRY_FILTERS + _LOOSE_ENTRY_FILTERS,
    maps=_ENTRY_MAPS,
    reduces={'int': _NUMBER_REDUCES, 'str': _TEXT_REDUCES},
  ),
)
