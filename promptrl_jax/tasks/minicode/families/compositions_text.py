"""Families of two-step problems about strings: split, filter, map, join.

The families of the `ood` split combine steps that each occur in other families
but never together.
"""

from __future__ import annotations

import random
import string

from promptrl_jax.tasks.minicode.families import draw
from promptrl_jax.tasks.minicode.family import Family

_BY_LENGTH = {
  1: ('a', 'I', 'x', 'o'),
  2: ('to', 'at', 'of', 'we', 'go', 'up', 'is'),
  3: ('sky', 'sun', 'red', 'map', 'tea', 'owl', 'ice'),
  4: ('code', 'tree', 'rain', 'blue', 'moon', 'kite'),
  5: ('apple', 'ocean', 'river', 'stone', 'light'),
  6: ('violet', 'planet', 'garden', 'silver'),
  7: ('kitchen', 'morning', 'picture', 'diamond'),
}
_SEPARATORS = ('-', '_', '+', '/', '|', '*')


def _phrase(rng: random.Random, k: int, budget: int = 22) -> str:
  """Words of many lengths, often `k` or next to it; at least one has length `k`."""
  lengths = [k]
  while sum(lengths) + len(lengths) < budget - 6 and len(lengths) < 5:
    choice = k + rng.choice((-1, 0, 1)) if rng.random() < 0.6 else rng.randint(1, 6)
    lengths.append(min(7, max(1, choice)))
  if rng.random() < 0.3:
    lengths[0] = rng.randint(1, 7)
  rng.shuffle(lengths)
  return ' '.join(rng.choice(_BY_LENGTH[n]) for n in lengths)


def _word_list(rng: random.Random, a: str) -> list[str]:
  """Two to four words of which most contain the letter `a`."""
  words = []
  for _ in range(rng.randint(2, 3)):
    text = draw.letters(rng, 'bdgmnrst' + 'aeiou', 3, 6)
    if rng.random() < 0.6:
      spot = rng.randrange(len(text))
      text = text[:spot] + a + text[spot + 1 :]
    words.append(text)
  return words


def _with_letter(rng: random.Random, a: str, least: int, most: int) -> str:
  """A string in which the letter `a` is frequent."""
  return draw.letters(rng, 'abcdeghiklmnoprstu' + a * 5, least, most)


def _letters_and_digits(rng: random.Random, a: int) -> str:
  """Letters mixed with digits, many of them near `a`."""
  chars = []
  for _ in range(rng.randint(5, 9)):
    if rng.random() < 0.4:
      chars.append(rng.choice('abcdefxyz'))
    else:
      chars.append(str(rng.choice((a, min(9, a + 1), rng.randint(1, 9)))))
  return ''.join(chars)


def _separated(rng: random.Random, a: str, others: str, least: int, most: int) -> str:
  """Letters with separators between them: mostly `a`, sometimes others."""
  pieces = []
  for _ in range(rng.randint(3, 4)):
    pieces.append(draw.letters(rng, string.ascii_lowercase, least, most))
    pieces.append(a if rng.random() < 0.7 else rng.choice(others))
  return ''.join(pieces[:-1])


