"""Families on the characters of a string: counts, positions, shifts, case and runs."""

from __future__ import annotations

import random
import string

from promptrl_jax.tasks.minicode.families import draw
from promptrl_jax.tasks.minicode.family import Family

LETTERS = 'abcdefghiklmnoprstuw'


def _has(rng: random.Random, chars: str, least: int = 5, most: int = 9) -> str:
  """A text of few letters in which every one of `chars` occurs, often more than once."""
  alphabet = chars * 2 + ''.join(rng.sample(LETTERS, 5))
  text = list(draw.letters(rng, alphabet, least, most) + chars)
  rng.shuffle(text)
  return ''.join(text)


def _distinct(rng: random.Random, least: int, most: int) -> str:
  """A text of lower-case letters without repeats."""
  return ''.join(rng.sample(string.ascii_lowercase, rng.randint(least, most)))


def _runs(rng: random.Random, c: str) -> str:
  """A text made of short runs; the longest tend to be of `c`."""
  others = rng.sample(LETTERS, 2)
  parts = [c * rng.randint(2, 5)]
  for _ in range(rng.randint(1, 3)):
    parts.append(rng.choice(others) * rng.randint(1, 3))
    parts.append(c * rng.randint(0, 3))
  rng.shuffle(parts)
  return ''.join(parts)[:14]


def _near(rng: random.Random, c: str) -> str:
  """A text with letters around `c` in the alphabet and some others."""
  close = c * 2 + chr(ord(c) + 1) * 2 + chr(ord(c) - 1)
  return draw.letters(rng, close + ''.join(rng.sample(LETTERS, 4)), 5, 10)


