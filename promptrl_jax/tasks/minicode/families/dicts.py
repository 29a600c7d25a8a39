"""Families of problems about dictionaries."""

from __future__ import annotations

import random
from collections.abc import Sequence

from promptrl_jax.tasks.minicode.families import draw
from promptrl_jax.tasks.minicode.family import Family

_SHORT = (
  'red', 'sky', 'sun', 'map', 'ink', 'oak', 'code', 'tree', 'kite', 'loop', 'fig', 'jar'
)


def _near(
  rng: random.Random, k: int, least: int = 3, most: int = 4, spread: int = 8
) -> list[int]:
  """Distinct positive integers, many of them next to `k`."""
  count = rng.randint(least, most)
  chosen = {x for x in (k - 1, k, k + 1) if x > 0 and rng.random() < 0.6}
  while len(chosen) < count:
    chosen.add(rng.randint(max(1, k - spread), k + spread))
  values = list(chosen)
  rng.shuffle(values)
  return values[:count]


def _keyed(rng: random.Random, values: Sequence) -> dict:
  """A dictionary with these values and short keys."""
  letters = len(values) > 3 or rng.random() < 0.4
  keys = rng.sample('abcdefgh' if letters else _SHORT, len(values))
  return dict(zip(keys, values, strict=True))


def _between(rng: random.Random, a: int, b: int) -> list[int]:
  """Distinct integers around both ends of the range `a..b`."""
  pool = [a - 1, a, b, b + 1]
  rng.shuffle(pool)
  values = pool[: rng.randint(2, 4)]
  extra = rng.randint(1, b + 6)
  if len(values) < 4 and extra not in values:
    values.append(extra)
  rng.shuffle(values)
  return values


def _multiples(rng: random.Random, k: int) -> list[int]:
  """Integers of which about half are divisible by `k`."""
  return [
    k * rng.randint(1, 6) if rng.random() < 0.5 else rng.randint(1, 40)
    for _ in range(rng.randint(3, 4))
  ]


def _named(rng: random.Random, c: str) -> dict[str, int]:
  """Short random keys, some of which start with `c`."""
  keys: set[str] = set()
  for _ in range(rng.randint(3, 5)):
    first = c if rng.random() < 0.5 else rng.choice('abcdefghklmnoprst')
    keys.add(first + draw.letters(rng, 'aeiou' + c, 1, 2))
  return {k: rng.randint(1, 30) for k in sorted(keys)}


def _closest(rng: random.Random, k: int) -> dict[str, int]:
  """A dictionary with exactly one value closest to `k`."""
  while True:
    values = _near(rng, k, 3, 4)
    gaps = sorted(abs(v - k) for v in values)
    if gaps[0] < gaps[1]:
      return _keyed(rng, values)


def _increment(rng: random.Random, c: str) -> dict[str, int]:
  """A dictionary of letters that mostly has the key `c`."""
  keys = set(rng.sample('abcdefgh', 2))
  if rng.random() < 0.7:
    keys.add(c)
  order = list(keys)
  order.sort()
  rng.shuffle(order)
  return {key: rng.randint(1, 20) for key in order}


def _merged(rng: random.Random, k: int) -> tuple[dict[str, int], dict[str, int]]:
  """Two dictionaries with common keys and totals near `k`."""
  one, two = {}, {}
  for key in rng.sample('abcde', rng.randint(2, 3)):
    total = max(2, k + rng.choice((-1, 0, 0, 1, rng.randint(-6, 6))))
    where = rng.random()
    if where < 0.4:
      one[key] = rng.randint(1, total - 1)
      two[key] = total - one[key]
    elif where < 0.7:
      one[key] = total
    else:
      two[key] = total
  return one, two


def _dropped(rng: random.Random, c: str) -> dict[str, int]:
  """Short keys, about half of which contain `c`."""
  keys: set[str] = set()
  while len(keys) < 3:
    key = draw.letters(rng, 'abcdehiklmnoprstu', 2, 3)
    if rng.random() < 0.5:
      spot = rng.randrange(len(key))
      key = key[:spot] + c + key[spot + 1 :]
    keys.add(key)
  return {key: rng.randint(1, 20) for key in sorted(keys)}


def _lists(rng: random.Random, k: int) -> dict[str, list[int]]:
  """A dictionary of short lists of integers near `k`."""
  keys = rng.sample('abcdxyz', 2)
  return {
    key: [
      rng.choice((k, k + 1, rng.randint(max(0, k - 8), k + 8)))
      for _ in range(rng.randint(1, 3))
    ]
    for key in keys
  }


