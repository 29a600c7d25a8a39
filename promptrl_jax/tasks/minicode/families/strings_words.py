"""Families on words and sentences: filters, padding, affixes, joining, formatting."""

from __future__ import annotations

import random

from promptrl_jax.tasks.minicode.families import draw
from promptrl_jax.tasks.minicode.family import Family

INITIALS = 'abcdefglmnorstvw'
ENDINGS = 'abdefgklmnoprstx'
INNER = 'abcdegilmnoprstu'
STEMS = ('ba', 'ko', 'tri', 'me', 'san', 'du', 'fo', 'pla', 'wi', 'ne', 'go', 'cra')
PREFIXES = (
  'un', 're', 'pre', 'in', 'de', 'non', 'mis', 'up', 'over', 'out', 'sub', 'co', 'anti', 'semi',
  'inter', 'fore',
)
SUFFIXES = (
  'ing', 'ed', 'ly', 'er', 'est', 'ness', 'ful', 'less', 'able', 'ism', 'ist', 'ment', 'ion', 'al',
  'ous', 'ity',
)
SHORT = [w for w in draw.WORDS if len(w) <= 5]
LENGTHS = ['a', 'to', 'of', 'in', 'sun', 'map', 'sky', 'tree', 'code', 'wood', 'apple', 'river', 'cloud', 'planet', 'silver', 'garden', 'journey', 'weather', 'kitchen', 'mountain', 'keyboard', 'chocolate', 'telephone']


def _initial(rng: random.Random, c: str) -> list[str]:
  """Words, two or three of which begin with `c`."""
  mine = [w for w in draw.WORDS if w[0] == c]
  chosen = [rng.choice(mine) for _ in range(rng.randint(1, 3))] + draw.words(rng, 1, 2)
  rng.shuffle(chosen)
  return chosen


def _ending(rng: random.Random, c: str) -> list[str]:
  """Made-up words, some of which end with `c`."""
  ends = [c, c, *rng.sample(ENDINGS, rng.randint(1, 3))]
  return [rng.choice(STEMS) + rng.choice(ends) for _ in range(rng.randint(3, 5))]


def _lengths(rng: random.Random, k: int, least: int = 3, most: int = 5) -> list[str]:
  """Words of various lengths, with those around `k` preferred."""
  close = [w for w in LENGTHS if abs(len(w) - k) <= 1]
  return [rng.choice(close if rng.random() < 0.8 else LENGTHS) for _ in range(
    rng.randint(least, most))]


def _almost_palindrome(rng: random.Random, c: str) -> str:
  """A palindrome with a letter, mostly `c`, inserted once or twice."""
  half = ''.join(rng.sample('adehlnot', rng.randint(2, 3)))
  text = half + rng.choice(('', rng.choice('xyz'))) + half[::-1]
  extra = c if rng.random() < 0.5 else rng.choice(INNER)
  for _ in range(rng.randint(1, 2)):
    i = rng.randint(0, len(text))
    text = text[:i] + extra + text[i:]
  return text


def _replace_case(rng: random.Random, a: str) -> str:
  """A sentence in which the word `a` occurs among others."""
  chosen = [a] * rng.randint(1, 2) + draw.words(rng, 1, 3)
  rng.shuffle(chosen)
  return ' '.join(chosen)


def _separated(rng: random.Random, s: str) -> str:
  """Pieces joined by `s`, some of which contain another separator."""
  pieces = [draw.letters(rng, 'abcdefghkmnprst', 1, 2) for _ in range(rng.randint(4, 5))]
  i = rng.randrange(len(pieces))
  pieces[i] = 'w' + rng.choice([t for t in ',;:|/' if t != s]) + pieces[i]
  return s.join(pieces)


def _some_with(rng: random.Random, c: str) -> list[str]:
  """Short words, at least one of which contains `c`."""
  chosen = rng.sample([w for w in SHORT if c in w], rng.choice((1, 1, 2)))
  chosen += rng.sample([w for w in SHORT if w not in chosen], rng.randint(3, 4) - len(chosen))
  rng.shuffle(chosen)
  return chosen


def _affixed(rng: random.Random, prefix: str = '', suffix: str = '') -> str:
  """A word that has the given affix in two of three draws."""
  body = rng.choice(('play', 'work', 'cook', 'form', 'view', 'read', 'help', 'kind', 'care', 'use'))
  if rng.random() < 0.67:
    return prefix + body + suffix
  return (rng.choice(PREFIXES) if prefix else '') + body + (rng.choice(SUFFIXES) if suffix else '')


