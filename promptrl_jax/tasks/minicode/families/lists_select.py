"""List families that pick: filters, slices, first and last matches, positions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from promptrl_jax.tasks.minicode.families import draw
from promptrl_jax.tasks.minicode.family import Family, Inputs, Params


def _mix(
  rng: random.Random, pool: Sequence[int], low: int, high: int, least: int = 4, most: int = 6
) -> list[int]:
  """Integers of which about two in three come from `pool`, the rest from `[low, high]`."""
  size = rng.randint(least, most)
  return [rng.choice(pool) if rng.random() < 0.65 else rng.randint(low, high) for _ in range(size)]


def _near(key: str, below: int = 4, above: int = 4) -> Inputs:
  """Lists of integers close to the value of a parameter."""

  def inputs(rng: random.Random, p: Params) -> tuple[list[int]]:
    v = p[key]
    return (_mix(rng, (v - 1, v, v + 1), v - below, v + above),)

  return inputs


def _with_value(rng: random.Random, v: int, share: float = 0.4) -> list[int]:
  """A list in which `v` is frequent."""
  size = rng.randint(4, 6)
  return [v if rng.random() < share else rng.randint(0, 16) for _ in range(size)]


def _multiples(rng: random.Random, k: int) -> list[int]:
  """Multiples of `k`, of its divisors, and others."""
  divisors = [d for d in range(1, k) if k % d == 0]
  result = []
  for _ in range(rng.randint(4, 6)):
    base = k if rng.random() < 0.5 else rng.choice(divisors)
    result.append(base * rng.randint(1, 7 if base == k else 15))
  return result


def _trailing(rng: random.Random, p: Params) -> tuple[list[int]]:
  v = p['v']
  return (_with_value(rng, v, 0.3)[:4] + [v] * rng.randint(0, 3),)


def _peaks(rng: random.Random, p: Params) -> tuple[list[int]]:
  lows = [rng.randint(0, 5) for _ in range(rng.randint(3, 4))]
  result = lows[:1]
  for left, right in itertools.pairwise(lows):
    result += [max(left, right) + max(0, p['k'] + rng.randint(-2, 2)), right]
  return (result,)


def _marked(rng: random.Random, p: Params) -> tuple[list[int]]:
  def other() -> int:
    return rng.choice([x for x in range(10) if x not in (p['a'], p['b'])])

  head = [other() for _ in range(rng.randint(0, 2))]
  inner = [rng.choice((other(), p['a'], other())) for _ in range(rng.randint(0, 3))]
  tail = [rng.choice((other(), p['a'], p['b'])) for _ in range(rng.randint(0, 2))]
  return ([*head, p['a'], *inner, p['b'], *tail],)


def _words(rng: random.Random, p: Params) -> tuple[list[str]]:
  having = [w for w in draw.WORDS if p['c'] in w]
  size = rng.randint(3, 4)
  words = [rng.choice(having) if rng.random() < 0.4 else draw.word(rng) for _ in range(size)]
  return (words if len(''.join(words)) <= 18 else words[:3],)


def _around(rng: random.Random, p: Params) -> tuple[list[int]]:
  """Integers at some distances from `k`, in no few cases with a tie."""
  k = p['k']
  if rng.random() < 0.3:
    return (_mix(rng, (k - 1, k, k + 1), k - 7, k + 7, 3, 5),)
  least = rng.randint(1, 7)
  nums = [k + rng.choice((-1, 1)) * (least + rng.choice((0, 0, 1, 4))) for _ in range(4)]
  return (nums,)


def _leading(rng: random.Random, p: Params) -> tuple[list[int]]:
  """Integers below `k`, then one near it, then any."""
  k = p['k']
  head = [k - rng.randint(1, 8) for _ in range(rng.randint(0, 3))]
  if head:
    head[rng.randrange(len(head))] = k - 1
  return ([*head, k + rng.choice((0, 0, 1, 3)), *draw.ints(rng, k - 9, k + 5, 1, 2)],)


FAMILIES: tuple[Family, ...] = (
  Family(
    name='keep_multiples',
    group='list',
    canonical='Write a function to keep only the numbers of a list that are divisible by $k.',
    paraphrases=(
      'Given integers, return those that are multiples of $k, in their original order.',
      'Every integer that $k does not divide evenly should be discarded from the given list.',
      'Create a filter that leaves just the entries having $k as a factor.',
    ),
    terse='Keep the divisible numbers.',
    names=('keep_multiples', 'multiples_of_$k', 'filter_divisible', 'only_divisible_by_$k'),
    code="""\
