"""List families that rebuild a list: maps, reorderings, insertions, regroupings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from promptrl_jax.tasks.minicode.families import draw
from promptrl_jax.tasks.minicode.family import Family, Params


def _mix(
  rng: random.Random, pool: Sequence[int], low: int, high: int, least: int = 4, most: int = 6
) -> list[int]:
  """Integers of which about half come from `pool`, the rest from `[low, high]`."""
  size = rng.randint(least, most)
  return [rng.choice(pool) if rng.random() < 0.5 else rng.randint(low, high) for _ in range(size)]


def _two_lists(rng: random.Random, p: Params) -> tuple[list[int], list[int]]:
  size = rng.randint(2, 4)
  return draw.ints(rng, 0, 20, size, size), draw.ints(rng, 0, 20, size, size)


def _nested(rng: random.Random, p: Params) -> tuple[list[Any]]:
  """A list of lists, some of which hold one more list."""
  result: list[Any] = [draw.ints(rng, 0, 9, 0, 3) for _ in range(rng.randint(2, 3))]
  if rng.random() < 0.6:
    rng.choice(result).append([rng.randint(0, 9)])
  return (result,)


def _multiples(rng: random.Random, p: Params) -> tuple[list[int]]:
  """Multiples of `k`, of its divisors, and others."""
  k = p['k']
  divisors = [d for d in range(1, k) if k % d == 0]
  result = []
  for _ in range(rng.randint(4, 6)):
    base = k if rng.random() < 0.5 else rng.choice(divisors)
    result.append(base * rng.randint(1, 7 if base == k else 15))
  return (result,)


def _repeats(rng: random.Random, p: Params) -> tuple[list[int]]:
  """A list made of short runs of equal elements."""
  nums: list[int] = []
  while len(nums) < 4:
    nums += [rng.randint(0, 4)] * rng.randint(1, 3)
  return (nums[:6],)


FAMILIES: tuple[Family, ...] = (
  Family(
    name='affine_map',
    group='list',
    canonical='Write a function to multiply each number in a list by $a and then add $b.',
    paraphrases=(
      'Given integers x, return the list of the values $a * x + $b.',
      'All entries are to be scaled by the factor $a and afterwards raised by $b.',
      'Create a new list in which every element has become $a times itself plus $b.',
    ),
    terse='Scale and shift the list elements.',
    names=('scale_and_shift', 'times_${a}_plus_${b}', 'linear_map', 'affine'),
    code="""\
def $f(nums):
  return [$a * x + $b for x in nums]
""",
    inputs=lambda rng, p: (draw.ints(rng, -5, 15, 3, 5),),
    params={'a': range(2, 8), 'b': range(1, 7)},
  ),
  Family(
    name='rotate_right',
    group='list',
    canonical='Write a function to rotate a list to the right by $k positions.',
    paraphrases=(
      (
        'Given a list, shift its entries $k places towards the end; what falls off reappears at '
        'the front.'
      ),
      'The elements should be moved cyclically by $k steps rightwards.',
      'Perform $k times: take the final item away and put it in first place. Return the result.',
    ),
    terse='Rotate a list.',
    names=('rotate_right', 'rotate_by_$k', 'cyclic_shift', 'shift_right'),
    code="""\
def $f(items):
  k = $k % len(items)
  return items[-k:] + items[:-k] if k else list(items)
""",
    inputs=lambda rng, p: (draw.distinct_ints(rng, 0, 20, 5, 8),),
    params={'k': range(1, 8)},
  ),
  Family(
    name='chunk_list',
    group='list',
    canonical='Write a function to split a list into consecutive chunks of $k elements, the last '
    'possibly shorter.',
    paraphrases=(
      (
        'Given a list, return a list of its successive pieces having $k entries each; a smaller '
        'rest forms the final piece.'
      ),
      (
        'The sequence should be broken up, from the left, into blocks of $k, with the remainder as '
        'a block of its own.'
      ),
      (
        'Group neighbouring items by $k at a time and return the groups, including an incomplete '
        'one at the end.'
      ),
    ),
    terse='Split a list into chunks.',
    names=('chunk_list', 'chunks_of_$k', 'split_into_blocks', 'batch_items'),
    code="""\
def $f(items):
  return [items[i:i + $k] for i in range(0, len(items), $k)]
