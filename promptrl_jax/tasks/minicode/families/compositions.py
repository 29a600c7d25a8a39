"""Families of two-step problems about numbers: filter, map, sort, reduce.

The families of the `ood` split combine steps that each occur in other families
but never together.
"""

from __future__ import annotations

import random

from promptrl_jax.tasks.minicode.families import draw
from promptrl_jax.tasks.minicode.family import Family


def _around(rng: random.Random, k: int, least: int = 3, most: int = 6) -> list[int]:
  """Positive integers, many of them next to `k`."""
  return [
    max(1, k + rng.choice((-1, 0, 1))) if rng.random() < 0.5 else rng.randint(1, k + 8)
    for _ in range(rng.randint(least, most))
  ]


def _number(rng: random.Random, a: int, least: int = 3, most: int = 5) -> int:
  """A positive integer that has a digit `a` or larger, mostly `a` itself."""
  digits = [
    rng.choice((a, max(1, a - 1), rng.randint(a, 9), rng.randint(1, 9)))
    for _ in range(rng.randint(least, most))
  ]
  digits[rng.randrange(len(digits))] = rng.randint(a, 9)
  return int(''.join(map(str, digits)))


def _divisible(rng: random.Random, a: int, least: int = 3, most: int = 6) -> list[int]:
  """Positive integers of which about half are divisible by `a`."""
  return [
    a * rng.randint(1, 6) if rng.random() < 0.5 else rng.randint(1, 24)
    for _ in range(rng.randint(least, most))
  ]


