"""List families that boil a list down: sums, counts, extremes, averages, checks."""

from __future__ import annotations

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


def _near(key: str, below: int = 5, above: int = 5) -> Inputs:
  """Lists of integers close to the value of a parameter."""

  def inputs(rng: random.Random, p: Params) -> tuple[list[int]]:
    v = p[key]
    return (_mix(rng, (v - 1, v, v + 1), v - below, v + above),)

  return inputs


def _multiples(rng: random.Random, p: Params) -> tuple[list[int]]:
  """Multiples of `k`, of its divisors, and others."""
  k = p['k']
  divisors = [d for d in range(1, k) if k % d == 0]
  result = []
  for _ in range(rng.randint(4, 6)):
    base = k if rng.random() < 0.5 else rng.choice(divisors)
    result.append(base * rng.randint(1, 7 if base == k else 15))
  return (result,)


def _steps(rng: random.Random, p: Params) -> tuple[list[int]]:
  """Sequences with equal steps, half of them the right ones, some with one flaw."""
  step = p['k'] if rng.random() < 0.7 else rng.randint(1, 15)
  start = rng.randint(-9, 20)
  nums = [start + i * step for i in range(rng.randint(3, 5))]
  if rng.random() < 0.3:
    nums[rng.randrange(len(nums))] += rng.choice((-1, 1))
  return (nums,)


def _pair_sum(rng: random.Random, p: Params) -> tuple[list[int]]:
  x = rng.randint(0, p['s'])
  nums = [x, p['s'] - x + (0 if rng.random() < 0.6 else rng.choice((-2, -1, 1, 2)))]
  nums += [rng.randint(0, 30) for _ in range(rng.randint(0, 3))]
  rng.shuffle(nums)
  return (nums,)


def _followed(rng: random.Random, p: Params) -> tuple[list[int]]:
  a, b = p['a'], p['b']
  middle = rng.choice(([a, b], [a, b], [b, a], [a, rng.randint(6, 9), b], [a, a], [b, b]))
  head = [rng.randint(1, 9) for _ in range(rng.randint(0, 2))]
  return (head + middle + [rng.randint(1, 9) for _ in range(rng.randint(0, 2))],)


def _increasing(rng: random.Random, p: Params) -> tuple[list[int]]:
  nums = sorted(draw.distinct_ints(rng, -9, 20, 3, 6))
  i = rng.randrange(len(nums) - 1)
  case = rng.randrange(4)
  if case == 0:
    nums[i], nums[i + 1] = nums[i + 1], nums[i]
  elif case == 1:
    nums[i + 1] = nums[i]
  return (nums,)


def _runs(rng: random.Random, p: Params) -> tuple[list[int]]:
  nums: list[int] = []
  while len(nums) < 5:
    nums += [rng.randint(0, 16)] if rng.random() < 0.5 else [p['v']] * rng.randint(1, 3)
  return (nums,)


def _reaching(rng: random.Random, p: Params) -> tuple[list[int]]:
  """Positive integers whose running sums often hit `k - 1` and `k`."""
  if rng.random() < 0.5:
    return (draw.ints(rng, 1, 9, 3, 6),)
  cuts = sorted(rng.sample(range(1, p['k'] - 1), rng.randint(1, 3)))
  nums = [b - a for a, b in zip([0, *cuts], [*cuts, p['k'] - 1], strict=True)]
  return (nums + [1] + [rng.randint(1, 9) for _ in range(rng.randint(0, 2))],)