FAMILIES: tuple[Family, ...] = (
  Family(
    name='words_filter_join',
    group='composition',
    canonical=(
      'Write a function to keep the words of a sentence that have at least $a letters and join '
      'them with "$b".'
    ),
    paraphrases=(
      ('Given a sentence, drop each word shorter than $a and return the others with "$b" between '
       'them.'),
      ('Words are separated by blanks; those with $a or more letters are put together again, '
       'this time separated by "$b".'),
      ('Create a function that splits text at spaces, discards words of fewer than $a characters '
       'and connects the rest by "$b".'),
    ),
    terse='Join words with at least $a letters.',
    names=('join_long_words', 'words_filter_join', 'connect_words', 'long_${a}_joined'),
    code="""\
def $f(text):
  words = [w for w in text.split() if len(w) >= $a]
  return '$b'.join(words)
""",
    inputs=lambda rng, p: (_phrase(rng, p['a']),),
    params={'a': range(2, 7), 'b': _SEPARATORS},
  ),
  Family(
    name='words_with_prefix',
    group='composition',
    canonical=(
      'Write a function to select the words of a list that contain "$a" and shorten each to its '
      'first $b letters.'
    ),
    paraphrases=(
      'Given a list of words, return the first $b characters of every word in which "$a" occurs.',
      'Words without "$a" are removed, and all others are cut off after $b letters.',
      ('Implement a function that filters words by the presence of "$a" and then truncates them '
       'to length $b.'),
    ),
    terse='Shorten the words that contain "$a".',
    names=('shorten_words', 'prefixes_with_$a', 'cut_matching', 'select_and_cut'),
    code="""\
def $f(words):
  result = []
  for w in words:
    if '$a' in w:
      result.append(w[:$b])
  return result
""",
    inputs=lambda rng, p: (_word_list(rng, p['a']),),
    params={'a': 'aeioust', 'b': range(2, 6)},
  ),
  Family(
    name='remove_letter_take',
    group='composition',
    canonical=(
      'Write a function to remove every "$a" from a string and return the first $b characters of '
      'the rest.'
    ),
    paraphrases=(
      ('Given a text, skip all occurrences of "$a" and return the initial $b of the remaining '
       'characters.'),
      'The letter "$a" is deleted everywhere, after which only a prefix of length $b is kept.',
      ('Create a function that collects the first $b characters of a string that are different '
       'from "$a".'),
    ),
    terse='First $b characters without a letter.',
    names=('remove_and_take', 'skip_$a', 'first_without', 'drop_letter_prefix'),
    code="""\
def $f(text):
  rest = text.replace('$a', '')
  return rest[:$b]
""",
    inputs=lambda rng, p: (_with_letter(rng, p['a'], 8, 13),),
    params={'a': 'aeorst', 'b': range(2, 8)},
  ),
  Family(
    name='replace_reverse',
    group='composition',
    canonical=(
      'Write a function to replace every "$a" in a string by "$b" and reverse the resulting '
      'string.'
    ),
    paraphrases=(
      ('Given a text, exchange the letter "$a" for "$b" wherever it stands, then return the text '
       'backwards.'),
      'All occurrences of "$a" become "$b", and the characters are returned in opposite order.',
      ('Implement a function that reads a string from its end to its start, writing "$b" '
       'instead of "$a".'),
    ),
    terse='Reverse a string, replacing "$a".',
    names=('replace_reverse', 'swap_${a}_${b}_reversed', 'mirror_replace', 'backwards_with'),
    code="""\
def $f(text):
  result = ''
  for ch in text:
    result = ('$b' if ch == '$a' else ch) + result
  return result
""",
    inputs=lambda rng, p: (_with_letter(rng, p['a'], 4, 9),),
    params={'a': 'abcdeg', 'b': 'uvwxyz'},
  ),
  Family(
    name='digits_in_text_sum',
    group='composition',
    canonical=(
      'Write a function to add up the digits in a string that are greater than $a and multiply '
      'the sum by $b.'
    ),
    paraphrases=(
      ('Given a text of letters and digits, total the digits exceeding $a and return $b times '
       'that total.'),
      ('From the string, digits up to $a and all other characters are ignored; the sum of what '
       'remains is scaled by $b.'),
      ('Create a function that finds the digit characters larger than $a, sums their values and '
       'multiplies by $b.'),
    ),
    terse='Sum of digits above $a in text, scaled.',
    names=('text_digit_sum', 'digits_over_$a', 'scaled_digits', 'sum_of_digits'),
    code="""\
def $f(text):
  total = 0
  for ch in text:
    if ch.isdigit() and int(ch) > $a:
      total += int(ch)
  return total * $b
""",
    inputs=lambda rng, p: (_letters_and_digits(rng, p['a']),),
    params={'a': range(1, 7), 'b': range(2, 8)},
  ),
  Family(
    name='split_piece_lengths',
    group='composition',
    canonical=(
      'Write a function to split a string at each "$a" and return the lengths of the pieces that '
      'have at least $b characters.'
    ),
    paraphrases=(
      ('Given a text with "$a" as separator, list how long its parts are, leaving out parts '
       'shorter than $b.'),
      ('The string is cut wherever "$a" stands; the sizes of all resulting pieces are returned '
       'except those below $b.'),
      ('Implement a function that measures the fields between "$a" signs and keeps, in order, '
       'every length not less than $b.'),
    ),
    terse='Lengths of pieces between "$a".',
    names=('piece_lengths', 'field_sizes', 'split_min_$b', 'measure_parts'),
    code="""\
def $f(text):
  lengths = [len(piece) for piece in text.split('$a')]
  return [n for n in lengths if n >= $b]
""",
    inputs=lambda rng, p: (_separated(rng, p['a'], ',;:/|', 1, 6),),
    params={'a': ',;:/|', 'b': range(2, 7)},
  ),
  Family(
    name='sort_trim_letters',
    group='composition',
    canonical=(
      'Write a function to sort the letters of a word alphabetically and drop the first $a and '
      'the last $b of them.'
    ),
    paraphrases=(
      ('Given a lowercase word, order its letters from a to z and return the string without $a '
       'letters at the front and $b at the back.'),
      ('After the characters have been arranged in alphabetical order, $a are cut off at the '
       'beginning and $b at the end.'),
      ('Create a function that leaves out the $a letters that come earliest in the alphabet and '
       'the $b latest, returning the others sorted.'),
    ),
    terse='Sort letters, drop $a at the front.',
    names=('sort_and_trim', 'trim_sorted', 'inner_letters', 'drop_${a}_and_${b}'),
    code="""\
def $f(word):
  letters = ''.join(sorted(word))
  return letters[$a:len(letters) - $b]
""",
    inputs=lambda rng, p: (draw.letters(rng, string.ascii_lowercase, 11, 14),),
    params={'a': range(2, 6), 'b': range(2, 6)},
  ),
  Family(
    name='upper_every_repeat',
    group='composition',
    canonical=(
      'Write a function to upper-case the characters whose index is a multiple of $a and repeat '
      'the resulting string $b times.'
    ),
    paraphrases=(
      ('Given a text, capitalize the letters at index 0, $a and so on in equal steps, then return '
       '$b copies of it in a row.'),
      ('Letters standing at indices divisible by $a become capitals, and the whole string is '
       'written $b times without a gap.'),
      ('Implement a function that returns $b times the string in which one letter out of every '
       '$a, starting with the first, is made upper case.'),
    ),
    terse='Upper-case every $a letters, repeat.',
    names=('upper_and_repeat', 'upper_every_$a', 'loud_repeat', 'repeat_${b}_times'),
    code="""\
def $f(text):
  result = ''
  for i, ch in enumerate(text):
    result += ch.upper() if i % $a == 0 else ch
  return result * $b
""",
    inputs=lambda rng, p: (draw.letters(rng, 'abcdefghijk', 4, 8),),
    params={'a': range(2, 7), 'b': range(2, 6)},
  ),
  Family(
    name='shift_take_last',
    group='composition',
    canonical=(
      'Write a function to move each lowercase letter of a word $a places on in the alphabet, '
      'wrapping around, and return the last $b letters.'
    ),
    paraphrases=(
      ('Given a lowercase word, apply a Caesar shift by $a (z is followed by a) and return the '
       'final $b characters.'),
      ('Letters are replaced by those $a steps later, starting over after z, and only the $b at '
       'the end of the result are kept.'),
      ('Create a function that encrypts a word with shift $a, cyclically, and cuts off all but '
       'its $b trailing letters.'),
    ),
    terse='Shift letters by $a, return the end.',
    names=('shift_and_take', 'caesar_tail', 'shift_${a}_last_${b}', 'encode_end'),
    code="""\
def $f(word):
  shifted = ''
  for ch in word:
    shifted += chr((ord(ch) - ord('a') + $a) % 26 + ord('a'))
  return shifted[-$b:]
""",
    inputs=lambda rng, p: (draw.letters(rng, string.ascii_lowercase, 6, 9),),
    params={'a': range(2, 9), 'b': range(2, 7)},
  ),
  Family(
    name='word_lengths_scaled',
    group='composition',
    canonical=(
      'Write a function to list the lengths of the words in a sentence that are longer than $a '
      'letters, each multiplied by $b.'
    ),
    paraphrases=(
      ('Given a sentence, return $b times the length of every word that has more than $a '
       'characters.'),
      ('The text is split at blanks, words of $a letters or fewer are ignored, and the lengths '
       'of the rest are scaled by $b.'),
      ('Implement a function that measures words, keeps lengths above $a and multiplies each one '
       'by $b.'),
    ),
    terse='Word lengths above $a, multiplied.',
    names=('scaled_lengths', 'lengths_over_$a', 'long_word_scores', 'measure_words'),
    code="""\
def $f(text):
  scores = []
  for w in text.split():
    if len(w) > $a:
      scores.append(len(w) * $b)
  return scores
""",
    inputs=lambda rng, p: (_phrase(rng, p['a'] + 1),),
    params={'a': range(2, 6), 'b': range(2, 8)},
  ),
  Family(
    name='remove_letter_upper',
    group='composition',
    canonical=(
      'Write a function to remove every "$a" from a string and upper-case the characters of the '
      'rest whose index is a multiple of $b.'
    ),
    paraphrases=(
      ('Given a text, delete the letter "$a" throughout, then turn the characters at index 0, $b '
       'and so on in equal steps into capitals.'),
      ('Once all occurrences of "$a" are gone, letters at indices divisible by $b in the '
       'shortened string become upper case.'),
      ('Create a function that skips "$a" and capitalizes one out of every $b remaining letters, '
       'beginning with the first.'),
    ),
    terse='Remove "$a", upper-case some of the rest.',
    names=('remove_and_upper', 'upper_without_$a', 'drop_then_raise', 'clean_and_mark'),
    code="""\
def $f(text):
  rest = [ch for ch in text if ch != '$a']
  for i in range(0, len(rest), $b):
    rest[i] = rest[i].upper()
  return ''.join(rest)
""",
    inputs=lambda rng, p: (_with_letter(rng, p['a'], 7, 12),),
    params={'a': 'aeorst', 'b': range(2, 7)},
    ood=True,
  ),
  Family(
    name='shift_sort_drop',
    group='composition',
    canonical=(
      'Write a function to shift each lowercase letter of a word cyclically by $a in the alphabet, '
      'sort the letters and drop the first $b.'
    ),
    paraphrases=(
      ('Given a lowercase word, apply a Caesar shift by $a (z is followed by a), order the result '
       'alphabetically and return it without its first $b letters.'),
      ('Letters are replaced by those $a steps later, starting over after z; of these, in sorted '
       'order, all but the $b earliest are returned.'),
      ('Implement a function that encrypts a word with cyclic shift $a, arranges the characters '
       'from a to z and cuts off $b at the front.'),
    ),
    terse='Shift letters by $a, sort, drop some.',
    names=('shift_sort_drop', 'sorted_shift_$a', 'encode_and_sort', 'shift_then_trim'),
    code="""\
def $f(word):
  shifted = []
  for ch in word:
    position = (ord(ch) - ord('a') + $a) % 26
    shifted.append('abcdefghijklmnopqrstuvwxyz'[position])
  return ''.join(sorted(shifted)[$b:])
""",
    inputs=lambda rng, p: (draw.letters(rng, string.ascii_lowercase, 6, 9),),
    params={'a': range(2, 9), 'b': range(2, 6)},
    ood=True,
  ),
  Family(
    name='split_prefixes',
    group='composition',
    canonical=(
      'Write a function to split a string at each "$a" and shorten every piece to its first $b '
      'characters.'
    ),
    paraphrases=(
      ('Given a text with "$a" as separator, return the list of its parts, each cut off after $b '
       'characters.'),
      ('The string is divided wherever "$a" stands, and of each resulting piece only the initial '
       '$b letters are kept.'),
      ('Create a function that truncates the fields between "$a" signs to length $b and returns '
       'them in order.'),
    ),
    terse='Split at "$a" and shorten the pieces.',
    names=('split_and_shorten', 'field_prefixes', 'cut_parts_to_$b', 'short_pieces'),
    code="""\
def $f(text):
  return [piece[:$b] for piece in text.split('$a')]
""",
    inputs=lambda rng, p: (_separated(rng, p['a'], ',;:/|', 2, 7),),
    params={'a': ',;:/|', 'b': range(2, 7)},
    ood=True,
  ),
  Family(
    name='digits_join',
    group='composition',
    canonical=(
      'Write a function to collect the digits in a string that are greater than $a and join them '
      'with "$b".'
    ),
    paraphrases=(
      ('Given a text of letters and digits, return its digits exceeding $a with "$b" between '
       'them.'),
      ('From the string, digits up to $a and all other characters are dropped; what remains is '
       'written in order, separated by "$b".'),
      ('Implement a function that picks the digit characters larger than $a and connects '
       'them by "$b".'),
    ),
    terse='Join the digits above $a in text.',
    names=('join_digits', 'joined_over_$a', 'connect_digits', 'pick_digits'),
    code="""\
def $f(text):
  digits = []
  for ch in text:
    if ch.isdigit() and int(ch) > $a:
      digits.append(ch)
  return '$b'.join(digits)
""",
    inputs=lambda rng, p: (_letters_and_digits(rng, p['a']),),
    params={'a': range(1, 7), 'b': _SEPARATORS},
    ood=True,
  ),
)
