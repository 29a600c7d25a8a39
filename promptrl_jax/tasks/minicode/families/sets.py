"""Families of problems about sets: common, missing, distinct elements."""

from __future__ import annotations

import random

from promptrl_jax.tasks.minicode.families import draw
from promptrl_jax.tasks.minicode.family import Family


def _overlapping(rng: random.Random, k: int, spread: int = 7) -> tuple[list[int], list[int]]:
  """Two lists of distinct integers around `k` that have some in common."""
  pool = {x for x in (k - 1, k, k + 1) if x >= 0 and rng.random() < 0.7}
  while len(pool) < 6:
    pool.add(rng.randint(max(0, k - spread), k + spread))
  one, two = [], []
  for x in sorted(pool):
    where = rng.random()
    if where < 0.7:
      one.append(x)
    if where > 0.3:
      two.append(x)
  rng.shuffle(one)
  rng.shuffle(two)
  return one or [k], two or [k]


def _two_multiples(rng: random.Random, k: int) -> tuple[list[int], list[int]]:
  """Two lists; the first has multiples of `k`, some also in the second."""
  one = []
  for _ in range(rng.randint(3, 5)):
    one.append(k * rng.randint(1, 5) if rng.random() < 0.5 else rng.randint(1, 36))
  two = rng.sample(one, 1) + [rng.randint(1, 30) for _ in range(rng.randint(1, 2))]
  rng.shuffle(two)
  return one, two


def _two_lists(rng: random.Random) -> tuple[list[int], list[int]]:
  one = draw.ints(rng, 1, 12, 3, 5)
  return one, draw.ints(rng, 1, 12, 3, 5)


def _repeated(rng: random.Random) -> list[int]:
  """A list whose numbers occur one to four times, in random order."""
  nums: list[int] = []
  for x in rng.sample(range(1, 12), 4):
    nums.extend([x] * rng.randint(1, 4))
  rng.shuffle(nums)
  return nums[:11]


def _sharing(rng: random.Random, c: str) -> tuple[str, str]:
  """Two words with letters in common, mostly `c` among them."""
  shared = rng.sample('abcdehiklmnoprst', rng.randint(2, 3))
  if rng.random() < 0.8:
    shared.append(c)
  texts = []
  for _ in range(2):
    chars = shared + rng.sample('abcdehiklmnoprstuwyz', rng.randint(1, 3))
    rng.shuffle(chars)
    texts.append(''.join(chars))
  return texts[0], texts[1]


