"""Families of problems about tuples and lists of tuples."""

from __future__ import annotations

import random

from promptrl_jax.tasks.minicode.families import draw
from promptrl_jax.tasks.minicode.family import Family


def _pairs_summing(rng: random.Random, k: int) -> list[tuple[int, int]]:
  """Pairs of integers with sums near `k`."""
  pairs = []
  for _ in range(rng.randint(2, 4)):
    total = max(1, k + rng.choice((0, 0, 1, 1, rng.randint(-8, 8))))
    first = rng.randint(0, total)
    pairs.append((first, total - first))
  return pairs


def _pairs_apart(rng: random.Random, k: int) -> list[tuple[int, int]]:
  """Pairs of integers whose difference is near `k`."""
  pairs = []
  for _ in range(rng.randint(2, 4)):
    gap = max(0, k + rng.choice((0, 0, -1, -1, rng.randint(-6, 6))))
    low = rng.randint(0, 9)
    pair = (low, low + gap)
    pairs.append(pair if rng.random() < 0.5 else pair[::-1])
  return pairs


def _distinct(rng: random.Random, least: int, most: int, high: int = 20) -> tuple[int, ...]:
  return tuple(draw.distinct_ints(rng, 0, high, least, most))


def _by_second(rng: random.Random) -> list[tuple[str, int]]:
  """Pairs of a word and an integer, the integers distinct."""
  return [(draw.letters(rng, 'abcdxyz', 1, 2), n) for n in draw.distinct_ints(rng, 1, 20, 2, 3)]


def _near(rng: random.Random, k: int) -> tuple[int, ...]:
  """Integers of which many are `k` or `k - 1`."""
  return tuple(
    rng.choice((k - 1, k, rng.randint(max(0, k - 9), k + 9), rng.randint(0, 25)))
    for _ in range(rng.randint(3, 6))
  )


def _nested(rng: random.Random, k: int) -> list[tuple[int, ...]]:
  """A list of short tuples that mostly contain `k` somewhere."""
  return [
    tuple(
      k if rng.random() < 0.3 else rng.randint(1, 16) for _ in range(rng.randint(1, 3))
    )
    for _ in range(rng.randint(2, 3))
  ]


def _with(rng: random.Random, a: int) -> tuple[int, ...]:
  """Integers of which about a third are `a`."""
  return tuple(
    a if rng.random() < 0.35 else rng.randint(1, 12) for _ in range(rng.randint(3, 6))
  )