def $f(nums):
  return [x for x in nums if x % $k == 0]
""",
    inputs=lambda rng, p: (_multiples(rng, p['k']),),
    params={'k': range(2, 21)},
  ),
  Family(
    name='slice_between_indices',
    group='list',
    canonical='Write a function to get the elements of a list from index $a up to but '
    'not including index $b.',
    paraphrases=(
      (
        'Given a list, return its part that starts at position $a and stops just before position '
        '$b (counting from zero).'
      ),
      (
        'The section of the sequence whose zero-based positions are at least $a and below $b is to '
        'be returned.'
      ),
      'Cut out the entries with indices $a (included) to $b (excluded).',
    ),
    terse='Return a slice of a list.',
    names=('slice_list', 'part_${a}_to_${b}', 'sub_list', 'cut_section'),
    code="""\
def $f(items):
  return items[$a:$b]
""",
    inputs=lambda rng, p: (draw.distinct_ints(rng, 0, 20, max(6, p['b'] + 1), 8),),
    params={'a': range(1, 5), 'b': range(3, 8)},
    keep=lambda p: p['a'] + 1 < p['b'],
  ),
  Family(
    name='remove_value',
    group='list',
    canonical='Write a function to remove all occurrences of the number $v from a list.',
    paraphrases=(
      'Given a list, return it without any entry that equals $v.',
      'Each $v found among the integers should be dropped while everything else stays.',
      'Implement a filter that discards the value $v wherever it shows up.',
    ),
    terse='Remove a number from a list.',
    names=('remove_value', 'without_$v', 'drop_all', 'delete_occurrences'),
    code="""\
def $f(nums):
  result = []
  for x in nums:
    if x != $v:
      result.append(x)
  return result
""",
    inputs=lambda rng, p: (_with_value(rng, p['v']),),
    params={'v': range(17)},
  ),
  Family(
    name='keep_in_range',
    group='list',
    canonical='Write a function to select the numbers of a list that are between $a and $b, '
    'both inclusive.',
    paraphrases=(
      'Given integers, return the ones that are not below $a and not above $b.',
      'All entries smaller than $a or larger than $b should be thrown out of the list.',
      'Filter a sequence so that only values from $a through $b remain.',
    ),
    terse='Keep the numbers within a range.',
    names=('keep_in_range', 'within_limits', 'values_${a}_to_${b}', 'filter_between'),
    code="""\
def $f(nums):
  return [x for x in nums if $a <= x <= $b]
""",
    inputs=lambda rng, p: (
      _mix(rng, (p['a'] - 1, p['a'], p['b'], p['b'] + 1), 0, 18, 5, 7),
    ),
    params={'a': range(2, 8), 'b': range(10, 16)},
  ),
  Family(
    name='every_kth_from',
    group='list',
    canonical='Write a function to pick elements of a list with a step of $k, starting at '
    'index $s.',
    paraphrases=(
      (
        'Given a list, begin at position $s (zero-based) and return every element reached by jumps '
        'of $k.'
      ),
      'The entries whose indices are $s, then $k further, and so on, should be collected.',
      'Skip through the sequence: first take index $s, afterwards always advance by $k places.',
    ),
    terse='Pick list elements at regular steps.',
    names=('every_kth', 'step_${k}_from_${s}', 'take_steps', 'pick_regularly'),
    code="""\
def $f(items):
  result = []
  i = $s
  while i < len(items):
    result.append(items[i])
    i += $k
  return result
""",
    inputs=lambda rng, p: (draw.distinct_ints(rng, 0, 20, 7, 9),),
    params={'k': range(2, 6), 's': range(4)},
  ),
  Family(
    name='keep_small_magnitude',
    group='list',
    canonical='Write a function to keep the numbers of a list whose absolute value is less '
    'than $k.',
    paraphrases=(
      'Given positive and negative integers, return those lying strictly between -$k and $k.',
      'Numbers with a magnitude of $k or more should be left out of the result.',
      'Create a filter that retains the entries whose distance from zero is below $k.',
    ),
    terse='Keep numbers of small absolute value.',
    names=('keep_small', 'magnitude_below_$k', 'near_zero', 'filter_by_magnitude'),
    code="""\