def _framed(rng: random.Random, a: str, b: str) -> str:
  """A word that often begins with `a` and ends with `b`."""
  first = a if rng.random() < 0.72 else rng.choice('bcdmps')
  last = b if rng.random() < 0.72 else rng.choice('eknrt')
  return first + draw.letters(rng, 'aeiolu', 1, 4) + last


FAMILIES: tuple[Family, ...] = (
  Family(
    name='word_count_initial',
    group='string',
    canonical='Write a function to count the words in a list that start with the letter "$c".',
    paraphrases=(
      'Given several words, how many of them have "$c" as their initial?',
      'The number of entries beginning with "$c" in a list of words is to be returned.',
      'Create a function that tells how often a word of the list opens with "$c".',
    ),
    terse='Count words by their initial.',
    names=('count_starting', 'count_words_$c', 'initial_count', 'words_beginning_with'),
    code="""\
def $f(words):
  count = 0
  for word in words:
    if word.startswith('$c'):
      count += 1
  return count
""",
    inputs=lambda rng, p: (_initial(rng, p['c'] if rng.random() < 0.9 else 'h'),),
    params={'c': INITIALS},
  ),
  Family(
    name='word_list_ending',
    group='string',
    canonical='Write a function to list the words of a sentence that end with the letter "$c", in '
    'order.',
    paraphrases=(
      'Given a sentence, return as a list those of its words whose final letter is "$c".',
      'From blank-separated text, the words closing with "$c" should be picked out, order kept.',
      'Create a function that splits a sentence and keeps, in a list, only words with "$c" at '
      'their end.',
    ),
    terse='List words by their last letter.',
    names=('words_ending', 'ending_in_$c', 'filter_by_last', 'pick_words'),
    code="""\
def $f(sentence):
  return [word for word in sentence.split() if word.endswith('$c')]
""",
    inputs=lambda rng, p: (' '.join(_ending(rng, p['c'])),),
    params={'c': ENDINGS},
  ),
  Family(
    name='word_drop_containing',
    group='string',
    canonical='Write a function to remove from a list all words that contain the letter "$c".',
    paraphrases=(
      'Given several words, return just those without any "$c" in them, as a list.',
      'Words in which "$c" occurs should be discarded from the list; the others stay in order.',
      'Create a function that keeps the entries of a word list that are free of "$c".',
    ),
    terse='Remove words containing a letter.',
    names=('drop_words', 'words_minus_$c', 'exclude_letter', 'filter_words'),
    code="""\
def $f(words):
  kept = []
  for word in words:
    if '$c' not in word:
      kept.append(word)
  return kept
""",
    inputs=lambda rng, p: (_some_with(rng, p['c']),),
    params={'c': INNER},
  ),
  Family(
    name='word_replace_word',
    group='string',
    canonical='Write a function to replace each word "$a" of a sentence with the word "$b".',
    paraphrases=(
      'Given a sentence of words with single blanks, write "$b" wherever the word "$a" stands.',
      'Whenever "$a" turns up as a word of the text, it is to be exchanged for "$b".',
      'Create a function that substitutes "$b" for the word "$a" throughout a sentence.',
    ),
    terse='Replace a word in a sentence.',
    names=('replace_word', 'swap_word', '${a}_to_$b', 'substitute_word'),
    code="""\
def $f(sentence):
  words = sentence.split(' ')
  return ' '.join('$b' if word == '$a' else word for word in words)
""",
    inputs=lambda rng, p: (_replace_case(rng, p['a']),),
    params={
      'a': ('sun', 'map', 'tree', 'red', 'sky'),
      'b': ('moon', 'book', 'blue', 'rock', 'lamp'),
    },
  ),
  Family(
    name='word_pad_left',
    group='string',
    canonical='Write a function to pad a string on the left with "$s" until it has at least $k '
    'characters.',
    paraphrases=(
      'Given a text, put as many "$s" in front of it as are needed to reach length $k.',
      'A text shorter than $k characters should be filled up at its beginning with "$s".',
      'Create a function that right-aligns a text in a field of width $k using "$s" as filler.',
    ),
    terse='Pad a string on the left.',
    names=('pad_left', 'fill_front', 'pad_to_$k', 'align_right'),
    code="""\
def $f(text):
  while len(text) < $k:
    text = '$s' + text
  return text
""",
    inputs=lambda rng, p: (draw.letters(rng, 'abcdefgh', 1, 7),),
    params={'s': '*-_#.0', 'k': range(5, 10)},
  ),
  Family(
    name='word_join_and_end',
    group='string',
    canonical='Write a function to join a list of words with "$s" between them and append "$e" at '
    'the end.',
    paraphrases=(
      'Given several words, connect neighbours by "$s" and finish the resulting string with "$e".',
      'The words are to be glued together, "$s" serving as separator and "$e" as final mark.',
      'Create a function building one string from a word list: "$s" as delimiter, "$e" to close.',
    ),
    terse='Join words and add a final mark.',
    names=('join_words', 'join_with_end', 'build_line', 'glue'),
    code="""\
def $f(words):
  return '$s'.join(words) + '$e'
""",
    inputs=lambda rng, p: (draw.words(rng, 2, 4),),
    params={'s': '-_/+|', 'e': '!?.;:'},
  ),
  Family(
    name='word_split_part',
    group='string',
    canonical='Write a function to split a string at each "$s" and return the part with index $k.',
    paraphrases=(
      'Given a text of fields separated by "$s", return field number $k, counting from zero.',
      'The text is to be cut wherever "$s" stands; of the pieces, the one at index $k is wanted.',
      'Create a function that fetches item $k (the first is item 0) of a "$s"-delimited record.',
    ),
    terse='Get one field of a separated string.',
    names=('get_field', 'split_part', 'field_$k', 'piece_of_text'),
    code="""\
def $f(text):
  parts = text.split('$s')
  return parts[$k]
""",
    inputs=lambda rng, p: (_separated(rng, p['s']),),
    params={'s': ',;:|/', 'k': range(4)},
  ),
  Family(
    name='word_add_prefix',
    group='string',
    canonical='Write a function to put "$p" in front of a word unless the word already starts with '
    'it.',
    paraphrases=(
      'Given a word, make sure that it has the prefix "$p", adding it only where it is missing.',
      'A word that does not begin with "$p" should get it prepended; any other is returned as is.',
      'Create a function that returns its argument if that opens with "$p", else "$p" plus the '
      'argument.',
    ),
    terse='Add a missing prefix to a word.',
    names=('add_prefix', 'ensure_$p', 'prepend_if_missing', 'with_prefix'),
    code="""\
def $f(word):
  if word.startswith('$p'):
    return word
  return '$p' + word
""",
    inputs=lambda rng, p: (_affixed(rng, prefix=p['p']),),
    params={'p': PREFIXES},
  ),
  Family(
    name='word_strip_suffix',
    group='string',
    canonical='Write a function to remove the suffix "$e" from the end of a word if it is there.',
    paraphrases=(
      'Given a word, cut off a trailing "$e" once; words with other endings are left alone.',
      'If the word closes with "$e", return what precedes that ending, otherwise the whole word.',
      'Create a simple stemmer that discards the ending "$e" from words which have it.',
    ),
    terse='Remove a suffix from a word.',
    names=('strip_suffix', 'cut_$e', 'remove_ending', 'stem_word'),
    code="""\
def $f(word):
  if word.endswith('$e'):
    return word[:-len('$e')]
  return word
""",
    inputs=lambda rng, p: (_affixed(rng, suffix=p['e']),),
    params={'e': SUFFIXES},
  ),
  Family(
    name='word_truncate',
    group='string',
    canonical='Write a function to shorten a string longer than $k characters to its first $k '
    'characters followed by "$m".',
    paraphrases=(
      'Given a text, keep $k characters at most and mark a cut by adding "$m"; texts that fit are '
      'returned as they are.',
      'Texts exceeding $k characters should be truncated to that length with "$m" appended.',
      'Create a preview function: up to $k characters are shown unchanged, and if more follow, '
      'they are replaced by "$m".',
    ),
    terse='Truncate a long string with a mark.',
    names=('truncate', 'shorten_text', 'preview', 'cut_at_$k'),
    code="""\
def $f(text):
  if len(text) <= $k:
    return text
  return text[:$k] + '$m'
""",
    inputs=lambda rng, p: (draw.letters(rng, 'abcdefghij', p['k'] - 1, p['k'] + 5),),
    params={'k': range(3, 9), 'm': ('...', '~', '+', '>')},
  ),
  Family(
    name='word_reverse_long',
    group='string',
    canonical='Write a function to reverse each word of a sentence that has at least $k letters.',
    paraphrases=(
      'Given a sentence, spell its words of $k or more letters backwards, in their places.',
      'Words whose length is $k or greater should be flipped; shorter words stay unchanged.',
      'Create a function that mirrors all words not shorter than $k in blank-separated text.',
    ),
    terse='Reverse the long words of a sentence.',
    names=('reverse_long_words', 'flip_words', 'reverse_words_$k', 'mirror_words'),
    code="""\
def $f(sentence):
  result = []
  for word in sentence.split():
    if len(word) >= $k:
      word = word[::-1]
    result.append(word)
  return ' '.join(result)
""",
    inputs=lambda rng, p: (' '.join(_lengths(rng, p['k'], 2, 3)),),
    params={'k': range(3, 10)},
  ),
  Family(
    name='word_upper_initial',
    group='string',
    canonical='Write a function to convert to uppercase all words of a sentence that start with '
    '"$c".',
    paraphrases=(
      'Given a sentence in small letters, capitalise completely each word whose initial is "$c".',
      'Words beginning with "$c" are to be written in capitals, the remaining ones as before.',
      'Create a function that shouts (all capitals) the words opening with "$c" in a sentence.',
    ),
    terse='Uppercase some words of a sentence.',
    names=('upper_words', 'shout_$c', 'capitalize_matching', 'emphasize_words'),
    code="""\
def $f(sentence):
  words = sentence.split()
  return ' '.join(w.upper() if w[0] == '$c' else w for w in words)
""",
    inputs=lambda rng, p: (' '.join(_initial(rng, p['c'])[:4]),),
    params={'c': INITIALS},
  ),
  Family(
    name='word_palindrome_without',
    group='string',
    canonical='Write a function to check whether a string is a palindrome once every letter "$c" '
    'is removed.',
    paraphrases=(
      'Ignoring any "$c", does the given text read the same forwards and backwards?',
      'Return True if what is left of the text after deleting "$c" equals its own reverse, else '
      'False.',
      'Create a test for palindromes in which occurrences of "$c" are skipped.',
    ),
    terse='Check for a palindrome ignoring a letter.',
    names=('is_palindrome_without', 'palindrome_ignoring_$c', 'check_mirror', 'almost_palindrome'),
    code="""\
def $f(text):
  cleaned = text.replace('$c', '')
  return cleaned == cleaned[::-1]
""",
    inputs=lambda rng, p: (_almost_palindrome(rng, p['c']),),
    params={'c': INNER},
    ood=True,
  ),
  Family(
    name='word_abbreviate',
    group='string',
    canonical='Write a function to abbreviate a sentence by joining the first $k letters of each '
    'word, in uppercase, with "$s".',
    paraphrases=(
      'Given a sentence, take $k leading letters of every word as capitals and put "$s" between.',
      'Each word is to be reduced to its initial $k letters; these, capitalised, are connected by '
      '"$s".',
      'Create an acronym maker: opening $k characters per word, in capitals, "$s" as separator.',
    ),
    terse='Make an acronym of a sentence.',
    names=('abbreviate', 'acronym', 'initials_$k', 'short_form'),
    code="""\
def $f(sentence):
  parts = []
  for word in sentence.split():
    parts.append(word[:$k].upper())
  return '$s'.join(parts)
""",
    inputs=lambda rng, p: (draw.sentence(rng, 2, 4),),
    params={'k': range(1, 4), 's': '.-_/:+'},
  ),
  Family(
    name='word_collect_kth_chars',
    group='string',
    canonical='Write a function to build a string from the character at index $k of each word in a '
    'list, using "$d" for shorter words.',
    paraphrases=(
      'Given several words, concatenate what stands at zero-based position $k in each, with "$d" '
      'where a word has no such position.',
      'Character number $k (from zero) of every word is to be collected; "$d" stands in if it is '
      'missing.',
      'Create a function that reads down column $k of a word list, columns counted from 0, filling '
      'gaps by "$d".',
    ),
    terse='Collect one character of each word.',
    names=('collect_chars', 'column_$k', 'chars_at_index', 'read_column'),
    code="""\
def $f(words):
  result = ''
  for word in words:
    result += word[$k] if len(word) > $k else '$d'
  return result
""",
    inputs=lambda rng, p: (_lengths(rng, p['k'] + 1, 3, 5),),
    params={'k': range(1, 6), 'd': '-_*.'},
  ),
  Family(
    name='word_to_camel',
    group='string',
    canonical='Write a function to convert words separated by "$s" in a string to camel case.',
    paraphrases=(
      'Given lowercase words with "$s" between them, return one camelCase identifier, first letter '
      'small.',
      'The "$s" signs are to be taken out and each word but the first capitalised.',
      'Create a function turning text delimited by "$s" into camelCase.',
    ),
    terse='Convert a string to camel case.',
    names=('to_camel', 'camel_case', 'make_identifier', 'camelize'),
    code="""\
def $f(text):
  first, *rest = text.split('$s')
  return first + ''.join(word.capitalize() for word in rest)
""",
    inputs=lambda rng, p: (p['s'].join(draw.words(rng, 2, 4)),),
    params={'s': '_-.:/+~#|'},
  ),
  Family(
    name='word_mark_long',
    group='string',
    canonical='Write a function to put "$s" before and after each word of a sentence that has more '
    'than $k letters.',
    paraphrases=(
      'Given a sentence, surround its words that are longer than $k with "$s" on both sides.',
      'Words exceeding $k letters should be enclosed in "$s"; the rest of the sentence is kept.',
      'Create a function that emphasises words of over $k letters by wrapping them in "$s".',
    ),
    terse='Mark the long words of a sentence.',
    names=('mark_long_words', 'wrap_words', 'emphasize_over_$k', 'enclose_words'),
    code="""\
def $f(sentence):
  marked = []
  for word in sentence.split():
    marked.append('$s' + word + '$s' if len(word) > $k else word)
  return ' '.join(marked)
""",
    inputs=lambda rng, p: (' '.join(_lengths(rng, p['k'] + 1, 2, 3)),),
    params={'s': '*_~|', 'k': range(2, 7)},
  ),
  Family(
    name='word_sort_by_letter_count',
    group='string',
    canonical='Write a function to sort a list of words by how often "$c" occurs in each, fewest '
    'first, keeping the order of ties.',
    paraphrases=(
      'Given several words, arrange them by increasing number of "$c"; equal ones stay in order.',
      'The words are to be ordered stably from those with the least "$c" to those with the most.',
      'Create a stable sort of a word list whose key is the count of "$c", ascending.',
    ),
    terse='Sort words by a letter count.',
    names=('sort_by_letter', 'order_by_$c', 'rank_words', 'arrange_by_count'),
    code="""\
def $f(words):
  return sorted(words, key=lambda word: word.count('$c'))
""",
    inputs=lambda rng, p: ([
      draw.letters(rng, p['c'] * 2 + ''.join(rng.sample(INNER, 3)), 3, 4)
      for _ in range(rng.randint(3, 4))
    ],),
    params={'c': INNER},
    ood=True,
  ),
  Family(
    name='word_label_pair',
    group='string',
    canonical='Write a function to format a word x and a number y as the string "$a: x, $b: y".',
    paraphrases=(
      'Given a word and a number, return a line that shows them with the labels "$a" and "$b", '
      'like "$a: word, $b: 7".',
      'The two arguments, labelled "$a" and "$b", should be written as "$a: first, $b: second".',
      'Create a record string of the form "$a: x, $b: y" out of the word x and the number y.',
    ),
    terse='Format a word and number with labels.',
    names=('format_record', 'label_pair', 'describe_$a', 'make_line'),
    code="""\
def $f(x, y):
  return f'$a: {x}, $b: {y}'
""",
    inputs=lambda rng, p: (draw.word(rng), rng.randint(1, 99)),
    params={
      'a': ('name', 'user', 'item', 'city'),
      'b': ('age', 'count', 'score', 'price', 'size'),
    },
  ),
  Family(
    name='word_number_items',
    group='string',
    canonical='Write a function to prefix each word of a list with its number, counting from $k, '
    'followed by "$s".',
    paraphrases=(
      'Given several words, number them $k, $k + 1 and so on and write "$s" behind each number.',
      'Every entry of the word list should be preceded by a running number, which begins at $k, '
      'and "$s".',
      'Create labels made of a counter, "$s" and the word for all entries of a list, with $k as '
      'the first value of the counter.',
    ),
    terse='Number the words of a list.',
    names=('number_items', 'enumerate_from_$k', 'add_numbers', 'numbered_list'),
    code="""\
def $f(words):
  result = []
  number = $k
  for word in words:
    result.append(str(number) + '$s' + word)
    number += 1
  return result
""",
    inputs=lambda rng, p: (draw.words(rng, 2, 3),),
    params={'k': range(2, 7), 's': ').:-'},
  ),
  Family(
    name='word_starts_and_ends',
    group='string',
    canonical='Write a function to check whether a word starts with "$a" and ends with "$b".',
    paraphrases=(
      'Is "$a" the initial and "$b" the final letter of the given word? Answer True or False.',
      'Return True only for a word that has "$b" as its last letter and "$a" as its first.',
      'Create a predicate that holds for words opening with "$a" and closing with "$b".',
    ),
    terse='Check first and last letter.',
    names=('starts_and_ends', 'matches_ends', 'framed_by', 'check_${a}_$b'),
    code="""\
def $f(word):
  return word[0] == '$a' and word[-1] == '$b'
""",
    inputs=lambda rng, p: (_framed(rng, p['a'], p['b']),),
    params={'a': 'bcdmps', 'b': 'eknrt'},
  ),
)