def _vectors(rng: random.Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
  """Two tuples of the same length."""
  size = rng.randint(2, 4)
  one = tuple(rng.randint(1, 12) for _ in range(size))
  return one, tuple(rng.randint(1, 12) for _ in range(size))


FAMILIES: tuple[Family, ...] = (
  Family(
    name='tuple_pairs_sum_above',
    group='tuple',
    canonical=(
      'Write a function to keep only the pairs of a list whose two numbers add up to more '
      'than $k.'
    ),
    paraphrases=(
      'Given a list of 2-tuples, return those that have a sum exceeding $k.',
      'Tuples (x, y) with x + y of $k or less should be discarded from the list.',
      'Create a function that selects, in order, the pairs with a total larger than $k.',
    ),
    terse='Filter pairs by their sum.',
    names=('pairs_above', 'heavy_pairs', 'sum_over_$k', 'filter_pairs'),
    code="""\
def $f(pairs):
  return [(x, y) for x, y in pairs if x + y > $k]
""",
    inputs=lambda rng, p: (_pairs_summing(rng, p['k']),),
    params={'k': range(5, 24)},
  ),
  Family(
    name='tuple_sort_by_second',
    group='tuple',
    canonical=(
      'Write a function to sort a list of tuples by their second element, from the largest to '
      'the smallest.'
    ),
    paraphrases=(
      'Given a list of pairs, return it ordered descendingly by the last entry of each pair.',
      'The tuples should be arranged so that their second items decrease.',
      'Implement a function that orders pairs by the number at index 1, highest first.',
    ),
    terse='Sort tuples by second element.',
    names=('sort_pairs', 'order_by_second', 'sort_by_value', 'rank_tuples'),
    code="""\
def $f(pairs):
  return sorted(pairs, key=lambda pair: pair[1], reverse=True)
""",
    inputs=lambda rng, p: (_by_second(rng),),
  ),
  Family(
    name='tuple_add_even_positions',
    group='tuple',
    canonical=(
      'Write a function to add $k to the elements at even indices of a tuple and leave the '
      'others unchanged.'
    ),
    paraphrases=(
      ('Given a tuple of numbers, return a new one in which the entries at index 0, 2, 4 and so '
       'on are larger by $k.'),
      ('Every second entry, beginning with the first, should be increased by $k in the returned '
       'tuple.'),
      ('Create a tuple whose odd-indexed items are those of the input, while $k has been added '
       'to the even-indexed ones.'),
    ),
    terse='Increase elements at even indices.',
    names=('add_at_even', 'raise_even_by_$k', 'bump_alternate', 'shift_positions'),
    code="""\
def $f(t):
  result = []
  for i, x in enumerate(t):
    result.append(x + $k if i % 2 == 0 else x)
  return tuple(result)
""",
    inputs=lambda rng, p: (tuple(draw.ints(rng, -5, 20, 2, 6)),),
    params={'k': range(2, 18)},
  ),
  Family(
    name='tuple_pairs_apart',
    group='tuple',
    canonical=(
      'Write a function to find the pairs of a list whose two numbers differ by at least $k.'
    ),
    paraphrases=(
      'Given a list of 2-tuples, return those with an absolute difference of $k or more.',
      'Tuples whose numbers are closer together than $k should be left out of the result.',
      ('Implement a function that picks every pair with a distance between its entries not '
       'below $k.'),
    ),
    terse='Pairs with a large difference.',
    names=('pairs_apart', 'wide_pairs', 'gap_at_least_$k', 'distant_pairs'),
    code="""\
def $f(pairs):
  result = []
  for pair in pairs:
    if abs(pair[0] - pair[1]) >= $k:
      result.append(pair)
  return result
""",
    inputs=lambda rng, p: (_pairs_apart(rng, p['k']),),
    params={'k': range(2, 17)},
  ),
  Family(
    name='tuple_rotate',
    group='tuple',
    canonical='Write a function to rotate a tuple to the left by $k positions.',
    paraphrases=(
      'Given a tuple, move its first $k elements to the end, keeping their order.',
      ('All entries should be shifted $k places towards the front, those that fall off being '
       'appended at the back.'),
      'Create a function that returns the tuple starting from index $k and wrapping around.',
    ),
    terse='Rotate a tuple to the left.',
    names=('rotate_left', 'rotate_$k', 'shift_tuple', 'cycle_items'),
    code="""\
def $f(t):
  return t[$k:] + t[:$k]
""",
    inputs=lambda rng, p: (_distinct(rng, 7, 8),),
    params={'k': range(2, 7)},
  ),
  Family(
    name='tuple_chunks',
    group='tuple',
    canonical=(
      'Write a function to split a tuple into a list of consecutive tuples of length $k, the '
      'last of which may be shorter.'
    ),
    paraphrases=(
      ('Given a tuple, cut it into pieces of $k elements from the front; what remains at the end '
       'forms the final piece.'),
      ('The entries are grouped in order into tuples with $k members each, and the list of '
       'groups, possibly with a smaller last one, is returned.'),
      ('Implement a function that returns slices of size $k (or less at the end) covering the '
       'tuple.'),
    ),
    terse='Split a tuple into chunks.',
    names=('chunk_tuple', 'chunks_of_$k', 'split_tuple', 'partition'),
    code="""\
def $f(t):
  chunks = []
  while t:
    chunks.append(t[:$k])
    t = t[$k:]
  return chunks
""",
    inputs=lambda rng, p: (tuple(draw.ints(rng, 0, 20, 5, 7)),),
    params={'k': range(2, 6)},
  ),
  Family(
    name='tuple_replace',
    group='tuple',
    canonical='Write a function to replace each $a in a tuple of numbers by $b.',
    paraphrases=(
      'Given a tuple, return a new tuple in which $b stands wherever the input has $a.',
      'All occurrences of the number $a are to be exchanged for $b, the rest being copied.',
      'Create a function that substitutes the value $b for the value $a throughout a tuple.',
    ),
    terse='Replace $a in a tuple.',
    names=('replace_in_tuple', 'swap_${a}_for_${b}', 'substitute', 'change_value'),
    code="""\
def $f(t):
  return tuple($b if x == $a else x for x in t)
""",
    inputs=lambda rng, p: (_with(rng, p['a']),),
    params={'a': range(1, 7), 'b': (0, 7, 8, 9, 10, 20)},
  ),
  Family(
    name='tuple_weighted',
    group='tuple',
    canonical=(
      'Write a function to compute, for each pair in a list, $a times the first number plus $b '
      'times the second.'
    ),
    paraphrases=(
      'Given a list of 2-tuples (x, y), return the list of the values $a * x + $b * y.',
      ('Every pair is turned into one number by weighting its first entry with $a and its second '
       'with $b and adding.'),
      ('Implement a function that returns weighted sums of pairs, where $a and $b are the '
       'weights of first and second item.'),
    ),
    terse='Weighted sums with $a for the first.',
    names=('weighted_sums', 'combine_pairs', 'mix_${a}_${b}', 'pair_scores'),
    code="""\
def $f(pairs):
  scores = []
  for x, y in pairs:
    scores.append($a * x + $b * y)
  return scores
""",
    inputs=lambda rng, p: (
      [(rng.randint(0, 9), rng.randint(0, 9)) for _ in range(rng.randint(1, 4))],
    ),
    params={'a': range(2, 8), 'b': range(2, 8)},
  ),
  Family(
    name='tuple_split_counts',
    group='tuple',
    canonical=(
      'Write a function to return a pair with the number of elements less than $k and the '
      'number of all other elements.'
    ),
    paraphrases=(
      ('Given a tuple of numbers, count how many are below $k and how many are not, and return '
       'both counts as a tuple.'),
      ('The result is a 2-tuple: first the amount of entries smaller than $k, second the amount '
       'of entries that are at least $k.'),
      ('Create a function that divides numbers at $k and tells the sizes of the lower and the '
       'upper part, in this order.'),
    ),
    terse='Count small and other elements.',
    names=('split_counts', 'below_and_above', 'count_around_$k', 'part_sizes'),
    code="""\
def $f(nums):
  low = sum(1 for x in nums if x < $k)
  return (low, len(nums) - low)
""",
    inputs=lambda rng, p: (_near(rng, p['k']),),
    params={'k': range(3, 21)},
  ),
  Family(
    name='tuple_swap_positions',
    group='tuple',
    canonical='Write a function to swap the elements at indices $a and $b of a tuple.',
    paraphrases=(
      ('Given a tuple, return a copy in which the entries with index $a and index $b have '
       'changed places.'),
      ('What stands at position $a (counted from 0) should be exchanged with what stands at '
       'position $b.'),
      ('Create a function that interchanges two items of a tuple, namely number $a and number $b '
       'in zero-based counting.'),
    ),
    terse='Swap index $a with another index.',
    names=('swap_positions', 'swap_${a}_${b}', 'exchange_items', 'switch_places'),
    code="""\
def $f(t):
  items = list(t)
  items[$a], items[$b] = items[$b], items[$a]
  return tuple(items)
""",
    inputs=lambda rng, p: (_distinct(rng, 6, 7),),
    params={'a': range(5), 'b': range(1, 6)},
    keep=lambda p: p['a'] < p['b'],
  ),
  Family(
    name='tuple_flatten_without',
    group='tuple',
    canonical=(
      'Write a function to flatten a list of tuples into one list, leaving out every number '
      'equal to $k.'
    ),
    paraphrases=(
      ('Given several tuples in a list, return all their entries in order in a single list but '
       'without any $k.'),
      'The members of the tuples are joined to one list from which the number $k is absent.',
      'Implement a function that unpacks each tuple one after the other, skipping the value $k.',
    ),
    terse='Flatten tuples, skipping one number.',
    names=('flatten_without', 'flatten_skip_$k', 'join_tuples', 'unpack_all'),
    code="""\
def $f(tuples):
  flat = []
  for t in tuples:
    for x in t:
      if x != $k:
        flat.append(x)
  return flat
""",
    inputs=lambda rng, p: (_nested(rng, p['k']),),
    params={'k': range(1, 17)},
  ),
  Family(
    name='tuple_slice_step',
    group='tuple',
    canonical=(
      'Write a function to take from a tuple the element at index $a and every element $b '
      'positions further, up to the end.'
    ),
    paraphrases=(
      ('Given a tuple, return the tuple of entries found when starting at index $a and moving on '
       'in steps of $b.'),
      ('Beginning with the item whose index is $a, each item $b places after the last one '
       'taken is selected.'),
      ('Implement a function that skips the first $a entries and then picks one out of every $b, '
       'the first of each group.'),
    ),
    terse='Take tuple elements in steps of $b.',
    names=('slice_step', 'pick_from_${a}_by_${b}', 'stride_items', 'sample_tuple'),
    code="""\
def $f(t):
  picked = []
  i = $a
  while i < len(t):
    picked.append(t[i])
    i += $b
  return tuple(picked)
""",
    inputs=lambda rng, p: (_distinct(rng, 7, 10, 15),),
    params={'a': range(5), 'b': range(2, 6)},
  ),
  Family(
    name='tuple_dot_mod',
    group='tuple',
    canonical=(
      'Write a function to multiply two tuples element by element and return the sum of the '
      'products modulo $k.'
    ),
    paraphrases=(
      ('Given two tuples of equal length, return the remainder of their dot product when divided '
       'by $k.'),
      ('Numbers at the same index are multiplied, the results added, and what is left after '
       'division by $k is returned.'),
      ('Create a function that computes the scalar product of a pair of tuples and reduces it '
       'modulo $k.'),
    ),
    terse='Sum of products of tuples, reduced.',
    names=('dot_mod', 'dot_mod_$k', 'product_remainder', 'reduced_dot'),
    code="""\
def $f(a, b):
  total = 0
  for x, y in zip(a, b):
    total += x * y
  return total % $k
""",
    inputs=lambda rng, p: _vectors(rng),
    params={'k': range(4, 20)},
    ood=True,
  ),
  Family(
    name='tuple_distances',
    group='tuple',
    canonical=(
      'Write a function to pair each element of a tuple with its absolute difference from $k, '
      'as a list of tuples.'
    ),
    paraphrases=(
      ('Given numbers in a tuple, return a list of 2-tuples, each holding a number and how far it '
       'is from $k.'),
      'For every entry x, the tuple made of x and its distance to $k is put into a list.',
      'Implement a function that annotates the given numbers with their distance from $k.',
    ),
    terse='Pair numbers with their distance.',
    names=('distances', 'distance_to_$k', 'annotate', 'with_gaps'),
    code="""\
def $f(t):
  return [(x, abs(x - $k)) for x in t]
""",
    inputs=lambda rng, p: (tuple(draw.ints(rng, 0, 22, 2, 4)),),
    params={'k': range(2, 21)},
    ood=True,
  ),
)