def _complements(rng: random.Random, k: int) -> list[int]:
  """Distinct integers, some pairs of which add up to `k`; never `k / 2`."""
  nums: set[int] = set()
  for _ in range(rng.randint(2, 3)):
    x = rng.randint(0, k)
    nums.add(x)
    if rng.random() < 0.6:
      nums.add(k - x)
  nums.add(rng.randint(0, k + 5))
  if k % 2 == 0:
    nums.discard(k // 2)
  order = sorted(nums)
  rng.shuffle(order)
  return order


def _sums_near(rng: random.Random, k: int) -> tuple[list[int], list[int]]:
  """Two short lists whose sums of one from each are near `k`."""
  one = draw.distinct_ints(rng, 1, k - 2, 2, 3)
  two = sorted({max(1, k - rng.choice(one) + rng.randint(-1, 3)) for _ in range(3)})
  rng.shuffle(two)
  return one, two


def _with_repeats(rng: random.Random, k: int) -> list[int]:
  """Integers near `k`, some of them more than once."""
  pool = [k, k + 1, *(rng.randint(max(0, k - 5), k + 8) for _ in range(4))]
  return [rng.choice(pool) for _ in range(rng.randint(4, 7))]


def _set_with(rng: random.Random, a: int) -> set[int]:
  """A set of integers that mostly contains `a`."""
  nums = set(rng.sample(range(1, 18), rng.randint(2, 4)))
  if rng.random() < 0.7:
    nums.add(a)
  return nums


def _first_multiples(rng: random.Random, k: int) -> set[int]:
  """The first few multiples of `k` and other integers."""
  count = rng.randint(0, 5)
  nums = {k * i for i in range(1, count + 1)}
  while len(nums) < 5:
    nums.add(rng.randint(1, 4 * k) if rng.random() < 0.7 else k * rng.randint(1, 6))
  return nums


FAMILIES: tuple[Family, ...] = (
  Family(
    name='set_common_above',
    group='set',
    canonical=(
      'Write a function to list in ascending order the numbers greater than $k that occur in '
      'both of two lists.'
    ),
    paraphrases=(
      'Given two lists, return the sorted common elements that exceed $k.',
      ('Numbers larger than $k which are shared by the two lists should be returned from '
       'smallest to largest.'),
      'Create a function that intersects two lists, drops values up to $k and sorts the rest.',
    ),
    terse='Sorted large numbers common to two lists.',
    names=('common_above', 'shared_over_$k', 'intersect_large', 'common_numbers'),
    code="""\
def $f(a, b):
  common = set(a) & set(b)
  return sorted(x for x in common if x > $k)
""",
    inputs=lambda rng, p: _overlapping(rng, p['k']),
    params={'k': range(2, 20)},
  ),
  Family(
    name='set_difference_multiples',
    group='set',
    canonical=(
      'Write a function to return the set of multiples of $k that are in the first list but not '
      'in the second.'
    ),
    paraphrases=(
      ('Given two lists, collect as a set those numbers of the first that $k divides and that '
       'the second lacks.'),
      'The set of all entries divisible by $k which appear in the first list only is wanted.',
      ('Implement a function that takes the set difference of two lists and keeps what is '
       'divisible by $k.'),
    ),
    terse='Multiples only in the first list.',
    names=('difference_multiples', 'only_first_by_$k', 'exclusive_multiples', 'set_minus'),
    code="""\
def $f(a, b):
  result = set()
  for x in a:
    if x % $k == 0 and x not in b:
      result.add(x)
  return result
""",
    inputs=lambda rng, p: _two_multiples(rng, p['k']),
    params={'k': range(2, 14)},
  ),
  Family(
    name='set_union_below',
    group='set',
    canonical=(
      'Write a function to list in descending order, without repeats, all numbers less than $k '
      'from two lists.'
    ),
    paraphrases=(
      'Given two lists, return the distinct elements of either that are below $k, largest first.',
      ('The union of both lists, restricted to values smaller than $k, should be sorted from high '
       'to low.'),
      ('Create a function that merges two lists, keeps each value under $k once and orders them '
       'decreasingly.'),
    ),
    terse='Distinct small numbers of two lists, descending.',
    names=('union_below', 'merge_under_$k', 'distinct_small', 'union_desc'),
    code="""\
def $f(a, b):
  union = set(a) | set(b)
  return sorted([x for x in union if x < $k], reverse=True)
""",
    inputs=lambda rng, p: tuple(x[:4] for x in _overlapping(rng, p['k'])),
    params={'k': range(4, 22)},
  ),
  Family(
    name='set_symmetric_difference',
    group='set',
    canonical=(
      'Write a function to return a sorted list of the numbers that occur in exactly one of two '
      'lists.'
    ),
    paraphrases=(
      ('Given two lists, find the values present in one of them but not in the other, in '
       'ascending order.'),
      ('Numbers which both lists share are left out; all remaining distinct ones are returned '
       'sorted.'),
      'Implement the symmetric difference of two lists as an increasing list.',
    ),
    terse='Numbers in only one list.',
    names=('symmetric_difference', 'in_one_only', 'unshared', 'exclusive_numbers'),
    code="""\
def $f(a, b):
  result = [x for x in set(a) if x not in b]
  result += [x for x in set(b) if x not in a]
  return sorted(result)
""",
    inputs=lambda rng, p: _two_lists(rng),
  ),
  Family(
    name='set_remainders',
    group='set',
    canonical=(
      'Write a function to return the set of remainders that the numbers of a list leave when '
      'divided by $k.'
    ),
    paraphrases=(
      'Given a list of integers, collect their values modulo $k in a set.',
      ('Each number is divided by $k, and the different remainders that occur are returned as '
       'a set.'),
      'Create a function that finds which residues modulo $k are present in a list.',
    ),
    terse='Set of remainders of a list.',
    names=('remainder_set', 'residues_mod_$k', 'distinct_remainders', 'mod_values'),
    code="""\
def $f(nums):
  return {x % $k for x in nums}
""",
    inputs=lambda rng, p: (draw.ints(rng, 1, 50, 2, 6),),
    params={'k': range(3, 19)},
  ),
  Family(
    name='set_missing_range',
    group='set',
    canonical=(
      'Write a function to list in increasing order the integers from $a to $b, both included, '
      'that are missing from a list.'
    ),
    paraphrases=(
      ('Given a list, return every whole number not below $a and not above $b that it lacks, '
       'sorted.'),
      ('Which integers between $a and $b inclusive do not appear in the list is to be returned '
       'in ascending order.'),
      ('Implement a function that goes from $a up to and including $b and collects what it cannot '
       'find in the input.'),
    ),
    terse='Missing integers from $a upwards.',
    names=('missing_numbers', 'absent_${a}_to_${b}', 'find_gaps', 'not_in_list'),
    code="""\
def $f(nums):
  present = set(nums)
  missing = []
  for x in range($a, $b + 1):
    if x not in present:
      missing.append(x)
  return missing
""",
    inputs=lambda rng, p: (draw.distinct_ints(rng, p['a'] - 1, p['b'] + 1, 3, 6),),
    params={'a': range(1, 7), 'b': range(9, 15)},
  ),
  Family(
    name='set_exactly_times',
    group='set',
    canonical=(
      'Write a function to return the set of numbers that occur exactly $k times in a list.'
    ),
    paraphrases=(
      'Given a list, collect in a set the values that appear neither more nor less than $k times.',
      'Those numbers of which the list has precisely $k copies should be returned as a set.',
      'Create a function that finds all elements with frequency $k and returns them in a set.',
    ),
    terse='Set of numbers by frequency.',
    names=('exactly_times', 'appear_${k}_times', 'with_frequency', 'repeated_values'),
    code="""\
def $f(nums):
  return {x for x in nums if nums.count(x) == $k}
""",
    inputs=lambda rng, p: (_repeated(rng),),
    params={'k': range(2, 5)},
  ),
  Family(
    name='set_common_letters',
    group='set',
    canonical=(
      'Write a function to return the letters common to two strings except "$c", as a string in '
      'alphabetical order.'
    ),
    paraphrases=(
      'Given two words, join the sorted letters that both contain, ignoring "$c".',
      ('Each letter found in the one string as well as in the other, other than "$c", appears '
       'once in the sorted result.'),
      ('Implement a function that intersects the letters of two texts, takes "$c" away and '
       'returns the rest in order as text.'),
    ),
    terse='Sorted common letters except one.',
    names=('common_letters', 'shared_without_$c', 'letters_in_both', 'intersect_words'),
    code="""\
def $f(a, b):
  common = set(a) & set(b)
  common.discard('$c')
  return ''.join(sorted(common))
""",
    inputs=lambda rng, p: _sharing(rng, p['c']),
    params={'c': 'abcdehiklmnoprst'},
  ),
  Family(
    name='set_pair_sums',
    group='set',
    canonical=(
      'Write a function to list in ascending order the distinct sums greater than $k of one '
      'number from each of two lists.'
    ),
    paraphrases=(
      ('Given two lists, add every number of the first to every number of the second and return '
       'the different sums above $k, sorted.'),
      ('Sums x + y with x from one list and y from the other that exceed $k are returned once '
       'each, smallest first.'),
      ('Create a function that finds which totals larger than $k arise by taking a number out of '
       'each list, without repeats and in order.'),
    ),
    terse='Sorted distinct large sums of two lists.',
    names=('pair_sums', 'sums_over_$k', 'cross_sums', 'possible_totals'),
    code="""\
def $f(a, b):
  sums = set()
  for x in a:
    for y in b:
      if x + y > $k:
        sums.add(x + y)
  return sorted(sums)
""",
    inputs=lambda rng, p: _sums_near(rng, p['k']),
    params={'k': range(8, 26)},
  ),
  Family(
    name='set_count_distinct_above',
    group='set',
    canonical='Write a function to count the distinct numbers of a list that are greater than $k.',
    paraphrases=(
      'Given a list with repeats, tell how many different values above $k it has.',
      'Repeated numbers count once; the amount of values that exceed $k is to be returned.',
      'Implement a function that returns the size of the set of list elements larger than $k.',
    ),
    terse='Count distinct large numbers.',
    names=('count_distinct', 'different_over_$k', 'unique_above', 'count_unique'),
    code="""\
def $f(nums):
  seen = set()
  for x in nums:
    if x > $k:
      seen.add(x)
  return len(seen)
""",
    inputs=lambda rng, p: (_with_repeats(rng, p['k']),),
    params={'k': range(2, 21)},
  ),
  Family(
    name='set_similarity',
    group='set',
    canonical=(
      'Write a function to divide the number of common elements of two lists by the number of '
      'elements in their union, rounded to 2 decimals.'
    ),
    paraphrases=(
      ('Given two lists, treat them as sets and return the size of the intersection over the size '
       'of the union to 2 decimal places.'),
      ('The Jaccard similarity of the two lists, repeats being ignored, should be returned with '
       '2 decimals.'),
      ('Create a function that tells what fraction of all distinct elements is in both lists, '
       'rounded to two digits after the point.'),
    ),
    terse='Jaccard similarity of two lists.',
    names=('jaccard', 'set_similarity', 'overlap_ratio', 'common_fraction'),
    code="""\
def $f(a, b):
  first, second = set(a), set(b)
  return round(len(first & second) / len(first | second), 2)
""",
    inputs=lambda rng, p: (draw.ints(rng, 1, 8, 3, 6), draw.ints(rng, 1, 8, 3, 6)),
  ),
  Family(
    name='set_remove_add',
    group='set',
    canonical=(
      'Write a function to return a copy of a set of numbers without $a and with $b added.'
    ),
    paraphrases=(
      ('Given a set, return a new one from which $a, if present, is gone and in which $b is '
       'included.'),
      'In the returned set $b must be a member and $a must not; everything else is as before.',
      ('Create a function that discards $a from a set, inserts $b, and leaves the argument '
       'unmodified.'),
    ),
    terse='Add $b to a set, remove another.',
    names=('remove_add', 'swap_${a}_with_${b}', 'update_set', 'exchange_member'),
    code="""\
def $f(s):
  result = set(s)
  result.discard($a)
  result.add($b)
  return result
""",
    inputs=lambda rng, p: (_set_with(rng, p['a']),),
    params={'a': range(1, 7), 'b': (0, 10, 13, 16, 20, 25)},
  ),
  Family(
    name='set_complements',
    group='set',
    canonical=(
      'Write a function to return the set of numbers x in a list for which $k minus x is also in '
      'the list.'
    ),
    paraphrases=(
      ('Given a list of different numbers, collect in a set those that add up to $k with a member '
       'of the list.'),
      'A number belongs to the returned set if its complement to $k occurs in the list as well.',
      ('Implement a function that finds every number taking part in a pair of list elements '
       'with sum $k, as a set.'),
    ),
    terse='Set of numbers with a complement.',
    names=('complements', 'pairs_to_$k', 'with_partner', 'complement_set'),
    code="""\
def $f(nums):
  seen = set(nums)
  return {x for x in nums if $k - x in seen}
""",
    inputs=lambda rng, p: (_complements(rng, p['k']),),
    params={'k': range(9, 25)},
    ood=True,
  ),
  Family(
    name='set_missing_multiple',
    group='set',
    canonical=(
      'Write a function to find the smallest positive multiple of $k that is not in a given set.'
    ),
    paraphrases=(
      ('Given a set of integers, return the least number above zero that $k divides and that the '
       'set lacks.'),
      ('Going through $k, twice $k, three times $k and so on, the first value absent from the set '
       'is returned.'),
      ('Create a function that searches for the lowest positive number divisible by $k which is '
       'no member of the set.'),
    ),
    terse='Smallest multiple missing from a set.',
    names=('missing_multiple', 'first_free_$k', 'next_absent', 'smallest_missing'),
    code="""\
def $f(s):
  m = $k
  while m in s:
    m += $k
  return m
""",
    inputs=lambda rng, p: (_first_multiples(rng, p['k']),),
    params={'k': range(2, 14)},
    ood=True,
  ),
)