""",
    inputs=lambda rng, p: (draw.ints(rng, 0, 20, 5, 8),),
    params={'k': range(2, 7)},
  ),
  Family(
    name='interleave_lists',
    group='list',
    canonical='Write a function to interleave two lists of equal length, starting with the first '
    'list.',
    paraphrases=(
      (
        'Given two equally long lists, return one list taking their entries in turn, the first '
        'list leading.'
      ),
      (
        'The elements of both arguments should alternate in the result, beginning with the first '
        'argument.'
      ),
      'Merge a and b into a[0], b[0], a[1], b[1] and so on; both have the same size.',
    ),
    terse='Interleave two lists.',
    names=('interleave', 'merge_alternately', 'zip_flat', 'alternate_lists'),
    code="""\
def $f(first, second):
  result = []
  for a, b in zip(first, second):
    result.append(a)
    result.append(b)
  return result
""",
    inputs=_two_lists,
  ),
  Family(
    name='running_total_from',
    group='list',
    canonical='Write a function to return the running totals of a list of numbers, starting from '
    'an initial balance of $s.',
    paraphrases=(
      (
        'Given integers, begin with $s, add them one at a time and return the total after each '
        'addition.'
      ),
      'Every entry should be replaced by $s plus the sum of all entries up to and including it.',
      'Compute cumulative sums where the accumulator is $s before the first element.',
    ),
    terse='Return running totals of a list.',
    names=('running_totals', 'cumulative_from_$s', 'balances', 'partial_sums'),
    code="""\
def $f(nums):
  total = $s
  totals = []
  for x in nums:
    total += x
    totals.append(total)
  return totals
""",
    inputs=lambda rng, p: (draw.ints(rng, -9, 20, 3, 6),),
    params={'s': range(1, 21)},
  ),
  Family(
    name='sort_by_distance',
    group='list',
    canonical='Write a function to sort numbers by their distance from $k, nearest first, ties in '
    'original order.',
    paraphrases=(
      (
        'Given integers, order them so that the ones closest to $k lead; equally close ones stay '
        'in their input order.'
      ),
      'The list should be arranged by increasing absolute difference to $k, in a stable manner.',
      'Return the entries from least to most remote from $k without swapping equally remote ones.',
    ),
    terse='Sort numbers by distance.',
    names=('sort_by_distance', 'nearest_to_${k}_first', 'order_by_closeness', 'distance_sort'),
    code="""\
def $f(nums):
  return sorted(nums, key=lambda x: abs(x - $k))
""",
    inputs=lambda rng, p: (draw.distinct_ints(rng, p['k'] - 6, p['k'] + 6, 4, 6),),
    params={'k': range(2, 21)},
  ),
  Family(
    name='unique_in_order',
    group='list',
    canonical='Write a function to remove duplicates from a list, keeping the first occurrence of '
    'each element in order.',
    paraphrases=(
      'Given a list, return its different entries in the order in which they first appear.',
      'Every element equal to an earlier one should be discarded; the others stay where they are.',
      'Create a copy without repetitions that preserves the order of first appearance.',
    ),
    terse='Remove duplicates from a list.',
    names=('unique_in_order', 'remove_duplicates', 'dedupe', 'first_appearances'),
    code="""\
def $f(items):
  seen = []
  for x in items:
    if x not in seen:
      seen.append(x)
  return seen
""",
    inputs=lambda rng, p: (draw.ints(rng, 0, 6, 4, 7),),
  ),
  Family(
    name='insert_at',
    group='list',
    canonical='Write a function to insert the number $v into a list at index $i.',
    paraphrases=(
      'Given a list, return a copy that has $v as an additional entry at zero-based position $i.',
      'A new $v should be placed in front of the element that is at index $i now.',
      'Put $v into the sequence right after its first $i entries.',
    ),
    terse='Insert a number into a list.',
    names=('insert_at', 'insert_${v}_at_${i}', 'put_into', 'with_inserted'),
    code="""\
def $f(nums):
  result = list(nums)
  result.insert($i, $v)
  return result
""",
    inputs=lambda rng, p: (draw.ints(rng, 0, 15, 4, 6),),
    params={'i': range(1, 5), 'v': range(2, 10)},
  ),
  Family(
    name='replace_value',
    group='list',
    canonical='Write a function to replace every $a in a list by $b.',
    paraphrases=(
      'Given a list, return it with $b in place of each entry that equals $a.',
      'All occurrences of $a should be exchanged for $b; other values do not change.',
      'Create a copy of the list where $a has been substituted by $b throughout.',
    ),
    terse='Replace a number in a list.',
    names=('replace_value', 'replace_${a}_by_${b}', 'substitute', 'exchange_number'),
    code="""\
def $f(nums):
  return [$b if x == $a else x for x in nums]