def _capped(rng: random.Random, a: int, b: int) -> list[int]:
  """Integers whose products with `a` lie on both sides of `b`."""
  return [rng.randint(1, 2 * b // a + 1) for _ in range(rng.randint(3, 6))]


def _ascending(rng: random.Random) -> list[int]:
  """Six to eight integers, sorted about every other time."""
  nums = draw.distinct_ints(rng, 1, 40, 6, 8)
  return sorted(nums) if rng.random() < 0.5 else nums


def _steps(rng: random.Random, a: int) -> list[int]:
  """Integers whose successive differences are often `a` or `a - 1`."""
  nums = [rng.randint(0, 9)]
  for _ in range(rng.randint(3, 5)):
    nums.append(nums[-1] + rng.choice((a, a - 1, rng.randint(-9, 9), a + 2)))
  return nums


def _multiples_with_repeats(rng: random.Random, a: int) -> list[int]:
  """Multiples of `a` with repeats, in random order, and other integers."""
  pool = [a * m for m in rng.sample(range(1, 8), 4)]
  pool += [rng.randint(2, 7 * a + 6) for _ in range(rng.randint(2, 3))]
  nums = pool + rng.sample(pool, 2)
  rng.shuffle(nums)
  return nums


FAMILIES: tuple[Family, ...] = (
  Family(
    name='filter_sum_scale',
    group='composition',
    canonical=(
      'Write a function to add up the numbers of a list that are at least $a and multiply the '
      'sum by $b.'
    ),
    paraphrases=(
      ('Given a list, discard everything below $a, total what remains and return $b times that '
       'total.'),
      'The entries not smaller than $a are summed; this sum is then scaled by a factor of $b.',
      ('Create a function that first selects values of $a or more and then returns their total '
       'times $b.'),
    ),
    terse='Sum numbers from $a up, then scale.',
    names=('filter_sum_scale', 'scaled_total', 'sum_times_$b', 'weigh_large'),
    code="""\
def $f(nums):
  total = 0
  for x in nums:
    if x >= $a:
      total += x
  return total * $b
""",
    inputs=lambda rng, p: (_around(rng, p['a']),),
    params={'a': range(4, 11), 'b': range(2, 8)},
  ),
  Family(
    name='mod_sort_take',
    group='composition',
    canonical=(
      'Write a function to take the remainders of a list of numbers modulo $a and return the $b '
      'smallest in ascending order.'
    ),
    paraphrases=(
      ('Given a list of integers, replace each by what is left after division by $a, sort, and '
       'return the first $b.'),
      ('All numbers are reduced modulo $a; of the results, repeats included, the $b lowest are '
       'returned from low to high.'),
      ('Implement a function that maps x to x % $a over a list, orders the values increasingly '
       'and keeps $b of them.'),
    ),
    terse='Smallest remainders modulo $a, sorted.',
    names=('smallest_remainders', 'mod_sort_take', 'lowest_${b}_mod_${a}', 'first_residues'),
    code="""\
def $f(nums):
  remainders = sorted(x % $a for x in nums)
  return remainders[:$b]
""",
    inputs=lambda rng, p: (draw.ints(rng, 1, 50, 5, 6),),
    params={'a': range(5, 12), 'b': range(2, 6)},
  ),
  Family(
    name='digits_product_minus',
    group='composition',
    canonical=(
      'Write a function to multiply together the digits of a number that are at least $a and '
      'subtract $b from the product.'
    ),
    paraphrases=(
      ('Given a positive integer, ignore digits smaller than $a, form the product of the others '
       'and return it less $b.'),
      'The product of all digits not below $a is computed, and then $b is taken away from it.',
      ('Create a function that picks the digits of n from $a to 9, multiplies them and '
       'decreases the outcome by $b.'),
    ),
    terse='Product of digits from $a up, reduced.',
    names=('digit_product', 'product_minus_$b', 'multiply_digits', 'large_digit_product'),
    code="""\
def $f(n):
  product = 1
  while n > 0:
    if n % 10 >= $a:
      product *= n % 10
    n //= 10
  return product - $b
""",
    inputs=lambda rng, p: (_number(rng, p['a']),),
    params={'a': range(3, 9), 'b': range(1, 8)},
  ),
  Family(
    name='sort_skip_sum',
    group='composition',
    canonical=(
      'Write a function to sort a list in descending order, skip the first $a numbers and sum '
      'the next $b.'
    ),
    paraphrases=(
      ('Given a list of numbers, leave out its $a largest and return the total of the $b largest '
       'among the rest.'),
      ('After ordering from high to low and dropping $a entries at the front, the following $b '
       'are added together.'),
      ('Implement a function that ignores the top $a values of a list and adds the $b values '
       'ranked directly below them.'),
    ),
    terse='Skip the $a largest, sum the next.',
    names=('sort_skip_sum', 'sum_next_$b', 'sum_after_top', 'middle_total'),
    code="""\
def $f(nums):
  ranked = sorted(nums, reverse=True)
  return sum(ranked[$a:$a + $b])
""",
    inputs=lambda rng, p: (draw.ints(rng, 1, 60, 9, 10),),
    params={'a': range(2, 6), 'b': range(2, 6)},
  ),
  Family(
    name='divisible_shift',
    group='composition',
    canonical=(
      'Write a function to keep the numbers of a list that are divisible by $a and add $b to '
      'each of them.'
    ),
    paraphrases=(
      ('Given a list of integers, select its multiples of $a and return them, each increased '
       'by $b.'),
      ('Whatever $a does not divide is removed from the list, after which every remaining number '
       'grows by $b.'),
      ('Create a function that filters for divisibility by $a first and then raises the kept '
       'values by $b.'),
    ),
    terse='Add $b to the divisible numbers.',
    names=('shift_multiples', 'divisible_plus_$b', 'keep_and_add', 'raise_multiples'),
    code="""\
def $f(nums):
  return [x + $b for x in nums if x % $a == 0]
""",
    inputs=lambda rng, p: (_divisible(rng, p['a']),),
    params={'a': range(2, 9), 'b': range(1, 8)},
  ),
  Family(
    name='scale_cap',
    group='composition',
    canonical=(
      'Write a function to multiply each number of a list by $a and replace products greater '
      'than $b by $b.'
    ),
    paraphrases=(
      'Given a list, return $a times every element, but cap the results at $b.',
      'Each entry is scaled by $a, and whenever that exceeds $b, the value $b is used instead.',
      'Implement a function that maps x to the smaller one of $a * x and $b for all x of a list.',
    ),
    terse='Multiply by $a with an upper limit.',
    names=('scale_and_cap', 'times_${a}_max_${b}', 'capped_products', 'limited_multiples'),
    code="""\
def $f(nums):
  result = []
  for x in nums:
    result.append(min(x * $a, $b))
  return result
""",
    inputs=lambda rng, p: (_capped(rng, p['a'], p['b']),),
    params={'a': range(2, 8), 'b': range(20, 50, 5)},
  ),
  Family(
    name='distinct_above_take',
    group='composition',
    canonical=(
      'Write a function to return the $b smallest distinct numbers of a list that are greater '
      'than $a, in ascending order.'
    ),
    paraphrases=(
      ('Given a list with repeats, drop values up to $a and duplicates, sort, and return the '
       'first $b.'),
      ('The different numbers exceeding $a are put in increasing order, and $b of them are '
       'returned from the front.'),
      ('Create a function that removes duplicates, keeps what is larger than $a and gives the '
       'lowest $b in order.'),
    ),
    terse='Smallest $b distinct numbers above a limit.',
    names=('distinct_above', 'smallest_unique', 'first_${b}_over_${a}', 'lowest_distinct'),
    code="""\
def $f(nums):
  unique = sorted(set(nums))
  large = [x for x in unique if x > $a]
  return large[:$b]
""",
    inputs=lambda rng, p: (_around(rng, p['a'], 6, 9),),
    params={'a': range(2, 9), 'b': range(2, 5)},
  ),
  Family(
    name='running_filter',
    group='composition',
    canonical=(
      'Write a function to compute the running totals of a list starting from $a and keep those '
      'divisible by $b.'
    ),
    paraphrases=(
      ('Given a list of numbers, add them one by one to a sum that begins at $a and list the '
       'intermediate sums that are multiples of $b.'),
      ('Cumulative sums are formed with $a as initial value; after each addition the sum is '
       'recorded if $b divides it.'),
      ('Implement a function that accumulates a list on top of $a and returns all partial totals, '
       'one per element, that leave no remainder modulo $b.'),
    ),
    terse='Running totals divisible by $b.',
    names=('running_filter', 'divisible_totals', 'totals_from_$a', 'partial_sums'),
    code="""\
def $f(nums):
  total = $a
  kept = []
  for x in nums:
    total += x
    if total % $b == 0:
      kept.append(total)
  return kept
""",
    inputs=lambda rng, p: (draw.ints(rng, 1, 9, 5, 8),),
    params={'a': range(1, 8), 'b': range(2, 6)},
  ),
  Family(
    name='first_max_last_min',
    group='composition',
    canonical=(
      'Write a function to add the maximum of the first $a numbers of a list to the minimum of '
      'its last $b numbers.'
    ),
    paraphrases=(
      ('Given a list, return the sum of two values: the largest among the $a leading entries and '
       'the smallest among the $b trailing ones.'),
      'The biggest of the initial $a elements and the least of the final $b elements are added.',
      ('Create a function that looks for the highest number in a prefix of length $a and for the '
       'lowest in a suffix of length $b and returns their total.'),
    ),
    terse='Maximum of first $a plus minimum at end.',
    names=('max_plus_min', 'head_max_tail_min', 'ends_${a}_${b}', 'prefix_suffix_sum'),
    code="""\
def $f(nums):
  return max(nums[:$a]) + min(nums[-$b:])
""",
    inputs=lambda rng, p: (_ascending(rng),),
    params={'a': range(2, 6), 'b': range(2, 6)},
  ),
  Family(
    name='below_power',
    group='composition',
    canonical=(
      'Write a function to keep the numbers of a list that are less than $a and raise each of '
      'them to the power $b.'
    ),
    paraphrases=(
      ('Given a list, discard entries of $a or more and return x to the power of $b for every '
       'other x.'),
      'Only values below $a remain, and each one is replaced by its power with exponent $b.',
      ('Implement a function that filters a list by the upper bound $a, itself not allowed, and '
       'applies the exponent $b to what is left.'),
    ),
    terse='Powers of the numbers less than $a.',
    names=('power_of_small', 'below_${a}_power_${b}', 'raise_small', 'small_powers'),
    code="""\
def $f(nums):
  return [x ** $b for x in nums if x < $a]
""",
    inputs=lambda rng, p: (_around(rng, p['a'] - 1, 3, 5),),
    params={'a': range(4, 10), 'b': range(2, 5)},
  ),
  Family(
    name='multiples_but_not',
    group='composition',
    canonical=(
      'Write a function to sum the integers from 1 to n that are divisible by $a but not '
      'divisible by $b.'
    ),
    paraphrases=(
      ('Given n, list the multiples of $a that do not exceed n, leave out those which are '
       'multiples of $b, and return the total.'),
      ('Every number from 1 up to and including n counts if $a divides it and $b does not; the '
       'sum of these is returned.'),
      ('Create a function that totals the numbers up to n with remainder zero modulo $a and a '
       'remainder other than zero modulo $b.'),
    ),
    terse='Sum certain multiples of $a up to n.',
    names=('multiples_but_not', 'sum_${a}_not_${b}', 'selective_sum', 'sum_of_some'),
    code="""\
def $f(n):
  total = 0
  for i in range(1, n + 1):
    if i % $a == 0 and i % $b != 0:
      total += i
  return total
""",
    inputs=lambda rng, p: (rng.randint(30, 130),),
    params={'a': range(2, 9), 'b': (5, 7, 8, 9, 11)},
    keep=lambda p: p['a'] % p['b'] != 0,
  ),
  Family(
    name='differences_scale',
    group='composition',
    canonical=(
      'Write a function to subtract each number of a list from the next one, keep differences of '
      'at least $a and multiply them by $b.'
    ),
    paraphrases=(
      ('Given a list, find by how much every element is followed by a larger one, drop increases '
       'below $a, and return the others times $b.'),
      ('Successor minus predecessor is formed for all neighbours; results smaller than $a are '
       'discarded and the rest are scaled by $b.'),
      ('Implement a function that lists the steps between consecutive numbers that reach $a or '
       'more, each multiplied with $b.'),
    ),
    terse='Large differences of neighbours times $b.',
    names=('scaled_steps', 'differences_scale', 'rises_times_$b', 'big_steps'),
    code="""\
def $f(nums):
  result = []
  for i in range(1, len(nums)):
    step = nums[i] - nums[i - 1]
    if step >= $a:
      result.append(step * $b)
  return result
""",
    inputs=lambda rng, p: (_steps(rng, p['a']),),
    params={'a': range(2, 8), 'b': range(2, 8)},
  ),
  Family(
    name='running_cap',
    group='composition',
    canonical=(
      'Write a function to compute the running totals of a list starting from $a and replace '
      'totals greater than $b by $b.'
    ),
    paraphrases=(
      ('Given a list of numbers, return the intermediate sums obtained by adding them to $a one '
       'after the other, capped at $b.'),
      ('Cumulative sums with initial value $a are formed, one per element, and in the result '
       'whatever exceeds $b becomes $b.'),
      ('Create a function that accumulates a list on top of $a and lists each partial total, or '
       '$b if the total is larger.'),
    ),
    terse='Running totals from $a with a limit.',
    names=('capped_totals', 'running_cap', 'totals_up_to_$b', 'limited_sums'),
    code="""\
def $f(nums):
  total = $a
  result = []
  for x in nums:
    total += x
    result.append(min(total, $b))
  return result
""",
    inputs=lambda rng, p: (draw.ints(rng, 1, 12, 3, 6),),
    params={'a': range(1, 8), 'b': range(15, 40, 5)},
    ood=True,
  ),
  Family(
    name='digits_power_sum',
    group='composition',
    canonical=(
      'Write a function to raise the digits of a number that are at least $a to the power $b '
      'and add them up.'
    ),
    paraphrases=(
      ('Given a positive integer, skip digits below $a and return the sum of the others, each '
       'with exponent $b.'),
      ('All digits not smaller than $a are taken to the power of $b, and the total of these '
       'powers is returned.'),
      ('Implement a function that selects the digits of n from $a to 9 and sums their powers of '
       'degree $b.'),
    ),
    terse='Sum of powers of digits from $a up.',
    names=('digit_power_sum', 'sum_digits_pow_$b', 'powered_digits', 'add_digit_powers'),
    code="""\
def $f(n):
  digits = [int(ch) for ch in str(n)]
  return sum(d ** $b for d in digits if d >= $a)
""",
    inputs=lambda rng, p: (_number(rng, p['a']),),
    params={'a': range(2, 8), 'b': range(2, 6)},
    ood=True,
  ),
  Family(
    name='differences_skip_sum',
    group='composition',
    canonical=(
      'Write a function to sort the absolute differences of neighbouring numbers in descending '
      'order, skip $a and sum the next $b.'
    ),
    paraphrases=(
      ('Given a list, compute the distances between consecutive elements, leave out the $a '
       'largest, and return the total of the $b largest remaining.'),
      ('The gaps between neighbours are ordered from high to low; the first $a are dropped and '
       'the $b after them are added.'),
      ('Create a function that ignores the $a biggest steps (in size) between adjacent entries '
       'and adds up the $b next smaller ones.'),
    ),
    terse='Skip $a largest gaps, sum the next.',
    names=('sum_of_gaps', 'gaps_skip_$a', 'middle_differences', 'gap_total'),
    code="""\
def $f(nums):
  gaps = []
  for x, y in zip(nums, nums[1:]):
    gaps.append(abs(x - y))
  gaps.sort(reverse=True)
  return sum(gaps[$a:$a + $b])
""",
    inputs=lambda rng, p: (draw.ints(rng, 1, 90, 9, 10),),
    params={'a': range(1, 5), 'b': range(1, 5)},
    ood=True,
  ),
  Family(
    name='divisible_distinct_take',
    group='composition',
    canonical=(
      'Write a function to return the $b largest distinct numbers of a list that are divisible '
      'by $a, in descending order.'
    ),
    paraphrases=(
      ('Given a list with repeats, keep its different multiples of $a, order them from high to '
       'low and return $b from the front.'),
      ('Numbers which $a divides are collected without duplicates, and the top $b are returned, '
       'largest first.'),
      ('Implement a function that drops what is not a multiple of $a as well as repeats, and '
       'gives the $b highest values decreasingly.'),
    ),
    terse='Largest $b distinct divisible numbers.',
    names=('top_multiples', 'largest_${b}_by_${a}', 'distinct_multiples', 'highest_multiples'),
    code="""\
def $f(nums):
  multiples = {x for x in nums if x % $a == 0}
  ordered = sorted(multiples, reverse=True)
  return ordered[:$b]
""",
    inputs=lambda rng, p: (_multiples_with_repeats(rng, p['a']),),
    params={'a': range(2, 9), 'b': range(2, 5)},
    ood=True,
  ),
)