def $f(nums):
  return [n for n in nums if abs(n) < $k]
""",
    inputs=lambda rng, p: (
      [
        rng.choice((-1, 1)) * x
        for x in _mix(rng, (p['k'] - 1, p['k'], p['k'] + 1), 0, p['k'] + 5)
      ],
    ),
    params={'k': range(2, 19)},
  ),
  Family(
    name='keep_remainder',
    group='list',
    canonical='Write a function to find all numbers of a list that leave remainder $r when '
    'divided by $m.',
    paraphrases=(
      'Given integers, return the ones whose value modulo $m equals $r.',
      'Only entries for which division by $m gives a rest of $r are to be kept.',
      'Filter a sequence: dividing by $m must leave exactly $r.',
    ),
    terse='Keep numbers with a certain remainder.',
    names=('keep_remainder', 'rest_${r}_mod_${m}', 'filter_modulo', 'same_remainder'),
    code="""\
def $f(nums):
  kept = []
  for n in nums:
    if n % $m == $r:
      kept.append(n)
  return kept
""",
    inputs=lambda rng, p: (
      _mix(rng, [p['m'] * t + p['r'] for t in range(8)], 1, 40, 5, 6),
    ),
    params={'m': range(3, 9), 'r': range(1, 8)},
    keep=lambda p: p['r'] < p['m'],
  ),
  Family(
    name='element_after_value',
    group='list',
    canonical='Write a function to find the element right after the first $v in a list, or None '
    'if there is none.',
    paraphrases=(
      'Given a list, return what directly follows the earliest $v; return None when nothing does.',
      'The neighbour to the right of the first occurrence of $v should be returned, else None.',
      'Search for $v from the left and give back the next entry, or None without such an entry.',
    ),
    terse='Return the element after a certain number.',
    names=('element_after', 'next_after_$v', 'right_neighbour', 'follower'),
    code="""\
def $f(nums):
  for i in range(len(nums) - 1):
    if nums[i] == $v:
      return nums[i + 1]
  return None
""",
    inputs=lambda rng, p: (_with_value(rng, p['v'], 0.3),),
    params={'v': range(17)},
  ),
  Family(
    name='first_index_above',
    group='list',
    canonical='Write a function to find the index of the first number greater than $k in a list, '
    'or -1 if none.',
    paraphrases=(
      (
        'Given integers, return the position (from zero) of the earliest one exceeding $k, and -1 '
        'when no such integer exists.'
      ),
      (
        'The zero-based place where a value larger than $k first occurs is wanted; use -1 if it '
        'never does.'
      ),
      'Scan from the left until an entry is above $k and return its index; otherwise return -1.',
    ),
    terse='Find the index of the first large number.',
    names=('first_index_above', 'first_over_$k', 'find_larger', 'index_of_first_big'),
    code="""\
def $f(nums):
  for i, x in enumerate(nums):
    if x > $k:
      return i
  return -1
""",
    inputs=_near('k', 9, 2),
    params={'k': range(2, 21)},
  ),
  Family(
    name='last_multiple',
    group='list',
    canonical='Write a function to return the last number in a list that is divisible by $k, or '
    'None if there is none.',
    paraphrases=(
      (
        'Given integers, look from the end for a multiple of $k and return it; return None if '
        'there is none.'
      ),
      (
        'The rightmost entry that $k divides evenly is to be returned, or None without such an '
        'entry.'
      ),
      'Implement a search for the final element having $k as a factor, with None as a fallback.',
    ),
    terse='Find a divisible number in a list.',
    names=('last_multiple', 'last_divisible_by_$k', 'rightmost_multiple', 'final_divisible'),
    code="""\
def $f(nums):
  for x in reversed(nums):
    if x % $k == 0:
      return x
  return None