def _chain(rng: random.Random, c: str) -> dict[str, str]:
  """A mapping of letters to later letters, so that it has no cycle."""
  order = 'abcdefghijk'
  keys = set(rng.sample(order[:-1], 3))
  if rng.random() < 0.9:
    keys.add(c)
  after = {key: rng.choice(order[order.index(key) + 1 :]) for key in sorted(keys)}
  if c in after and rng.random() < 0.5 and after[c] != 'k':
    after.setdefault(after[c], rng.choice(order[order.index(after[c]) + 1 :]))
  items = list(after.items())
  rng.shuffle(items)
  return dict(items)


def _padded(rng: random.Random) -> tuple[list[str], list[int]]:
  """Distinct keys and fewer (or equally many) values."""
  keys = rng.sample('abcdefgh', rng.randint(2, 4))
  return keys, [rng.randint(1, 20) for _ in range(rng.randint(0, len(keys) - 1))]


FAMILIES: tuple[Family, ...] = (
  Family(
    name='dict_values_above',
    group='dict',
    canonical=(
      'Write a function to keep only the items of a dictionary whose value is greater than $k.'
    ),
    paraphrases=(
      'Given a dictionary of numbers, return a new one without the entries of $k or less.',
      'From the given mapping, every key that does not map to more than $k should be discarded.',
      'Create a function that selects those key-value pairs in which the value exceeds $k.',
    ),
    terse='Filter a dictionary by large values.',
    names=('values_above', 'keep_over_$k', 'filter_dict', 'select_items'),
    code="""\
def $f(d):
  return {key: value for key, value in d.items() if value > $k}
""",
    inputs=lambda rng, p: (_keyed(rng, _near(rng, p['k'], 3, 4)),),
    params={'k': range(2, 21)},
  ),
  Family(
    name='dict_sum_divisible',
    group='dict',
    canonical=(
      'Write a function to find the sum of the dictionary values that are divisible by $k.'
    ),
    paraphrases=(
      'Given a dictionary of integers, add up those of its values that are multiples of $k.',
      'The total of all values in the mapping which $k divides without remainder is returned.',
      'Implement a function that ignores values not divisible by $k and totals the others.',
    ),
    terse='Sum the divisible values of a dictionary.',
    names=('sum_divisible_values', 'total_by_$k', 'add_multiples', 'dict_sum'),
    code="""\
def $f(d):
  total = 0
  for value in d.values():
    if value % $k == 0:
      total += value
  return total
""",
    inputs=lambda rng, p: (_keyed(rng, _multiples(rng, p['k'])),),
    params={'k': range(2, 17)},
  ),
  Family(
    name='dict_scale_above',
    group='dict',
    canonical=(
      'Write a function to multiply by $a every dictionary value that is greater than $b, '
      'leaving the other values unchanged.'
    ),
    paraphrases=(
      'Given a dictionary, return a copy in which values exceeding $b are scaled by $a.',
      'Values of the mapping larger than $b become $a times as big; the rest stay the same.',
      'Create a new dictionary with equal keys where anything above $b has been multiplied by $a.',
    ),
    terse='Multiply dictionary values greater than $b.',
    names=('scale_above', 'multiply_large', 'boost_values', 'times_${a}_over_${b}'),
    code="""\
def $f(d):
  result = {}
  for key, value in d.items():
    result[key] = value * $a if value > $b else value
  return result
""",
    inputs=lambda rng, p: (_keyed(rng, _near(rng, p['b'], 3, 3)),),
    params={'a': range(2, 8), 'b': range(4, 10)},
  ),
  Family(
    name='dict_sum_key_start',
    group='dict',
    canonical=(
      'Write a function to add up the values of a dictionary whose keys start with the '
      'letter "$c".'
    ),
    paraphrases=(
      'Given a dictionary from words to numbers, total the numbers of words beginning with "$c".',
      'Only keys with "$c" as their first character count; the sum of their values is returned.',
      'Implement a function that returns how much all keys that begin with "$c" hold together.',
    ),
    terse='Sum values by first letter of key.',
    names=('sum_by_initial', 'total_for_$c', 'initial_sum', 'add_matching_keys'),
    code="""\
def $f(data):
  return sum(v for k, v in data.items() if k.startswith('$c'))
""",
    inputs=lambda rng, p: (_named(rng, p['c']),),
    params={'c': 'abcdefghklmnoprst'},
  ),
  Family(
    name='dict_increment_key',
    group='dict',
    canonical=(
      'Write a function to copy a dictionary with the value of key "$c" increased by $k, where '
      'a missing key counts as 0.'
    ),
    paraphrases=(
      ('Given a dictionary of counts, add $k to the count of "$c" (absent means zero) and return '
       'the new dictionary.'),
      ('The entry "$c" of a copied mapping should grow by $k; if there is none, it is created '
       'with $k.'),
      ('Create a function that leaves its argument alone and returns it with $k more stored '
       'under "$c", starting from 0 if needed.'),
    ),
    terse='Increase the value of key "$c".',
    names=('increment_key', 'bump_$c', 'add_to_entry', 'raise_count'),
    code="""\
def $f(d):
  result = dict(d)
  result['$c'] = result.get('$c', 0) + $k
  return result
""",
    inputs=lambda rng, p: (_increment(rng, p['c']),),
    params={'c': 'abcdef', 'k': range(2, 8)},
  ),
  Family(
    name='dict_invert',
    group='dict',
    canonical=(
      'Write a function to swap the keys and the values of a dictionary of distinct values.'
    ),
    paraphrases=(
      'Given a dictionary in which no value repeats, return the inverse mapping.',
      'Each value should become a key, and its former key should become what it maps to.',
      'Implement a function that turns a one-to-one dictionary the other way round.',
    ),
    terse='Invert a dictionary.',
    names=('invert_dict', 'swap_keys_values', 'reverse_mapping', 'flip'),
    code="""\
def $f(d):
  inverse = {}
  for key, value in d.items():
    inverse[value] = key
  return inverse
""",
    inputs=lambda rng, p: (_keyed(rng, draw.distinct_ints(rng, 1, 20, 2, 3)),),
  ),
  Family(
    name='dict_group_remainder',
    group='dict',
    canonical=(
      'Write a function to group the numbers of a list into a dictionary by their remainder '
      'when divided by $k, keeping their order.'
    ),
    paraphrases=(
      ('Given a list of integers, map every occurring remainder modulo $k to the list of the '
       'numbers that have it, in input order.'),
      ('Numbers with equal remainder after division by $k are collected in one list, stored '
       'under that remainder.'),
      ('Build a dictionary whose keys are residues modulo $k and whose values list the matching '
       'entries as they came.'),
    ),
    terse='Group numbers by remainder.',
    names=('group_by_remainder', 'group_mod_$k', 'residue_groups', 'bucket_numbers'),
    code="""\
def $f(nums):
  groups = {}
  for x in nums:
    groups.setdefault(x % $k, []).append(x)
  return groups
""",
    inputs=lambda rng, p: (draw.ints(rng, 0, 3 * p['k'] + 4, 3, 5),),
    params={'k': range(2, 17)},
  ),
  Family(
    name='dict_merge_sum_min',
    group='dict',
    canonical=(
      'Write a function to merge two dictionaries by adding the values of equal keys and drop '
      'the keys whose total is below $k.'
    ),
    paraphrases=(
      ('Given two dictionaries of counts, sum them key by key and return only totals of at '
       'least $k.'),
      ('Two mappings are combined, common keys having their values summed; results smaller than '
       '$k are left out.'),
      'Add up a pair of dictionaries and keep the keys that reach $k or more together.',
    ),
    terse='Add two dictionaries and drop small totals.',
    names=('merge_sum', 'combine_min_$k', 'add_dicts', 'merge_counts'),
    code="""\
def $f(a, b):
  totals = dict(a)
  for key, value in b.items():
    totals[key] = totals.get(key, 0) + value
  return {key: value for key, value in totals.items() if value >= $k}
""",
    inputs=lambda rng, p: _merged(rng, p['k']),
    params={'k': range(5, 21)},
  ),
  Family(
    name='dict_top_keys',
    group='dict',
    canonical=(
      'Write a function to list the $k keys with the largest values of a dictionary, largest '
      'value first.'
    ),
    paraphrases=(
      ('Given a dictionary of different numbers, return its top $k keys in descending order of '
       'value.'),
      ('Keys are ranked from highest to lowest value, and the first $k of the ranking are '
       'returned.'),
      'Implement a function that finds which $k keys score highest, beginning with the best.',
    ),
    terse='List the keys with the largest values.',
    names=('top_keys', 'best_$k', 'highest_keys', 'leaders'),
    code="""\
def $f(scores):
  ranked = sorted(scores, key=lambda name: scores[name], reverse=True)
  return ranked[:$k]
""",
    inputs=lambda rng, p: (
      dict(zip(
        rng.sample('abcdefgh', 5), draw.distinct_ints(rng, 1, 30, 5, 5), strict=True
      )),
    ),
    params={'k': range(2, 6)},
  ),
  Family(
    name='dict_closest_key',
    group='dict',
    canonical='Write a function to find the key of a dictionary whose value is closest to $k.',
    paraphrases=(
      'Given a dictionary of numbers, tell which key has the value nearest to $k.',
      'The name whose number differs least from $k is to be returned.',
      ('Create a function that looks for the entry with the smallest distance to $k and returns '
       'its key.'),
    ),
    terse='Find the key with the closest value.',
    names=('closest_key', 'nearest_to_$k', 'best_match', 'find_nearest'),
    code="""\
def $f(d):
  best = None
  for key in d:
    if best is None or abs(d[key] - $k) < abs(d[best] - $k):
      best = key
  return best
""",
    inputs=lambda rng, p: (_closest(rng, p['k']),),
    params={'k': range(3, 21)},
  ),
  Family(
    name='dict_keys_in_range',
    group='dict',
    canonical=(
      'Write a function to list in alphabetical order the keys of a dictionary whose values '
      'lie between $a and $b, both included.'
    ),
    paraphrases=(
      ('Given a dictionary of numbers, return the sorted keys with a value of at least $a and at '
       'most $b.'),
      'Keys that map to something not below $a and not above $b are returned as a sorted list.',
      ('Implement a function that collects the names valued from $a to $b inclusive and sorts '
       'them.'),
    ),
    terse='Sorted keys with values from $a upwards.',
    names=('keys_in_range', 'keys_between', 'names_from_${a}_to_${b}', 'select_keys'),
    code="""\
def $f(d):
  return sorted(key for key, value in d.items() if $a <= value <= $b)
""",
    inputs=lambda rng, p: (_keyed(rng, _between(rng, p['a'], p['b'])),),
    params={'a': range(2, 8), 'b': range(10, 16)},
  ),
  Family(
    name='dict_drop_key_letter',
    group='dict',
    canonical=(
      'Write a function to remove from a dictionary all items whose key contains the letter "$c".'
    ),
    paraphrases=(
      ('Given a dictionary with string keys, return a copy without the keys that have "$c" '
       'in them.'),
      'Only entries in whose key the character "$c" does not occur should remain.',
      'Create a function that discards each key-value pair with "$c" anywhere in the key.',
    ),
    terse='Remove keys that contain a letter.',
    names=('drop_keys', 'remove_keys_with_$c', 'without_letter', 'clean_dict'),
    code="""\
def $f(d):
  result = {}
  for key in d:
    if '$c' not in key:
      result[key] = d[key]
  return result
""",
    inputs=lambda rng, p: (_dropped(rng, p['c']),),
    params={'c': 'abcdehiklmnoprstu'},
  ),
  Family(
    name='dict_count_in_lists',
    group='dict',
    canonical=(
      'Write a function to map each key of a dictionary of lists to the number of elements '
      'greater than $k in its list.'
    ),
    paraphrases=(
      ('Given a dictionary whose values are lists, replace every list by how many of its entries '
       'exceed $k.'),
      ('For each key, the entries above $k in the associated list are counted, and a dictionary '
       'of these counts is returned.'),
      ('Create a dictionary that tells for every key how often a number larger than $k is in the '
       'key\'s list.'),
    ),
    terse='Count large elements per key.',
    names=('count_per_key', 'count_over_$k', 'large_counts', 'tally_lists'),
    code="""\
def $f(d):
  return {key: len([x for x in nums if x > $k]) for key, nums in d.items()}
""",
    inputs=lambda rng, p: (_lists(rng, p['k']),),
    params={'k': range(2, 21)},
  ),
  Family(
    name='dict_last_positions',
    group='dict',
    canonical=(
      'Write a function to map each character of a string to the index of its last occurrence.'
    ),
    paraphrases=(
      ('Given a text, return a dictionary that tells at which index every character appears for '
       'the final time.'),
      'For all characters of the string, the rightmost position is stored in a dictionary.',
      'Build a dictionary from characters to the largest index at which they are found.',
    ),
    terse='Map characters to their positions.',
    names=('last_positions', 'last_index_map', 'char_positions', 'where_last'),
    code="""\
def $f(text):
  positions = {}
  for i, ch in enumerate(text):
    positions[ch] = i
  return positions
""",
    inputs=lambda rng, p: (draw.letters(rng, 'abcd', 3, 7),),
  ),
  Family(
    name='dict_clamp_values',
    group='dict',
    canonical=(
      'Write a function to replace the dictionary values below $a by $a and those above $b '
      'by $b.'
    ),
    paraphrases=(
      ('Given a dictionary of numbers, return a copy with every value clamped to the range from '
       '$a to $b.'),
      ('Values of the mapping may not be less than $a nor more than $b; whatever lies outside is '
       'moved to the nearer limit.'),
      ('Create a new dictionary in which anything smaller than $a becomes $a, anything larger '
       'than $b becomes $b, and the rest is kept.'),
    ),
    terse='Limit dictionary values to at most $b.',
    names=('clamp_values', 'clip_dict', 'limit_${a}_${b}', 'bound_values'),
    code="""\
def $f(d):
  return {key: max($a, min($b, value)) for key, value in d.items()}
""",
    inputs=lambda rng, p: (
      _keyed(rng, [
        rng.choice((rng.randint(0, p['a']), rng.randint(p['b'], p['b'] + 9), rng.randint(0, 20)))
        for _ in range(3)
      ]),
    ),
    params={'a': range(2, 8), 'b': range(10, 16)},
  ),
  Family(
    name='dict_zip_default',
    group='dict',
    canonical=(
      'Write a function to build a dictionary from a list of keys and a shorter list of values, '
      'giving $k to the keys left over.'
    ),
    paraphrases=(
      ('Given keys and values in two lists, pair them in order; keys for which no value is left '
       'get $k.'),
      ('A dictionary is made out of two lists, and where the second list has run out, the value '
       '$k is used.'),
      ('Implement a function that maps each key to the value at its index, or to $k if there '
       'is none.'),
    ),
    terse='Dictionary from two lists with default.',
    names=('zip_default', 'pair_or_$k', 'make_dict', 'build_mapping'),
    code="""\
def $f(keys, values):
  result = {}
  for i, key in enumerate(keys):
    if i < len(values):
      result[key] = values[i]
    else:
      result[key] = $k
  return result
""",
    inputs=lambda rng, p: _padded(rng),
    params={'k': range(2, 18)},
  ),
  Family(
    name='dict_rank',
    group='dict',
    canonical=(
      'Write a function to map each key of a dictionary to its rank, where the largest value '
      'has rank $k and ranks increase by 1.'
    ),
    paraphrases=(
      ('Given a dictionary of different numbers, number its keys from the highest value to the '
       'lowest, beginning with $k.'),
      ('The key with the biggest value is assigned $k, the next one the integer after it, and '
       'so on; a dictionary of these ranks is returned.'),
      ('Create a function that replaces values by places in descending order, counting places '
       'from $k upwards.'),
    ),
    terse='Rank keys from largest to smallest.',
    names=('rank_keys', 'ranks_from_$k', 'value_ranks', 'number_by_value'),
    code="""\
def $f(scores):
  ordered = sorted(scores, key=scores.get, reverse=True)
  return {key: i + $k for i, key in enumerate(ordered)}
""",
    inputs=lambda rng, p: (_keyed(rng, draw.distinct_ints(rng, 1, 30, 2, 3)),),
    params={'k': range(16)},
    ood=True,
  ),
  Family(
    name='dict_follow_chain',
    group='dict',
    canonical=(
      'Write a function to follow a dictionary of letters from "$c" until a letter is not a key '
      'and list all letters visited.'
    ),
    paraphrases=(
      ('Given a mapping from letters to letters, begin at "$c", look up again and again while '
       'possible, and return the path including both ends.'),
      ('The path that starts with "$c" and moves from key to value until no entry exists is '
       'returned as a list.'),
      ('Create the list of letters reached from "$c", itself first, by repeated lookup in the '
       'dictionary.'),
    ),
    terse='Follow a mapping and list the path.',
    names=('follow_chain', 'path_from_$c', 'trace', 'walk_mapping'),
    code="""\
def $f(links):
  path = ['$c']
  while path[-1] in links:
    path.append(links[path[-1]])
  return path
""",
    inputs=lambda rng, p: (_chain(rng, p['c']),),
    params={'c': 'abcdefgh'},
    ood=True,
  ),
)
