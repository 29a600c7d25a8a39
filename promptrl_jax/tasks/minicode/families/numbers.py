"""Families on numbers: formulas, divisibility, powers, sequences, rounding and loops."""

from __future__ import annotations

import random

from promptrl_jax.tasks.minicode.family import Family

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)
COMPOSITES = (18, 20, 24, 28, 30, 36, 40, 42, 45, 48, 50, 54, 60, 70, 72, 84)


def _span(rng: random.Random, k: int) -> tuple[int, int]:
  """Two bounds, often with a multiple of `k` as one of them."""
  low = k * rng.randint(1, 4) if rng.random() < 0.5 else rng.randint(1, 40)
  high = low + rng.randint(3, 12) * k
  return low, high + rng.randint(0, 2)


def _about_square(rng: random.Random, k: int) -> int:
  """A square plus `k`, or something close to that."""
  return rng.randint(2, 14) ** 2 + (k if rng.random() < 0.6 else rng.randint(1, 20))


FAMILIES: tuple[Family, ...] = (
  Family(
    name='num_linear',
    group='number',
    canonical='Write a function to multiply a number n by $a and then add $b to the product.',
    paraphrases=(
      'Given n, return $b more than $a times n.',
      'The value of the linear expression $a * n + $b should be computed for the argument n.',
      'Create a function that scales its argument by the factor $a and increases the result by $b.',
    ),
    terse='Scale a number and add a constant.',
    names=('linear', 'scale_and_add', 'times_${a}_plus_$b', 'affine'),
    code="""\
def $f(n):
  return $a * n + $b
""",
    inputs=lambda rng, p: (rng.randint(-9, 40),),
    params={'a': range(2, 8), 'b': range(1, 7)},
  ),
  Family(
    name='num_sum_multiples_either',
    group='number',
    canonical='Write a function to find the sum of all positive integers below n that are '
    'divisible by $a or $b.',
    paraphrases=(
      'Given n, add up every natural number smaller than n that is a multiple of $a or of $b.',
      'Numbers from 1 to n - 1 which $a or $b divides evenly, each taken once, should be totalled.',
      'Create a function that returns the total of the multiples of either $a or $b under n.',
    ),
    terse='Sum the multiples below n.',
    names=('sum_multiples', 'total_multiples', 'multiples_${a}_or_$b', 'add_divisible'),
    code="""\
def $f(n):
  total = 0
  for i in range(1, n):
    if i % $a == 0 or i % $b == 0:
      total += i
  return total
""",
    inputs=lambda rng, p: (rng.randint(15, 100),),
    params={'a': (3, 4, 5, 6, 7), 'b': (8, 9, 10, 11, 13)},
    keep=lambda p: p['b'] % p['a'] != 0,
  ),
  Family(
    name='num_count_divisible_between',
    group='number',
    canonical='Write a function to count the integers from low to high, both included, that are '
    'divisible by $k.',
    paraphrases=(
      'How many multiples of $k lie in the closed interval between the two given integers?',
      'Given a lower and an upper bound, tell how many numbers in that range, bounds included, $k '
      'divides without remainder.',
      'Create a function that returns the quantity of numbers i with low <= i <= high for which '
      'i % $k is zero.',
    ),
    terse='Count the multiples in a range.',
    names=('count_divisible', 'multiples_between', 'count_multiples_$k', 'divisible_in_range'),
    code="""\
def $f(low, high):
  count = 0
  for i in range(low, high + 1):
    if i % $k == 0:
      count += 1
  return count
""",
    inputs=lambda rng, p: _span(rng, p['k']),
    params={'k': range(2, 18)},
  ),
  Family(
    name='num_gcd_with',
    group='number',
    canonical='Write a function to find the greatest common divisor of a positive integer n and '
    '$k.',
    paraphrases=(
      'Given a positive n, return the largest integer that divides both n and $k.',
      'The highest factor shared by $k and the argument is to be determined.',
      'Implement Euclid\'s algorithm for the pair made of the argument and $k.',
    ),
    terse='Greatest common divisor with a constant.',
    names=('gcd_with', 'gcd_with_$k', 'common_divisor', 'shared_factor'),
    code="""\
def $f(n):
  a, b = n, $k
  while b:
    a, b = b, a % b
  return a
""",
    inputs=lambda rng, p: (
      rng.choice([d for d in range(2, p['k'] + 1) if p['k'] % d == 0]) * rng.randint(1, 60),
    ),
    params={'k': COMPOSITES},
  ),
  Family(
    name='num_lcm_with',
    group='number',
    canonical='Write a function to find the least common multiple of a positive integer n and $k.',
    paraphrases=(
      'Given a positive n, return the smallest positive number that both n and $k divide.',
      'The lowest multiple shared by $k and the argument should be returned.',
      'Create a function that looks for the first multiple of n which is divisible by $k too.',
    ),
    terse='Least common multiple with a constant.',
    names=('lcm_with', 'lcm_with_$k', 'common_multiple', 'smallest_multiple'),
    code="""\
def $f(n):
  multiple = n
  while multiple % $k != 0:
    multiple += n
  return multiple
""",
    inputs=lambda rng, p: (rng.randint(2, 60),),
    params={'k': range(4, 26)},
  ),
  Family(
    name='num_clamp_symmetric',
    group='number',
    canonical='Write a function to limit an integer x to the range from -$k to $k.',
    paraphrases=(
      'Given x, return $k if it is larger than that, -$k if it is smaller than that, else x.',
      'The argument should be clipped so that its absolute value never exceeds $k.',
      'Create a function that clamps its argument between -$k and $k inclusive.',
    ),
    terse='Limit a number to a symmetric range.',
    names=('clamp', 'limit_to_$k', 'clip_value', 'bounded'),
    code="""\
def $f(x):
  if x > $k:
    return $k
  if x < -$k:
    return -$k
  return x
""",
    inputs=lambda rng, p: (rng.randint(-p['k'] * 2, p['k'] * 2 + 30 * rng.randint(0, 1)),),
    params={'k': range(4, 26)},
  ),
  Family(
    name='num_floor_to_multiple',
    group='number',
    canonical='Write a function to round a non-negative integer n down to the nearest multiple of '
    '$k.',
    paraphrases=(
      'Given n >= 0, return the largest multiple of $k that does not exceed n.',
      'From the argument, whatever is left over after division by $k should be taken away.',
      'Create a function that lowers a natural number until $k divides it, and returns it.',
    ),
    terse='Round down to a multiple.',
    names=('round_down', 'floor_to_$k', 'lower_multiple', 'snap_down'),
    code="""\
def $f(n):
  return n - n % $k
""",
    inputs=lambda rng, p: (rng.randint(20, 400),),
    params={'k': range(4, 22)},
  ),
  Family(
    name='num_gap_to_multiple',
    group='number',
    canonical='Write a function to find the smallest non-negative number that must be added to n '
    'so that $k divides it.',
    paraphrases=(
      'Given n, how much is missing to the next multiple of $k? Answer 0 if n is one already.',
      'The least increment (possibly zero) that makes the argument divisible by $k is wanted.',
      'Create a function that counts by how many ones n has to grow to become a multiple of $k.',
    ),
    terse='Distance to the next multiple.',
    names=('gap_to_multiple', 'missing_to_$k', 'steps_to_divisible', 'needed_increment'),
    code="""\
def $f(n):
  steps = 0
  while (n + steps) % $k != 0:
    steps += 1
  return steps
""",
    inputs=lambda rng, p: (rng.randint(20, 400),),
    params={'k': range(4, 22)},
  ),
  Family(
    name='num_boxes_needed',
    group='number',
    canonical='Write a function to find how many boxes of capacity $k are needed to hold n items.',
    paraphrases=(
      'Given n objects and containers for $k of them each, return the least number of containers.',
      'The quotient of n and $k, rounded up to a whole number, should be returned.',
      'Create a function telling how many buses with $k seats a group of n people requires.',
    ),
    terse='Number of boxes for n items.',
    names=('boxes_needed', 'ceil_divide', 'groups_of_$k', 'containers'),
    code="""\
def $f(n):
  boxes = n // $k
  if n % $k:
    boxes += 1
  return boxes
""",
    inputs=lambda rng, p: (
      p['k'] * rng.randint(2, 40) + rng.choice((0, 0, 1, rng.randint(1, p['k']))),
    ),
    params={'k': range(3, 21)},
  ),
  Family(
    name='num_power_mod',
    group='number',
    canonical='Write a function to find the remainder when n raised to the power $e is divided by '
    '$m.',
    paraphrases=(
      'Given n, compute its power with exponent $e modulo $m.',
      'The argument is to be multiplied by itself so that it occurs $e times as a factor; return '
      'the product reduced mod $m.',
      'Create a function for what is left over when $m divides the value n ** $e.',
    ),
    terse='Power of a number under a modulus.',
    names=('power_mod', 'mod_power', 'pow_${e}_mod_$m', 'power_remainder'),
    code="""\
def $f(n):
  result = 1
  for _ in range($e):
    result = result * n % $m
  return result
""",
    inputs=lambda rng, p: (rng.randint(2, 99),),
    params={'e': range(2, 6), 'm': (11, 13, 17, 20, 23, 29)},
  ),
  Family(
    name='num_recurrence_linear',
    group='number',
    canonical='Write a function to find the n-th term of the sequence that starts with $a and '
    'continues with $b times the previous term plus $c.',
    paraphrases=(
      'A sequence has $a as term number 1; to get the next, multiply by $b and add $c. Return term '
      'number n.',
      'Given n >= 1, return entry n of the list that begins with $a and in which x is followed by '
      '$b * x + $c.',
      'Beginning with $a, the step "times $b, then plus $c" should be applied n - 1 times.',
    ),
    terse='N-th term of a growing sequence.',
    names=('nth_term', 'sequence_term', 'recurrence', 'term_from_$a'),
    code="""\
def $f(n):
  term = $a
  for _ in range(n - 1):
    term = $b * term + $c
  return term
""",
    inputs=lambda rng, p: (rng.randint(1, 8),),
    params={'a': range(1, 4), 'b': (2, 3), 'c': range(1, 6)},
  ),
  Family(
    name='num_fibonacci_like',
    group='number',
    canonical='Write a function to find the number at index n (from 0) of the Fibonacci-like '
    'sequence that starts with $a and $b.',
    paraphrases=(
      'Given n, return element n, counted from zero, of the series with starting values $a and $b '
      'in which each further element is the sum of its two predecessors.',
      'A series opens with $a and then $b; from there on two neighbours are added to get the next. '
      'What stands at position n, if positions begin at 0?',
      'Implement a variant of Fibonacci in which term 0 is $a and term 1 is $b.',
    ),
    terse='Fibonacci-like number at index n.',
    names=('fibonacci_like', 'fib_from_${a}_$b', 'additive_sequence', 'sum_of_previous'),
    code="""\
def $f(n):
  x, y = $a, $b
  while n > 0:
    x, y = y, x + y
    n -= 1
  return x
""",
    inputs=lambda rng, p: (rng.randint(0, 12),),
    params={'a': range(1, 6), 'b': range(2, 8)},
    keep=lambda p: p['a'] != p['b'],
  ),
  Family(
    name='num_times_divisible',
    group='number',
    canonical='Write a function to count how many times a positive integer n can be divided by $k '
    'without a remainder.',
    paraphrases=(
      'Given a positive n, return the exponent of the largest power of $k that divides n.',
      'As long as $k divides the number evenly, divide; the number of such divisions is wanted.',
      'Create a function that finds how often the factor $k can be taken out of a natural number.',
    ),
    terse='Count how often a divisor fits.',
    names=('times_divisible', 'multiplicity_of_$k', 'count_factor', 'divide_out'),
    code="""\
def $f(n):
  count = 0
  while n % $k == 0:
    n //= $k
    count += 1
  return count
""",
    inputs=lambda rng, p: (p['k'] ** rng.randint(0, 4 if p['k'] < 8 else 3) * rng.randint(1, 9),),
    params={'k': (2, 3, 4, 5, 7, 8, 9, 11, 13)},
  ),
  Family(
    name='num_next_power',
    group='number',
    canonical='Write a function to find the smallest power of $b that is strictly greater than n.',
    paraphrases=(
      'Given a positive n, return the first of the numbers 1, $b, $b * $b, ... that exceeds n.',
      'Start from 1 and multiply by $b until the result is larger than the argument; return it.',
      'Create a function for the least number above n that has the form $b to some whole exponent.',
    ),
    terse='Smallest power greater than n.',
    names=('next_power', 'power_above', 'next_power_of_$b', 'exceeding_power'),
    code="""\
def $f(n):
  power = 1
  while power <= n:
    power *= $b
  return power
""",
    inputs=lambda rng, p: (
      rng.choice((1, p['b'], p['b'] ** 2)) * rng.randint(1, p['b']) + rng.randint(0, 2),
    ),
    params={'b': range(2, 17)},
  ),
  Family(
    name='num_sum_of_powers',
    group='number',
    canonical='Write a function to find the sum of the integers from $a to n, each raised to the '
    'power $e.',
    paraphrases=(
      'Given n >= $a, add up i ** $e over all i between $a and n inclusive.',
      'Every whole number starting at $a and ending with n is to be taken to exponent $e and the '
      'results totalled.',
      'Create a function that totals the powers with exponent $e of $a, $a + 1, ..., n.',
    ),
    terse='Sum of powers up to n.',
    names=('sum_of_powers', 'power_sum', 'sum_powers_$e', 'total_powers'),
    code="""\
def $f(n):
  return sum(i ** $e for i in range($a, n + 1))
""",
    inputs=lambda rng, p: (rng.randint(p['a'], 15),),
    params={'a': range(2, 8), 'e': range(2, 5)},
  ),
  Family(
    name='num_count_primes_above',
    group='number',
    canonical='Write a function to count the prime numbers that are greater than $k and not '
    'greater than n.',
    paraphrases=(
      'Given n, how many primes p satisfy $k < p <= n?',
      'The primes which lie beyond $k, up to and including the argument, should be counted.',
      'Create a function that ignores all primes up to $k and returns how many others there are '
      'until n, n itself included.',
    ),
    terse='Count the primes up to n.',
    names=('count_primes', 'primes_above_$k', 'prime_count', 'number_of_primes'),
    code="""\
def $f(n):
  count = 0
  for p in range($k + 1, n + 1):
    if all(p % d != 0 for d in range(2, p)):
      count += 1
  return count
""",
    inputs=lambda rng, p: (rng.randint(p['k'] + 5, 120),),
    params={'k': PRIMES},
    ood=True,
  ),
  Family(
    name='num_polygonal',
    group='number',
    canonical='Write a function to compute the n-th $k-gonal number, '
    '(($k - 2) * n * n - ($k - 4) * n) // 2.',
    paraphrases=(
      'Given n, return the figurate number of index n for a polygon of $k sides: half of '
      '($k - 2) * n * n - ($k - 4) * n.',
      'With n = 1 giving 1, the $k-gonal numbers follow half of n * (n * ($k - 2) - ($k - 4)); '
      'the one for n is to be returned.',
      'Create a function for polygonal numbers of $k sides: the sum of the first n terms of 1, '
      '$k - 1, 2 * $k - 3, ... in which neighbours differ by $k - 2.',
    ),
    terse='N-th polygonal number.',
    names=('polygonal', 'polygonal_$k', 'figurate_number', 'gonal_number'),
    code="""\
def $f(n):
  return (($k - 2) * n * n - ($k - 4) * n) // 2
""",
    inputs=lambda rng, p: (rng.randint(1, 20),),
    params={'k': range(5, 23)},
    ood=True,
  ),
  Family(
    name='num_add_percent',
    group='number',
    canonical='Write a function to increase a price by $k percent and round the result to two '
    'decimals.',
    paraphrases=(
      'Given a net price, return the gross price for a tax rate of $k percent, to two decimals.',
      'On top of the price a surcharge of $k percent is put; the sum, rounded to 2 places, is '
      'returned.',
      'Create a function that raises its argument by $k % and rounds to the hundredth.',
    ),
    terse='Add tax to a price.',
    names=('add_tax', 'increase_price', 'with_${k}_percent', 'gross_price'),
    code="""\
def $f(price):
  return round(price * (100 + $k) / 100, 2)
""",
    inputs=lambda rng, p: (rng.randint(3, 400),),
    params={'k': range(3, 26)},
  ),
  Family(
    name='num_difference_doubled',
    group='number',
    canonical='Write a function to find the absolute difference between n and $k, doubled if n is '
    'greater than $k.',
    paraphrases=(
      'Given n, return $k - n when n is at most $k, and two times n - $k otherwise.',
      'How far the argument is from $k should be returned, counted twice in case it lies above $k.',
      'Create a function that measures the gap to $k and multiplies it by 2 for numbers over $k.',
    ),
    terse='Difference from a constant, sometimes doubled.',
    names=('diff_doubled', 'difference_$k', 'gap_to_constant', 'double_excess'),
    code="""\
def $f(n):
  if n > $k:
    return 2 * (n - $k)
  return $k - n
""",
    inputs=lambda rng, p: (rng.randint(p['k'] - 20, p['k'] + 20),),
    params={'k': range(5, 31)},
  ),
  Family(
    name='num_square_plus_offset',
    group='number',
    canonical='Write a function to check whether a positive integer n is exactly $k more than a '
    'perfect square.',
    paraphrases=(
      'Given n, return True if n - $k is the square of some whole number and False if not.',
      'Can the argument be written as i * i + $k with an integer i? The answer is a boolean.',
      'Create a test for numbers that become perfect squares once $k is subtracted.',
    ),
    terse='Check for a shifted perfect square.',
    names=('is_square_plus', 'square_plus_$k', 'shifted_square', 'check_square_offset'),
    code="""\
def $f(n):
  i = 0
  while i * i + $k < n:
    i += 1
  return i * i + $k == n
""",
    inputs=lambda rng, p: (_about_square(rng, p['k']),),
    params={'k': range(1, 18)},
  ),
  Family(
    name='num_tariff',
    group='number',
    canonical='Write a function to find the cost of n units if the first $k units cost $a each and '
    'all further units cost $b each.',
    paraphrases=(
      'Given n units, charge $a for every unit up to unit $k and $b for every unit beyond that.',
      'A tariff takes $a per unit, but $b per unit over the limit of $k; what is to be paid for n?',
      'Create a billing function in which only units in excess of $k are priced $b, others $a.',
    ),
    terse='Cost of n units in a tariff.',
    names=('tariff', 'total_cost', 'bill_for_units', 'price_over_$k'),
    code="""\
def $f(n):
  if n <= $k:
    return n * $a
  return $k * $a + (n - $k) * $b
""",
    inputs=lambda rng, p: (rng.randint(2, 30),),
    params={'a': (2, 3), 'k': (5, 8, 10, 12), 'b': (4, 5, 6, 7)},
  ),
  Family(
    name='num_largest_root',
    group='number',
    canonical='Write a function to find the largest integer x such that $a times x raised to the '
    'power $e does not exceed n.',
    paraphrases=(
      'Given a positive n, return the biggest whole x with $a * x ** $e <= n.',
      'Count x upwards from zero as long as the next value of $a * x ** $e is at most n; the last '
      'such x is the answer.',
      'Create a function that rounds down the root of degree $e of n divided by $a.',
    ),
    terse='Largest integer root of n.',
    names=('largest_root', 'integer_root', 'root_$e', 'biggest_base'),
    code="""\
def $f(n):
  x = 0
  while $a * (x + 1) ** $e <= n:
    x += 1
  return x
""",
    inputs=lambda rng, p: (rng.randint(100, 40000) * rng.choice((1, 1, 20)),),
    params={'a': range(2, 7), 'e': range(2, 5)},
  ),
)