""",
    inputs=lambda rng, p: (_multiples(rng, p['k']),),
    params={'k': range(2, 17)},
  ),
  Family(
    name='positions_of_value',
    group='list',
    canonical='Write a function to list all indices at which the number $v occurs in a list.',
    paraphrases=(
      'Given integers, return every zero-based position that holds the value $v, ascending.',
      'The places where $v is found should be returned as a list of offsets counted from zero.',
      'Locate each $v in the sequence and collect its index.',
    ),
    terse='Find the indices of a number.',
    names=('positions_of', 'indices_of_$v', 'find_all', 'locate_value'),
    code="""\
def $f(nums):
  return [i for i, x in enumerate(nums) if x == $v]
""",
    inputs=lambda rng, p: (_with_value(rng, p['v']),),
    params={'v': range(17)},
  ),
  Family(
    name='take_until_reaching',
    group='list',
    canonical='Write a function to take elements from the start of a list until one is $k or '
    'more.',
    paraphrases=(
      'Given integers, return the longest beginning of the list in which every entry is below $k.',
      'Values are copied one after another; copying stops before the first that is at least $k.',
      'Create a function returning the leading numbers smaller than $k and nothing after them.',
    ),
    terse='Take leading elements while they are small.',
    names=('take_until', 'prefix_below_$k', 'leading_small', 'take_while_small'),
    code="""\
def $f(nums):
  i = 0
  while i < len(nums) and nums[i] < $k:
    i += 1
  return nums[:i]
""",
    inputs=_leading,
    params={'k': range(2, 21)},
  ),
  Family(
    name='strip_trailing_value',
    group='list',
    canonical='Write a function to remove all trailing elements equal to $v from the end of a '
    'list.',
    paraphrases=(
      'Given a list, cut off the block of $v at its end, leaving any earlier $v untouched.',
      'As long as the final entry is $v it should be discarded; return what remains.',
      'Return the sequence without the run of $v that closes it.',
    ),
    terse='Strip a number from a list.',
    names=('strip_trailing', 'trim_end', 'drop_final_$v', 'strip_right'),
    code="""\
def $f(nums):
  end = len(nums)
  while end > 0 and nums[end - 1] == $v:
    end -= 1
  return nums[:end]
""",
    inputs=_trailing,
    params={'v': range(16)},
  ),
  Family(
    name='closest_to',
    group='list',
    canonical='Write a function to find the number in a list closest to $k, preferring the '
    'smaller one on ties.',
    paraphrases=(
      (
        'Given integers, return the one with the least distance from $k; of two equally distant '
        'ones return the lesser.'
      ),
      'The entry that differs least from $k is wanted, and the lower value wins a draw.',
      'Pick the element nearest to $k, choosing the smaller of two equally near candidates.',
    ),
    terse='Find the closest number, smaller on ties.',
    names=('closest_to', 'nearest_to_$k', 'find_nearest', 'least_distance'),
    code="""\
def $f(nums):
  best = nums[0]
  for x in nums:
    if (abs(x - $k), x) < (abs(best - $k), best):
      best = x
  return best
""",
    inputs=_around,
    params={'k': range(2, 21)},
  ),
  Family(
    name='largest_below',
    group='list',
    canonical='Write a function to find the largest number smaller than $k in a list, or None if '
    'there is none.',
    paraphrases=(
      (
        'Given integers, ignore those that are $k or more and return the maximum of the others, or '
        'None.'
      ),
      (
        'Of all entries strictly below $k the greatest should be returned; None if nothing '
        'qualifies.'
      ),
      'Which is the highest element under $k? Return it, or None when every element is too big.',
    ),
    terse='Find the largest number below a limit.',
    names=('largest_below', 'max_under_$k', 'best_under_limit', 'highest_less_than'),
    code="""\
def $f(nums):
  small = [x for x in nums if x < $k]
  return max(small) if small else None
""",
    inputs=lambda rng, p: (
      _mix(rng, (p['k'], p['k'] - rng.randint(1, 4)), p['k'] - 8, p['k'] + 4, 3, 5),
    ),
    params={'k': range(2, 21)},
  ),
  Family(
    name='words_with_letter',
    group='list',
    canonical='Write a function to select from a list the words that contain the letter "$c".',
    paraphrases=(
      'Given some words, return those in which the character "$c" occurs, keeping their order.',
      'All strings lacking a "$c" are to be discarded from the list.',
      'Filter a list of strings down to the ones that include "$c".',
    ),
    terse='Select words containing a letter.',
    names=('words_with_letter', 'containing_$c', 'filter_words', 'having_letter'),
    code="""\