""",
    inputs=lambda rng, p: (_mix(rng, (p['a'], p['a'], p['b']), 0, 9),),
    params={'a': range(1, 7), 'b': range(1, 7)},
    keep=lambda p: p['a'] != p['b'],
  ),
  Family(
    name='lag_differences',
    group='list',
    canonical='Write a function to subtract from each list element the element $k positions before '
    'it.',
    paraphrases=(
      (
        'Given integers, return the differences nums[i] - nums[i - $k] for all indices i from $k '
        'on.'
      ),
      (
        'Differences between entries that are $k places apart, later minus earlier, should be '
        'listed.'
      ),
      'Compute how much the sequence changes over every stretch of $k steps, from left to right.',
    ),
    terse='List the differences between elements.',
    names=('lag_differences', 'changes_over_$k', 'differences', 'step_changes'),
    code="""\
def $f(nums):
  return [nums[i] - nums[i - $k] for i in range($k, len(nums))]
""",
    inputs=lambda rng, p: (draw.ints(rng, -9, 20, 6, 7),),
    params={'k': range(1, 6)},
  ),
  Family(
    name='flatten_once',
    group='list',
    canonical='Write a function to flatten a list of lists by one level, leaving deeper lists as '
    'they are.',
    paraphrases=(
      (
        'Given a list whose entries are lists, return the concatenation of these entries, not '
        'unpacking anything further.'
      ),
      'The inner lists should be joined into a single one; lists inside them stay intact.',
      'Remove just the outermost layer of nesting and return the joined items.',
    ),
    terse='Flatten a nested list.',
    names=('flatten_once', 'join_lists', 'concat_inner', 'flatten_outer'),
    code="""\
def $f(lists):
  result = []
  for inner in lists:
    result.extend(inner)
  return result
""",
    inputs=_nested,
  ),
  Family(
    name='clamp_values',
    group='list',
    canonical='Write a function to limit each number in a list to the range from $a to $b.',
    paraphrases=(
      'Given integers, raise those below $a to $a and lower those above $b to $b.',
      'Every entry is to be clamped so that it is at least $a and at most $b.',
      'Create a copy where too small values become $a, too large ones become $b, others persist.',
    ),
    terse='Clamp the numbers of a list.',
    names=('clamp_values', 'clamp_${a}_to_${b}', 'limit_all', 'clip_list'),
    code="""\
def $f(nums):
  return [max($a, min(x, $b)) for x in nums]
""",
    inputs=lambda rng, p: (_mix(rng, (p['a'] - 1, p['b'] + 1), 0, 20),),
    params={'a': range(2, 8), 'b': range(10, 16)},
  ),
  Family(
    name='reverse_segment',
    group='list',
    canonical='Write a function to reverse the part of a list from index $a to index $b, both '
    'inclusive.',
    paraphrases=(
      (
        'Given a list, return it with the entries at zero-based positions $a through $b in '
        'opposite order.'
      ),
      (
        'The section beginning at index $a and ending with index $b should be turned around, all '
        'else staying put.'
      ),
      'Flip the stretch of items numbered $a to $b (counted from zero, ends included).',
    ),
    terse='Reverse a part of a list.',
    names=('reverse_segment', 'flip_${a}_to_${b}', 'reverse_part', 'turn_section'),
    code="""\
def $f(items):
  return items[:$a] + items[$a:$b + 1][::-1] + items[$b + 1:]
""",
    inputs=lambda rng, p: (draw.distinct_ints(rng, 0, 20, 6, 7),),
    params={'a': range(4), 'b': range(1, 6)},
    keep=lambda p: p['a'] < p['b'],
  ),
  Family(
    name='move_to_end',
    group='list',
    canonical='Write a function to move all occurrences of $v to the end of a list, keeping the '
    'order of the rest.',
    paraphrases=(
      'Given integers, return the ones different from $v in their order, followed by every $v.',
      'Each $v should be pushed behind the remaining entries, whose sequence does not change.',
      'Reorder the list so that the values $v come after everything else, otherwise stably.',
    ),
    terse='Move a number to the end.',
    names=('move_to_end', 'push_${v}_back', 'values_last', 'shift_behind'),
    code="""\
def $f(nums):
  rest = [x for x in nums if x != $v]
  return rest + [$v] * (len(nums) - len(rest))
""",
    inputs=lambda rng, p: (_mix(rng, (p['v'],), 0, 16),),
    params={'v': range(17)},
  ),
  Family(
    name='negate_multiples',
    group='list',
    canonical='Write a function to change the sign of every number in a list that is divisible by '
    '$k.',
    paraphrases=(
      'Given integers, return them with all multiples of $k negated.',
      'Entries having $k as a factor turn into their negatives while the others remain the same.',
      'Build a list holding -x for each x that $k divides evenly, and x otherwise.',
    ),
    terse='Negate the divisible numbers.',
    names=('negate_multiples', 'flip_sign_mod_$k', 'invert_divisible', 'sign_change'),
    code="""\