FAMILIES: tuple[Family, ...] = (
  Family(
    name='char_count_letter',
    group='string',
    canonical='Write a function to count how many times the letter "$c" appears in a string.',
    paraphrases=(
      'Given a text, tell how often the character "$c" occurs in it.',
      'The number of occurrences of "$c" in the given piece of text is to be returned.',
      'Implement a routine that takes some text and reports the frequency of "$c".',
    ),
    terse='Count a letter in a string.',
    names=('count_char', 'count_$c', 'letter_frequency', 'occurrences_of_letter'),
    code="""\
def $f(text):
  total = 0
  for ch in text:
    if ch == '$c':
      total += 1
  return total
""",
    inputs=lambda rng, p: (_has(rng, p['c'] * rng.choice((0, 1, 1, 2)) or 'xy'),),
    params={'c': LETTERS},
  ),
  Family(
    name='char_remove_letter',
    group='string',
    canonical='Write a function to remove all occurrences of the letter "$c" from a given string.',
    paraphrases=(
      'Given some text, return it with each "$c" discarded.',
      'Every "$c" should be deleted from the text that is passed in, keeping everything else.',
      'Implement a filter that leaves out the character "$c" wherever it stands in a text.',
    ),
    terse='Remove a letter from a string.',
    names=('remove_char', 'drop_$c', 'strip_letter', 'without_$c'),
    code="""\
def $f(text):
  return ''.join(ch for ch in text if ch != '$c')
""",
    inputs=lambda rng, p: (_has(rng, p['c']),),
    params={'c': LETTERS},
  ),
  Family(
    name='char_replace_by_symbol',
    group='string',
    canonical='Write a function to replace every letter "$a" in a string with the character "$b".',
    paraphrases=(
      'Given a text, return a copy in which "$b" stands wherever "$a" stood.',
      'All occurrences of "$a" in the input are to be substituted by "$b".',
      'Create a function that puts "$b" in place of each "$a" of a text.',
    ),
    terse='Replace the letter by a symbol.',
    names=('replace_char', 'mask_$a', 'substitute_letter', 'swap_out_$a'),
    code="""\
def $f(text):
  return text.replace('$a', '$b')
""",
    inputs=lambda rng, p: (_has(rng, p['a']),),
    params={'a': 'aeiost', 'b': '*-_#+.'},
  ),
  Family(
    name='char_positions',
    group='string',
    canonical='Write a function to find the list of indices at which the letter "$c" occurs in a '
    'string.',
    paraphrases=(
      'Given a text, return all zero-based positions of "$c" in increasing order, as a list.',
      'The places where "$c" stands in a text, counted from zero, should be collected in a list.',
      'Create a function that tells where in a text "$c" can be found, as a list of indexes.',
    ),
    terse='Find the positions of a letter.',
    names=('find_positions', 'indices_of_$c', 'where_is_letter', 'letter_indexes'),
    code="""\
def $f(text):
  positions = []
  for i, ch in enumerate(text):
    if ch == '$c':
      positions.append(i)
  return positions
""",
    inputs=lambda rng, p: (_has(rng, p['c']),),
    params={'c': LETTERS},
  ),
  Family(
    name='char_remove_first',
    group='string',
    canonical='Write a function to remove only the first occurrence of the letter "$c" from a '
    'string.',
    paraphrases=(
      'Given a text, discard its leftmost "$c" and leave any later ones in place.',
      'The earliest "$c" of the text is to be dropped; nothing else changes.',
      'Create a function that deletes a single "$c", the one nearest to the start of a text.',
    ),
    terse='Remove the first occurrence of a letter.',
    names=('remove_first', 'drop_first_$c', 'delete_once', 'cut_leading_letter'),
    code="""\
def $f(text):
  i = text.find('$c')
  if i < 0:
    return text
  return text[:i] + text[i + 1:]
""",
    inputs=lambda rng, p: (_has(rng, p['c'] * 2, 4, 8),),
    params={'c': LETTERS},
  ),
  Family(
    name='char_every_kth',
    group='string',
    canonical='Write a function to take every character of a string whose index is $s plus a '
    'multiple of $k.',
    paraphrases=(
      'Starting at position $s (counted from zero), pick characters of a text in steps of $k.',
      'Given a text, skip its first $s characters and then keep one character out of each $k, '
      'beginning with the first.',
      'Create a function that returns the characters at positions $s, $s + $k, $s + 2 * $k and '
      'so on.',
    ),
    terse='Take characters of a string in steps.',
    names=('every_kth', 'take_step_$k', 'sample_chars', 'stride_text'),
    code="""\
def $f(text):
  return text[$s::$k]
""",
    inputs=lambda rng, p: (_distinct(rng, 9, 14),),
    params={'s': range(5), 'k': range(2, 7)},
  ),
  Family(
    name='char_caesar',
    group='string',
    canonical='Write a function to shift each lowercase letter of a string forward by $k places '
    'in the alphabet, wrapping around after "z".',
    paraphrases=(
      'Given a word in small letters, replace each letter by the one $k further on, with "a" '
      'following "z".',
      'A lowercase text is to be encrypted with a Caesar cipher of offset $k.',
      'Implement the cyclic alphabet rotation that moves all small letters ahead by $k.',
    ),
    terse='Shift the letters through the alphabet.',
    names=('caesar', 'shift_letters', 'rotate_alphabet_$k', 'encode_text'),
    code="""\
def $f(text):
  result = ''
  for ch in text:
    result += chr((ord(ch) - ord('a') + $k) % 26 + ord('a'))
  return result
""",
    inputs=lambda rng, p: (draw.letters(rng, string.ascii_lowercase, 3, 8),),
    params={'k': range(1, 26)},
  ),
  Family(
    name='char_exchange_ends',
    group='string',
    canonical='Write a function to swap the first $a characters of a string with its last $b '
    'characters.',
    paraphrases=(
      'Given a text, let its final $b characters and its initial $a characters trade places.',
      'The opening $a characters go to the end and the closing $b go to the front; the middle of '
      'the text stays between them.',
      'Create a function that exchanges the head of length $a and the tail of length $b of a text.',
    ),
    terse='Swap the beginning and end of a string.',
    names=('swap_ends', 'exchange_ends', 'flip_head_tail', 'trade_${a}_$b'),
    code="""\
def $f(text):
  head = text[:$a]
  tail = text[-$b:]
  return tail + text[$a:-$b] + head
""",
    inputs=lambda rng, p: (_distinct(rng, 11, 14),),
    params={'a': range(1, 6), 'b': range(1, 6)},
  ),
  Family(
    name='char_stretch_letter',
    group='string',
    canonical='Write a function to repeat each letter "$c" in a string $k times and leave other '
    'letters unchanged.',
    paraphrases=(
      'Given a text, turn each "$c" into $k copies of itself; everything else stays single.',
      'Wherever "$c" stands in the text, it should be written $k times instead of once.',
      'Create a function that stretches the "$c" characters of a text by a factor of $k.',
    ),
    terse='Repeat a certain letter in a string.',
    names=('repeat_letter', 'stretch_$c', 'multiply_char', 'expand_letter'),
    code="""\
def $f(text):
  return ''.join(ch * $k if ch == '$c' else ch for ch in text)
""",
    inputs=lambda rng, p: (draw.letters(rng, p['c'] + ''.join(rng.sample(LETTERS, 4)), 4, 7),),
    params={'c': 'aeiost', 'k': range(2, 6)},
  ),
  Family(
    name='char_longest_run',
    group='string',
    canonical='Write a function to find the length of the longest run of consecutive "$c" letters '
    'in a string.',
    paraphrases=(
      'Given a text, how many times at most does "$c" appear in a row?',
      'The size of the largest block made of nothing but "$c" is to be returned, 0 if none exists.',
      'Create a function measuring the maximum unbroken streak of "$c" in a text.',
    ),
    terse='Longest run of a letter.',
    names=('longest_run', 'max_streak_$c', 'run_length', 'longest_block'),
    code="""\
def $f(text):
  best = current = 0
  for ch in text:
    current = current + 1 if ch == '$c' else 0
    best = max(best, current)
  return best
""",
    inputs=lambda rng, p: (_runs(rng, p['c']),),
    params={'c': LETTERS},
  ),
  Family(
    name='char_squeeze_letter',
    group='string',
    canonical='Write a function to collapse each run of consecutive "$c" letters in a string into '
    'a single "$c".',
    paraphrases=(
      'Given a text, squeeze repeated adjacent "$c" characters so that just one of them is left.',
      'Neighbouring duplicates of "$c", and of no other letter, should be merged into one.',
      'Create a function that drops any "$c" which directly follows another "$c".',
    ),
    terse='Collapse repeats of a letter.',
    names=('collapse_runs', 'squeeze_$c', 'merge_repeats', 'dedupe_letter'),
    code="""\
def $f(text):
  result = ''
  for ch in text:
    if ch == '$c' and result.endswith('$c'):
      continue
    result += ch
  return result
""",
    inputs=lambda rng, p: (_runs(rng, p['c']),),
    params={'c': LETTERS},
  ),
  Family(
    name='char_upper_letter',
    group='string',
    canonical='Write a function to convert every lowercase "$c" in a string to uppercase and keep '
    'the rest unchanged.',
    paraphrases=(
      'Given a text, capitalise each of its "$c" characters and nothing else.',
      'All "$c" letters of the text are to become capitals; other characters remain as they are.',
      'Create a function returning a copy of a text where "$c" is written as a capital letter.',
    ),
    terse='Capitalise one letter of a string.',
    names=('upper_letter', 'capitalize_$c', 'raise_case', 'highlight_letter'),
    code="""\
def $f(text):
  chars = list(text)
  for i in range(len(chars)):
    if chars[i] == '$c':
      chars[i] = chars[i].upper()
  return ''.join(chars)
""",
    inputs=lambda rng, p: (_has(rng, p['c']),),
    params={'c': LETTERS},
  ),
  Family(
    name='char_text_after',
    group='string',
    canonical='Write a function to get the part of a string that follows the first occurrence of '
    'the letter "$c".',
    paraphrases=(
      'Given a text that contains "$c", return everything behind its earliest "$c".',
      'All characters up to and including the first "$c" should be thrown away.',
      'Create a function that yields what comes after the leftmost "$c" of a text.',
    ),
    terse='Part of a string after a letter.',
    names=('after_letter', 'text_after_$c', 'rest_of_string', 'tail_from_letter'),
    code="""\
def $f(text):
  i = 0
  while text[i] != '$c':
    i += 1
  return text[i + 1:]
""",
    inputs=lambda rng, p: (_has(rng, p['c']),),
    params={'c': LETTERS},
  ),
  Family(
    name='char_alternate_case',
    group='string',
    canonical='Write a function to convert letters at even indices of a string to uppercase and '
    'letters at odd indices to lowercase.',
    paraphrases=(
      'Given a text, alternate between capital and small letters, beginning with a capital.',
      'Characters in positions 0, 2, 4, ... are to be capitalised, those in between made small.',
      'Create a function that rewrites a text in alternating case whose first letter is a capital.',
    ),
    terse='Alternate the case of letters.',
    names=('alternate_case', 'zigzag_case', 'mixed_case', 'toggle_letters'),
    code="""\
def $f(text):
  result = []
  for i, ch in enumerate(text):
    result.append(ch.upper() if i % 2 == 0 else ch.lower())
  return ''.join(result)
""",
    inputs=lambda rng, p: (draw.letters(rng, string.ascii_letters, 3, 9),),
  ),
  Family(
    name='char_swap_letters',
    group='string',
    canonical='Write a function to swap the letters "$a" and "$b" everywhere in a string.',
    paraphrases=(
      'Given a text, turn each "$a" into "$b" and at the same time each "$b" into "$a".',
      'Throughout the text, "$a" and "$b" should exchange their roles.',
      'Create a function that interchanges the two characters "$b" and "$a" in a text.',
    ),
    terse='Swap two letters in a string.',
    names=('swap_letters', 'exchange_chars', 'interchange', 'swap_${a}_and_$b'),
    code="""\
def $f(text):
  result = ''
  for ch in text:
    if ch == '$a':
      ch = '$b'
    elif ch == '$b':
      ch = '$a'
    result += ch
  return result
""",
    inputs=lambda rng, p: (_has(rng, p['a'] + p['b'], 3, 7),),
    params={'a': 'abcdef', 'b': 'nopqrs'},
  ),
  Family(
    name='char_count_after_in_alphabet',
    group='string',
    canonical='Write a function to count the letters of a lowercase string that come after "$c" in '
    'the alphabet.',
    paraphrases=(
      'Given a word in small letters, how many of its letters are alphabetically later than "$c"?',
      'The number of characters greater than "$c" in a lowercase text is to be returned.',
      'Create a function telling how many letters of a text lie strictly beyond "$c" in the ABC.',
    ),
    terse='Count the letters late in the alphabet.',
    names=('count_after', 'letters_beyond_$c', 'late_letters', 'count_greater_chars'),
    code="""\
def $f(text):
  return sum(1 for ch in text if ch > '$c')
""",
    inputs=lambda rng, p: (_near(rng, p['c']),),
    params={'c': 'cdefghjkmnoprstuv'},
  ),
  Family(
    name='char_distance_first_last',
    group='string',
    canonical='Write a function to find the distance between the indices of the first and last '
    '"$c" in a string.',
    paraphrases=(
      'Given a text containing "$c", subtract the index of its earliest "$c" from that of the '
      'final one.',
      'How far apart are the outermost occurrences of "$c" in the text? 0 if there is just one.',
      'Create a function that returns how many steps lead from the leftmost "$c" to the rightmost.',
    ),
    terse='Distance between first and last letter occurrence.',
    names=('letter_span', 'distance_$c', 'first_to_last', 'spread_of_letter'),
    code="""\
def $f(text):
  first = text.index('$c')
  last = text.rindex('$c')
  return last - first
""",
    inputs=lambda rng, p: (_has(rng, p['c']),),
    params={'c': LETTERS},
    ood=True,
  ),
  Family(
    name='char_insert_separator',
    group='string',
    canonical='Write a function to insert "$s" between consecutive groups of $k characters of a '
    'string, starting from the left.',
    paraphrases=(
      'Given a text, cut it into chunks of $k characters from the left and join them with "$s".',
      'After each full block of $k characters, unless the text ends there, "$s" should be put.',
      'Create a function that splits a text into pieces of length $k, the last may be shorter, '
      'and glues them together by "$s".',
    ),
    terse='Separate groups of characters with a symbol.',
    names=('insert_separator', 'group_chars', 'chunk_text_$k', 'hyphenate'),
    code="""\
def $f(text):
  groups = []
  for i in range(0, len(text), $k):
    groups.append(text[i:i + $k])
  return '$s'.join(groups)
""",
    inputs=lambda rng, p: (_distinct(rng, 6, 12),),
    params={'k': range(2, 6), 's': '-_:/.+'},
  ),
  Family(
    name='char_mask_every_kth',
    group='string',
    canonical='Write a function to replace the characters of a string at indices divisible by $k '
    'with "$s".',
    paraphrases=(
      'Given a text, overwrite positions 0, $k, 2 * $k and so on with "$s".',
      'Each character whose zero-based position is a multiple of $k should be masked by "$s".',
      'Create a function that hides, behind "$s", one character in $k, the first one included.',
    ),
    terse='Mask characters at regular positions.',
    names=('mask_chars', 'mask_every_$k', 'hide_positions', 'censor_text'),
    code="""\
def $f(text):
  return ''.join('$s' if i % $k == 0 else ch for i, ch in enumerate(text))
""",
    inputs=lambda rng, p: (draw.letters(rng, LETTERS, 5, 12),),
    params={'k': range(2, 7), 's': '*-_#.'},
  ),
  Family(
    name='char_run_length_encode',
    group='string',
    canonical='Write a function to encode a string by writing each run of equal characters as the '
    'character followed by its length.',
    paraphrases=(
      'Given a text, return its run-length encoding, such as letter, count, letter, count, ....',
      'Blocks of identical neighbours should be abbreviated to the character and the block size.',
      'Create a compressor that puts, for every stretch of a repeated character, that character '
      'and then how often it repeats.',
    ),
    terse='Run-length encode a string.',
    names=('run_length_encode', 'compress_text', 'encode_runs', 'rle'),
    code="""\
def $f(text):
  result = ''
  i = 0
  while i < len(text):
    j = i
    while j < len(text) and text[j] == text[i]:
      j += 1
    result += text[i] + str(j - i)
    i = j
  return result
""",
    inputs=lambda rng, p: (_runs(rng, rng.choice(LETTERS)),),
  ),
  Family(
    name='char_alphabet_sum_mod',
    group='string',
    canonical='Write a function to sum the alphabet positions (a = 1) of the letters of a '
    'lowercase string and return the sum modulo $k.',
    paraphrases=(
      'Score a word in small letters with a = 1, b = 2, ..., z = 26; what remains of the total '
      'when it is divided by $k?',
      'The ranks of all letters in the ABC, counted from one, are to be added up; what is left '
      'over after taking out multiples of $k is the answer.',
      'Create a checksum for lowercase text: letter values (1 for "a") totalled, reduced mod $k.',
    ),
    terse='Checksum of letter positions in a string.',
    names=('letter_checksum', 'alphabet_sum', 'word_score_mod_$k', 'hash_letters'),
    code="""\
def $f(text):
  total = 0
  for ch in text:
    total += ord(ch) - ord('a') + 1
  return total % $k
""",
    inputs=lambda rng, p: (draw.letters(rng, string.ascii_lowercase + 'uvwxyz' * 2, 4, 14),),
    params={'k': range(13, 29)},
    ood=True,
  ),
)