def $f(words):
  return [w for w in words if '$c' in w]
""",
    inputs=_words,
    params={'c': 'acdeghilmnoprtu'},
  ),
  Family(
    name='nth_occurrence_index',
    group='list',
    canonical='Write a function to find the index of occurrence number $n of the value $v in a '
    'list, or -1.',
    paraphrases=(
      (
        'Given a list, return the zero-based position where $v has turned up $n times, or -1 if it '
        'is rarer.'
      ),
      (
        'Count the appearances of $v from the left and return the index of appearance number $n; '
        'if missing, -1.'
      ),
      'At which offset does $v occur for time number $n? Return -1 when it does not.',
    ),
    terse='Find the index of a repeated occurrence.',
    names=('nth_occurrence', 'occurrence_${n}_of_${v}', 'find_repeat', 'index_of_nth'),
    code="""\
def $f(nums):
  seen = 0
  for i, x in enumerate(nums):
    if x == $v:
      seen += 1
      if seen == $n:
        return i
  return -1
""",
    inputs=lambda rng, p: (_with_value(rng, p['v'], 0.5),),
    params={'n': (2, 3), 'v': range(12)},
  ),
  Family(
    name='drop_both_ends',
    group='list',
    canonical='Write a function to drop the first $a and the last $b elements of a list.',
    paraphrases=(
      'Given a list, return its middle: leave out $a entries at the front and $b at the back.',
      'From the beginning $a items and from the end $b items should be discarded.',
      'Trim a sequence on both sides, by $a on the left and by $b on the right.',
    ),
    terse='Trim a list at both ends.',
    names=('drop_ends', 'trim_${a}_and_${b}', 'inner_part', 'cut_both_sides'),
    code="""\
def $f(items):
  return items[$a:len(items) - $b]
""",
    inputs=lambda rng, p: (draw.distinct_ints(rng, 0, 20, p['a'] + p['b'] + 1, 8),),
    params={'a': range(1, 6), 'b': range(1, 6)},
    keep=lambda p: p['a'] + p['b'] <= 6,
  ),
  Family(
    name='local_peaks',
    group='list',
    canonical='Write a function to find the elements that exceed both their neighbours in a list '
    'by at least $k.',
    paraphrases=(
      (
        'Given integers, return each inner entry that is $k or more above the entry to its left '
        'and the entry to its right.'
      ),
      (
        'Peaks standing out from both adjacent values by no less than $k should be collected; the '
        'two end entries never count.'
      ),
      'Collect every interior value whose left and right neighbours are both lower by $k or more.',
    ),
    terse='Find the peaks of a list.',
    names=('local_peaks', 'peaks_by_$k', 'find_summits', 'prominent_values'),
    code="""\
def $f(nums):
  peaks = []
  for i in range(1, len(nums) - 1):
    if nums[i] - max(nums[i - 1], nums[i + 1]) >= $k:
      peaks.append(nums[i])
  return peaks
""",
    inputs=_peaks,
    params={'k': range(1, 16)},
    ood=True,
  ),
  Family(
    name='between_markers',
    group='list',
    canonical='Write a function to return the elements of a list after the first $a and before '
    'the next $b.',
    paraphrases=(
      (
        'Given a list, start behind the earliest $a and collect entries until the following $b, '
        'leaving out both.'
      ),
      (
        'What lies strictly between the first occurrence of $a and the nearest later $b is to be '
        'returned.'
      ),
      (
        'Treat $a as an opening mark and the next $b as the closing one; return the enclosed '
        'entries.'
      ),
    ),
    terse='Return the elements between two markers.',
    names=('between_markers', 'from_${a}_until_${b}', 'enclosed_part', 'inside_marks'),
    code="""\
def $f(nums):
  if $a not in nums:
    return []
  rest = nums[nums.index($a) + 1:]
  if $b in rest:
    rest = rest[:rest.index($b)]
  return rest
""",
    inputs=_marked,
    params={'a': range(1, 6), 'b': range(1, 6)},
    keep=lambda p: p['a'] != p['b'],
    ood=True,
  ),
)