FAMILIES: tuple[Family, ...] = (
  Family(
    name='sum_above',
    group='list',
    canonical='Write a function to find the sum of all numbers greater than $k in a list.',
    paraphrases=(
      'Given a list, add up those of its elements that exceed $k.',
      'Elements of a list that are larger than $k should be totalled and the total returned.',
      'Create a function that returns the total of the values above $k.',
    ),
    terse='Sum the large numbers in a list.',
    names=('sum_above', 'total_over_$k', 'add_large', 'sum_greater'),
    code="""\
def $f(nums):
  return sum(x for x in nums if x > $k)
""",
    inputs=_near('k', 6, 6),
    params={'k': range(2, 21)},
  ),
  Family(
    name='count_multiples',
    group='list',
    canonical='Write a function to count how many numbers in a list are divisible by $k.',
    paraphrases=(
      'Given integers, tell the number of multiples of $k among them.',
      'How many entries does $k divide without a rest? Return that count.',
      'The quantity of elements having $k as a factor should be determined.',
    ),
    terse='Count the divisible numbers.',
    names=('count_multiples', 'count_divisible_by_$k', 'how_many_divisible', 'multiples_count'),
    code="""\
def $f(nums):
  count = 0
  for x in nums:
    if x % $k == 0:
      count += 1
  return count
""",
    inputs=_multiples,
    params={'k': range(2, 21)},
  ),
  Family(
    name='sum_outside',
    group='list',
    canonical='Write a function to add up the numbers in a list that are smaller than $a or '
    'larger than $b.',
    paraphrases=(
      'Given integers, return the total of those lying outside the range from $a to $b.',
      'Values from $a through $b are ignored and everything else is summed.',
      'Compute the sum of all entries below $a and all entries above $b.',
    ),
    terse='Sum the numbers outside a range.',
    names=('sum_outside', 'outside_${a}_${b}', 'outer_total', 'add_outliers'),
    code="""\
def $f(nums):
  total = 0
  for x in nums:
    if x < $a or x > $b:
      total += x
  return total
""",
    inputs=lambda rng, p: (
      _mix(rng, (p['a'] - 1, p['a'], p['b'], p['b'] + 1), 0, 18, 5, 7),
    ),
    params={'a': range(2, 8), 'b': range(10, 16)},
  ),
  Family(
    name='alternating_weighted',
    group='list',
    canonical='Write a function to subtract $k times the sum of elements at odd indices from the '
    'sum at even indices.',
    paraphrases=(
      (
        'Given a list, total its entries at indices 0, 2, 4, ... and take away $k times the total '
        'of the other entries.'
      ),
      (
        'Elements at even positions (from zero) count once, elements at odd positions count minus '
        '$k times; return the sum.'
      ),
      'Compute E - $k * O, E being the sum over even zero-based indices and O that over odd ones.',
    ),
    terse='Weighted difference of even and odd indices.',
    names=('alternating_sum', 'even_minus_${k}_odd', 'index_balance', 'weighted_alternation'),
    code="""\
def $f(nums):
  even = sum(nums[::2])
  odd = sum(nums[1::2])
  return even - $k * odd
""",
    inputs=lambda rng, p: (draw.ints(rng, 0, 20, 3, 6),),
    params={'k': range(2, 16)},
  ),
  Family(
    name='count_at_least',
    group='list',
    canonical='Write a function to count the numbers in a list that are $k or greater.',
    paraphrases=(
      'Given integers, return how many of them are at least $k.',
      'The amount of entries not falling below $k is wanted.',
      'Determine the number of elements that reach the threshold $k.',
    ),
    terse='Count the numbers reaching a threshold.',
    names=('count_at_least', 'how_many_reach_$k', 'count_high', 'threshold_count'),
    code="""\
def $f(nums):
  return len([x for x in nums if x >= $k])
""",
    inputs=_near('k'),
    params={'k': range(2, 21)},
  ),
  Family(
    name='sum_clipped',
    group='list',
    canonical='Write a function to sum a list of numbers, counting every number larger than $k as '
    '$k.',
    paraphrases=(
      'Given integers, lower each one above $k to $k and return the total.',
      'No entry may contribute more than $k; add them all up under this cap.',
      'Compute the total of a list in which values are limited to at most $k.',
    ),
    terse='Sum a list with capped values.',
    names=('sum_clipped', 'sum_capped_at_$k', 'limited_total', 'capped_sum'),
    code="""\
def $f(nums):
  return sum(min(x, $k) for x in nums)
""",
    inputs=_near('k', 7, 7),
    params={'k': range(3, 21)},
  ),
  Family(
    name='product_modulo',
    group='list',
    canonical='Write a function to find the remainder of the product of all numbers in a list '
    'divided by $m.',
    paraphrases=(
      'Given integers, multiply them together and return the result modulo $m.',
      'The product of the entries is to be reduced modulo $m.',
      'What rest does the product of every element leave on division by $m?',
    ),
    terse='Product of a list modulo something.',
    names=('product_modulo', 'product_mod_$m', 'modular_product', 'multiply_all_mod'),
    code="""\
def $f(nums):
  result = 1
  for x in nums:
    result = result * x % $m
  return result
""",
    inputs=lambda rng, p: (draw.ints(rng, 1, 20, 2, 4),),
    params={'m': range(5, 30)},
  ),
  Family(
    name='average_at_most',
    group='list',
    canonical='Write a function to average the numbers in a list that are at most $k, rounded to '
    '2 decimals, or 0 if none.',
    paraphrases=(
      (
        'Given integers, return the mean of those not exceeding $k with two decimal places; return '
        '0 if all exceed it.'
      ),
      (
        'Values above $k are ignored and the arithmetic mean of the others, rounded to 2 digits, '
        'is returned (0 without any).'
      ),
      (
        'Compute the average, to two decimals, over entries less than or equal to $k; if there are '
        'none, 0.'
      ),
    ),
    terse='Average the small numbers, 2 decimals.',
    names=('average_at_most', 'mean_up_to_$k', 'low_average', 'mean_of_small'),
    code="""\
def $f(nums):
  small = [x for x in nums if x <= $k]
  if not small:
    return 0
  return round(sum(small) / len(small), 2)
""",
    inputs=_near('k', 8, 5),
    params={'k': range(3, 21)},
  ),
  Family(
    name='constant_step',
    group='list',
    canonical='Write a function to check whether each number in a list is exactly $k more than the '
    'one before it.',
    paraphrases=(
      'Given integers, return True if neighbouring entries always rise by $k, otherwise False.',
      'Is the list an arithmetic progression with common difference $k? Answer with a boolean.',
      (
        'It should be tested if every element, apart from the first, equals its predecessor plus '
        '$k.'
      ),
    ),
    terse='Check for a constant step.',
    names=('constant_step', 'rises_by_$k', 'is_arithmetic', 'has_equal_steps'),
    code="""\
def $f(nums):
  for i in range(1, len(nums)):
    if nums[i] - nums[i - 1] != $k:
      return False
  return True
""",
    inputs=_steps,
    params={'k': range(1, 16)},
  ),
  Family(
    name='has_pair_sum',
    group='list',
    canonical='Write a function to check whether two elements at different positions of a list add '
    'up to $s.',
    paraphrases=(
      'Given integers, return True if some two of them sum to $s, else False.',
      'Is there a pair of entries (not the same entry twice) whose total is $s?',
      'Decide if $s can be written as the sum of two list members at distinct indices.',
    ),
    terse='Check for two numbers with a sum.',
    names=('has_pair_sum', 'pair_adds_to_$s', 'two_sum_exists', 'any_pair_total'),
    code="""\
def $f(nums):
  for i in range(len(nums)):
    for j in range(i + 1, len(nums)):
      if nums[i] + nums[j] == $s:
        return True
  return False
""",
    inputs=_pair_sum,
    params={'s': range(5, 30)},
  ),
  Family(
    name='is_followed_by',
    group='list',
    canonical='Write a function to check whether some $a in a list is immediately followed by $b.',
    paraphrases=(
      'Given integers, return True if the value $b comes directly after a value $a somewhere.',
      'Do $a and $b stand next to each other in the list, in this order? Return a boolean.',
      'It should be tested whether $b is the right neighbour of any $a.',
    ),
    terse='Check for two neighbours in order.',
    names=('is_followed_by', 'has_${a}_then_${b}', 'contains_sequence', 'adjacent_in_order'),
    code="""\
def $f(nums):
  return any(x == $a and y == $b for x, y in zip(nums, nums[1:]))
""",
    inputs=_followed,
    params={'a': range(1, 6), 'b': range(1, 6)},
    keep=lambda p: p['a'] != p['b'],
  ),
  Family(
    name='strictly_increasing',
    group='list',
    canonical='Write a function to check whether the numbers in a list are strictly increasing.',
    paraphrases=(
      'Given integers, return True if each one is larger than the one before, else False.',
      'It should be tested if the entries grow from left to right without any equal neighbours.',
      'Does the sequence always go up, never staying level or falling?',
    ),
    terse='Check whether a list is increasing.',
    names=('strictly_increasing', 'is_rising', 'always_grows', 'check_ascending'),
    code="""\
def $f(nums):
  return all(a < b for a, b in zip(nums, nums[1:]))
""",
    inputs=_increasing,
  ),
  Family(
    name='rank_gap',
    group='list',
    canonical='Write a function to subtract the number ranked $b from the bottom of a list from '
    'the one ranked $a from the top.',
    paraphrases=(
      (
        'Given integers, sort them; return the value at rank $a counted from the largest minus the '
        'value at rank $b counted from the smallest.'
      ),
      (
        'The difference of two order statistics is wanted: number $a in descending order less '
        'number $b in ascending order.'
      ),
      'With ranks starting at 1, compute descending rank $a minus ascending rank $b.',
    ),
    terse='Difference of a high and a low rank.',
    names=('rank_gap', 'top_${a}_minus_low_${b}', 'order_difference', 'ranked_spread'),
    code="""\
def $f(nums):
  ordered = sorted(nums)
  return ordered[-$a] - ordered[$b - 1]
""",
    inputs=lambda rng, p: (draw.distinct_ints(rng, -9, 60, 5, 7),),
    params={'a': range(1, 5), 'b': range(1, 5)},
  ),
  Family(
    name='max_by_remainder',
    group='list',
    canonical='Write a function to find the first number in a list with the largest remainder when '
    'divided by $k.',
    paraphrases=(
      'Given integers, return the one whose value modulo $k is greatest; the earliest wins a draw.',
      (
        'The entry that leaves the biggest rest on division by $k, leftmost if several do, is to '
        'be returned.'
      ),
      'Compare elements by their rest modulo $k and return the first that is maximal.',
    ),
    terse='Find the number of largest remainder.',
    names=('max_by_remainder', 'largest_mod_$k', 'biggest_rest', 'top_remainder'),
    code="""\
def $f(nums):
  best = nums[0]
  for x in nums:
    if x % $k > best % $k:
      best = x
  return best
""",
    inputs=lambda rng, p: (
      [p['k'] * rng.randint(0, 5) + rng.randint(0, p['k'] - 1) for _ in range(rng.randint(4, 6))],
    ),
    params={'k': range(3, 18)},
  ),
  Family(
    name='longest_run_of',
    group='list',
    canonical='Write a function to find the length of the longest run of consecutive elements '
    'equal to $v in a list.',
    paraphrases=(
      'Given integers, return how many times in a row $v appears at most.',
      'The size of the biggest uninterrupted block made of $v only is to be determined.',
      'How long is the longest streak of $v? Return 0 if it never occurs.',
    ),
    terse='Find the longest run of a number.',
    names=('longest_run', 'streak_of_$v', 'max_consecutive', 'longest_block'),
    code="""\
def $f(nums):
  best = run = 0
  for x in nums:
    run = run + 1 if x == $v else 0
    best = max(best, run)
  return best
""",
    inputs=_runs,
    params={'v': range(17)},
  ),
  Family(
    name='max_window_sum',
    group='list',
    canonical='Write a function to find the largest sum of $k consecutive elements of a list.',
    paraphrases=(
      'Given at least $k integers, return the maximum total of any $k neighbouring ones.',
      'A window of length $k slides over the list; the greatest window total should be returned.',
      'Among all contiguous blocks having $k entries, what is the highest total?',
    ),
    terse='Largest sum of consecutive elements.',
    names=('max_window_sum', 'best_${k}_in_a_row', 'largest_block_sum', 'sliding_max'),
    code="""\
def $f(nums):
  best = sum(nums[:$k])
  for i in range(1, len(nums) - $k + 1):
    best = max(best, sum(nums[i:i + $k]))
  return best
""",
    inputs=lambda rng, p: (draw.ints(rng, -9, 20, 6, 7),),
    params={'k': range(2, 6)},
  ),
  Family(
    name='position_weighted_sum',
    group='list',
    canonical='Write a function to sum the elements of a list, each multiplied by its index plus '
    '$k.',
    paraphrases=(
      'Given integers, weight the one at zero-based position i by i + $k and return the total.',
      'Elements get weights $k, $k + 1, $k + 2 and so on; the weighted sum is to be returned.',
      'Multiply every entry by $k more than its index, then add up the products.',
    ),
    terse='Sum of elements weighted by position.',
    names=('weighted_sum', 'index_plus_${k}_sum', 'position_weights', 'rising_weights'),
    code="""\
def $f(nums):
  total = 0
  for i, x in enumerate(nums):
    total += (i + $k) * x
  return total
""",
    inputs=lambda rng, p: (draw.ints(rng, -5, 12, 3, 5),),
    params={'k': range(1, 21)},
  ),
  Family(
    name='distance_sum',
    group='list',
    canonical='Write a function to find the sum of the absolute differences between $k and each '
    'number in a list.',
    paraphrases=(
      'Given integers, return their total distance from $k.',
      'How far each entry lies from $k is measured, and all these distances are added.',
      'Add up the magnitudes of x - $k over every element x.',
    ),
    terse='Total distance from a fixed number.',
    names=('distance_sum', 'total_distance_to_$k', 'absolute_deviation', 'sum_of_distances'),
    code="""\
def $f(nums):
  return sum(abs(x - $k) for x in nums)
""",
    inputs=lambda rng, p: (draw.ints(rng, 0, 30, 3, 6),),
    params={'k': range(2, 21)},
  ),
  Family(
    name='count_inversions',
    group='list',
    canonical='Write a function to count the pairs in a list whose earlier element exceeds the '
    'later one by more than $k.',
    paraphrases=(
      'Given integers, return how many index pairs i < j have nums[i] - nums[j] above $k.',
      (
        'Each couple of entries in which the left one is over $k greater than the right one, '
        'adjacent or not, counts once; return the count.'
      ),
      'Determine the number of inversions of a sequence with a drop larger than $k.',
    ),
    terse='Count the inversions of a list.',
    names=('count_inversions', 'drops_over_$k', 'big_inversions', 'count_falling_pairs'),
    code="""\
def $f(nums):
  count = 0
  for i in range(len(nums)):
    for later in nums[i + 1:]:
      if nums[i] - later > $k:
        count += 1
  return count
""",
    inputs=lambda rng, p: (_mix(rng, (0, 1, 2, p['k'] + 2, p['k'] + 3), 0, p['k'] + 6, 5, 7),),
    params={'k': range(1, 16)},
    ood=True,
  ),
  Family(
    name='prefix_reaching_sum',
    group='list',
    canonical='Write a function to find how many leading elements of a list are needed for a sum '
    'of at least $k, or -1.',
    paraphrases=(
      (
        'Given positive integers, add them from the left and return after how many the total '
        'reaches $k; if it never does, -1.'
      ),
      (
        'The length of the shortest beginning of the list totalling $k or more is wanted; return '
        '-1 when even all entries are too little.'
      ),
      (
        'Accumulate entries one by one until $k is reached or passed and return their number, else '
        '-1.'
      ),
    ),
    terse='How many leading elements reach a sum?',
    names=('prefix_reaching', 'steps_to_reach_$k', 'needed_elements', 'shortest_prefix'),
    code="""\
def $f(nums):
  total = 0
  for i, x in enumerate(nums):
    total += x
    if total >= $k:
      return i + 1
  return -1
""",
    inputs=_reaching,
    params={'k': range(8, 30)},
    ood=True,
  ),
)