def $f(nums):
  result = []
  for x in nums:
    if x % $k == 0:
      x = -x
    result.append(x)
  return result
""",
    inputs=_multiples,
    params={'k': range(2, 21)},
  ),
  Family(
    name='add_index_times',
    group='list',
    canonical='Write a function to add $k times its index to each element of a list.',
    paraphrases=(
      'Given integers, raise the one at zero-based position i by $k * i.',
      'The first entry stays, the second grows by $k, the third by twice $k and so on.',
      'Return a list whose items are nums[i] plus the product of i and $k.',
    ),
    terse='Add multiples of the index.',
    names=('add_index_times', 'add_${k}_per_index', 'tilt_list', 'linear_raise'),
    code="""\
def $f(nums):
  return [x + $k * i for i, x in enumerate(nums)]
""",
    inputs=lambda rng, p: (draw.ints(rng, 0, 20, 3, 6),),
    params={'k': range(2, 21)},
  ),
  Family(
    name='intersperse_value',
    group='list',
    canonical='Write a function to put the number $v between all neighbouring elements of a list.',
    paraphrases=(
      'Given integers, return a list in which any two adjacent ones have $v in between.',
      'One $v should be placed in each gap of the list, and none at its ends.',
      'Insert $v as a separator after every entry apart from the final one.',
    ),
    terse='Separate list elements by a number.',
    names=('intersperse', 'separate_by_$v', 'insert_between', 'fill_gaps'),
    code="""\
def $f(nums):
  result = nums[:1]
  for x in nums[1:]:
    result += [$v, x]
  return result
""",
    inputs=lambda rng, p: (draw.ints(rng, 0, 20, 2, 5),),
    params={'v': range(17)},
  ),
  Family(
    name='pad_to_length',
    group='list',
    canonical='Write a function to append the number $v to a list until it has $n elements.',
    paraphrases=(
      (
        'Given fewer than $n integers, return them followed by as many $v as bring the length to '
        '$n.'
      ),
      'The list should be filled up with $v at its end to a size of $n.',
      'Extend a short sequence to exactly $n entries, using $v as padding on the right.',
    ),
    terse='Pad a list at the end.',
    names=('pad_list', 'pad_to_${n}_with_${v}', 'fill_up', 'extend_to_length'),
    code="""\
def $f(nums):
  result = list(nums)
  while len(result) < $n:
    result.append($v)
  return result
""",
    inputs=lambda rng, p: (draw.ints(rng, 0, 20, 1, 4),),
    params={'v': range(6), 'n': range(5, 9)},
  ),
  Family(
    name='split_at_value',
    group='list',
    canonical='Write a function to split a list into sublists at every $v, dropping $v and empty '
    'sublists.',
    paraphrases=(
      (
        'Given integers, treat $v as a separator and return the non-empty groups that it '
        'separates, without it.'
      ),
      (
        'The list should be cut wherever $v occurs; return the pieces containing at least one '
        'entry, the $v itself gone.'
      ),
      'Collect, as lists, the maximal stretches of neighbouring elements that are not $v.',
    ),
    terse='Split a list at a number.',
    names=('split_at_value', 'split_on_$v', 'separate_groups', 'cut_at'),
    code="""\
def $f(nums):
  parts, part = [], []
  for x in nums + [$v]:
    if x != $v:
      part.append(x)
    elif part:
      parts.append(part)
      part = []
  return parts
""",
    inputs=lambda rng, p: (_mix(rng, (p['v'], p['v'], 20), 0, 18, 5, 7),),
    params={'v': range(17)},
    ood=True,
  ),
  Family(
    name='run_lengths',
    group='list',
    canonical='Write a function to encode a list as tuples of each run of equal neighbours: value '
    'and run length.',
    paraphrases=(
      (
        'Given a list, return pairs (value, count), one for every block of consecutive equal '
        'entries.'
      ),
      (
        'Adjacent repetitions should be compressed into tuples consisting of the repeated item and '
        'how often it repeats.'
      ),
      (
        'Perform run-length encoding; each result item is a tuple holding the element followed by '
        'its count.'
      ),
    ),
    terse='Run-length encode a list.',
    names=('run_lengths', 'encode_runs', 'compress_list', 'rle'),
    code="""\
def $f(items):
  runs = []
  for x in items:
    if runs and runs[-1][0] == x:
      runs[-1] = (x, runs[-1][1] + 1)
    else:
      runs.append((x, 1))
  return runs
""",
    inputs=_repeats,
    ood=True,
  ),
)
