"""Families on the digits of numbers, in base ten and in other bases."""

from __future__ import annotations

import random

from promptrl_jax.tasks.minicode.family import Family


def _number(rng: random.Random, digits: str, least: int = 4, most: int = 7) -> int:
  """A number without leading zero, about half of whose digits come from `digits`."""
  length = rng.randint(least, most)
  body = ''.join(
    rng.choice(digits if rng.random() < 0.5 else '0123456789') for _ in range(length - 1)
  )
  return int(rng.choice([d for d in digits if d != '0'] + list('123456789')) + body)


def _in_base(rng: random.Random, b: int) -> int:
  """A number of three to five digits in base `b`, two times in three a palindrome."""
  half = [rng.randrange(1, b)] + [rng.randrange(b) for _ in range(rng.randint(0, 1))]
  digits = half + [rng.randrange(b)] * rng.randint(0, 1) + half[::-1]
  if rng.random() < 0.34:
    digits[-1] = (digits[-1] + 1) % b
  value = 0
  for d in digits:
    value = value * b + d
  return value


FAMILIES: tuple[Family, ...] = (
  Family(
    name='digit_count_of',
    group='number',
    canonical='Write a function to count how many times the digit $d occurs in a positive integer.',
    paraphrases=(
      'Given a positive whole number, tell the number of its decimal digits that are equal to $d.',
      'The occurrences of $d among the digits of the argument should be counted.',
      'Create a function that reports how often $d has to be written when noting down an integer.',
    ),
    terse='Count a digit in a number.',
    names=('count_digit', 'count_digit_$d', 'digit_frequency', 'occurrences_in_number'),
    code="""\
def $f(n):
  count = 0
  while n > 0:
    if n % 10 == $d:
      count += 1
    n //= 10
  return count
""",
    inputs=lambda rng, p: (_number(rng, str(p['d'])),),
    params={'d': range(10)},
  ),
  Family(
    name='digit_remove',
    group='number',
    canonical='Write a function to remove every digit $d from a positive integer and return the '
    'remaining number.',
    paraphrases=(
      'Given a positive whole number, discard all its digits equal to $d; the answer is an integer '
      'again, 0 if no digits are left.',
      'Each $d should be deleted from the decimal notation and the rest read as an integer (zero '
      'when it is empty).',
      'Create a function that returns the integer formed by those digits of n that differ from $d.',
    ),
    terse='Remove a digit from a number.',
    names=('remove_digit', 'drop_digit_$d', 'without_digit', 'erase_digit'),
    code="""\
def $f(n):
  rest = str(n).replace('$d', '')
  return int(rest) if rest else 0
""",
    inputs=lambda rng, p: (_number(rng, str(p['d']) + '26'),),
    params={'d': range(10)},
  ),
  Family(
    name='digit_replace',
    group='number',
    canonical='Write a function to replace each digit $a of a positive integer with the digit $b.',
    paraphrases=(
      'Given a positive whole number, return the number obtained by writing $b wherever it has $a.',
      'All digits $a in the decimal notation of the argument are to be exchanged for $b; an '
      'integer is returned.',
      'Create a function that substitutes $b for every $a among the digits of an integer.',
    ),
    terse='Replace a digit in a number.',
    names=('replace_digit', 'swap_digit', 'digit_${a}_to_$b', 'substitute_digit'),
    code="""\
def $f(n):
  digits = [$b if d == '$a' else d for d in str(n)]
  return int(''.join(str(d) for d in digits))
""",
    inputs=lambda rng, p: (_number(rng, str(p['a'])),),
    params={'a': range(1, 6), 'b': range(6, 10)},
  ),
  Family(
    name='digit_power_sum_from',
    group='number',
    canonical='Write a function to find the sum of the digits of n that are at least $d, each '
    'raised to the power $e.',
    paraphrases=(
      'Given n, ignore its digits below $d and add up the powers with exponent $e of the others.',
      'Digits of the number which are $d or larger should be taken to exponent $e and totalled.',
      'Create a function that totals x ** $e over those decimal digits x with x >= $d.',
    ),
    terse='Sum the powers of large digits.',
    names=('digit_power_sum', 'sum_digit_powers', 'large_digits_$e', 'powered_digits'),
    code="""\
def $f(n):
  total = 0
  for ch in str(n):
    digit = int(ch)
    if digit >= $d:
      total += digit ** $e
  return total
""",
    inputs=lambda rng, p: (_number(rng, f'{p["d"] - 1}{p["d"]}', 4, 8),),
    params={'d': range(3, 9), 'e': range(2, 5)},
  ),
  Family(
    name='digit_base_string',
    group='number',
    canonical='Write a function to convert a positive integer n to a string of its digits in base '
    '$b.',
    paraphrases=(
      'Given a positive whole number, return its representation to the base $b as text.',
      'The number should be written in the positional system with $b different digits; a string is '
      'returned.',
      'Create a converter from ordinary integers to strings in base-$b notation.',
    ),
    terse='Convert a number to another base.',
    names=('to_base', 'to_base_$b', 'convert_base', 'base_digits'),
    code="""\
def $f(n):
  digits = ''
  while n > 0:
    digits = str(n % $b) + digits
    n //= $b
  return digits
""",
    inputs=lambda rng, p: (rng.randint(5, 200),),
    params={'b': range(2, 10)},
  ),
  Family(
    name='digit_sum_in_base',
    group='number',
    canonical='Write a function to find the sum of the digits of a positive integer n written in '
    'base $b.',
    paraphrases=(
      'Given a positive whole number, add up the digits of its representation to the base $b.',
      'The number is to be taken apart into digits by repeated division by $b; return their total.',
      'Create a cross-sum function for integers which works in the base-$b system.',
    ),
    terse='Digit sum in another base.',
    names=('digit_sum_base', 'base_${b}_digit_sum', 'cross_sum', 'sum_base_digits'),
    code="""\
def $f(n):
  total = 0
  while n > 0:
    n, digit = divmod(n, $b)
    total += digit
  return total
""",
    inputs=lambda rng, p: (rng.randint(50, 9999),),
    params={'b': (2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 20)},
  ),
  Family(
    name='digit_list_value',
    group='number',
    canonical='Write a function to find the value of a number given as a list of its digits in '
    'base $b, most significant first.',
    paraphrases=(
      'Given digits of the base-$b system, the highest place in front, return the integer they '
      'stand for.',
      'A list holds the digits of a number to the base $b from left to right; it should be turned '
      'into an ordinary integer.',
      'Create a function that evaluates digits by the rule "times $b plus the next digit", '
      'starting from zero.',
    ),
    terse='Value of a list of base digits.',
    names=('digits_to_number', 'from_base_$b', 'parse_digits', 'horner_value'),
    code="""\
def $f(digits):
  value = 0
  for digit in digits:
    value = value * $b + digit
  return value
""",
    inputs=lambda rng, p: (
      [rng.randint(1, p['b'] - 1)] + [rng.randrange(p['b']) for _ in range(rng.randint(1, 4))],
    ),
    params={'b': (2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 20)},
  ),
  Family(
    name='digit_reverse_add',
    group='number',
    canonical='Write a function to reverse the decimal digits of a positive integer and add $k to '
    'the result.',
    paraphrases=(
      'Given a positive whole number, read its digits backwards as a number and return $k more.',
      'First the order of the digits is flipped, then the number obtained is increased by $k.',
      'Create a function for the sum of $k and the mirror image of an integer in base ten.',
    ),
    terse='Reverse digits and add a constant.',
    names=('reverse_and_add', 'reversed_plus_$k', 'flip_digits', 'mirror_add'),
    code="""\
def $f(n):
  reverse = 0
  while n > 0:
    reverse = reverse * 10 + n % 10
    n //= 10
  return reverse + $k
""",
    inputs=lambda rng, p: (rng.randint(12, 9999),),
    params={'k': range(1, 21)},
  ),
  Family(
    name='digit_sum_mod',
    group='number',
    canonical='Write a function to find the remainder when the sum of the digits of a positive '
    'integer is divided by $k.',
    paraphrases=(
      'Given a positive whole number, total its decimal digits and return that total modulo $k.',
      'The digits are to be added up; what remains after taking out multiples of $k is wanted.',
      'Create a check-digit function: digit sum of the argument, reduced mod $k.',
    ),
    terse='Remainder of the digit sum.',
    names=('digit_sum_mod', 'checksum_$k', 'digit_remainder', 'check_value'),
    code="""\
def $f(n):
  return sum(int(ch) for ch in str(n)) % $k
""",
    inputs=lambda rng, p: (_number(rng, '789', 5, 9),),
    params={'k': (5, *range(7, 20))},
  ),
  Family(
    name='digit_product_zero_as',
    group='number',
    canonical='Write a function to find the product of the digits of a positive integer, where '
    'each digit 0 counts as $k.',
    paraphrases=(
      'Given a positive whole number, multiply its digits, with the factor $k in place of zeros.',
      'The digits should be multiplied together, but every zero is treated as though it were $k.',
      'Create a digit product that takes $k for a zero and the digit itself in all other cases.',
    ),
    terse='Product of digits with zeros replaced.',
    names=('digit_product', 'product_zero_as_$k', 'multiply_digits', 'nonzero_product'),
    code="""\
def $f(n):
  product = 1
  for ch in str(n):
    product *= int(ch) or $k
  return product
""",
    inputs=lambda rng, p: (_number(rng, '0', 3, 6),),
    params={'k': range(2, 20)},
  ),
  Family(
    name='digit_next_with_sum',
    group='number',
    canonical='Write a function to find the smallest integer greater than n whose digits add up to '
    '$k.',
    paraphrases=(
      'Given n, return the next number after it that has a digit sum of exactly $k.',
      'Counting upwards from n + 1, which number is the first with digits totalling $k?',
      'Create a function that searches above n for the closest integer of cross sum $k.',
    ),
    terse='Next number with a certain digit sum.',
    names=('next_with_digit_sum', 'next_sum_$k', 'search_digit_sum', 'following_number'),
    code="""\
def $f(n):
  n += 1
  while sum(int(ch) for ch in str(n)) != $k:
    n += 1
  return n
""",
    inputs=lambda rng, p: (rng.randint(5, 900 if p['k'] > 7 else 300),),
    params={'k': range(3, 21)},
    ood=True,
  ),
  Family(
    name='digit_padded_code',
    group='number',
    canonical='Write a function to format an integer as the letter "$c" followed by the number '
    'padded with zeros to $k digits.',
    paraphrases=(
      'Given a non-negative number, return an identifier: "$c" first, then the number with zeros '
      'in front so that it has $k digits.',
      'A code is to be made of "$c" and the argument written with $k digits, zeros leading.',
      'Create labels such as "$c" plus a number of fixed width $k, filled up by zeros on the left.',
    ),
    terse='Format a number as a padded code.',
    names=('make_code', 'format_id', 'code_${c}_$k', 'padded_label'),
    code="""\
def $f(n):
  return '$c' + str(n).zfill($k)
""",
    inputs=lambda rng, p: (rng.choice((rng.randint(0, 99), rng.randint(0, 999))),),
    params={'c': 'ABKNRX', 'k': range(4, 8)},
  ),
  Family(
    name='digit_divide_round',
    group='number',
    canonical='Write a function to divide a number by $d and round the quotient to $k decimals.',
    paraphrases=(
      'Given a number, return one part in $d of it, with $k places after the decimal point.',
      'The quotient of the argument and $d should be returned, rounded to $k digits behind the '
      'point.',
      'Create a function that splits an amount into $d equal shares and rounds a share to $k '
      'decimal places.',
    ),
    terse='Divide and round to some decimals.',
    names=('divide_round', 'rounded_quotient', 'divide_by_$d', 'equal_share'),
    code="""\
def $f(n):
  return round(n / $d, $k)
""",
    inputs=lambda rng, p: (rng.randint(10, 200),),
    params={'d': (3, 6, 7, 9, 11, 13, 17), 'k': range(1, 5)},
  ),
  Family(
    name='digit_palindrome_in_base',
    group='number',
    canonical='Write a function to check whether the digits of a positive integer n in base $b '
    'form a palindrome.',
    paraphrases=(
      'Is the base-$b notation of the given positive whole number the same read from both sides?',
      'Return True if the list of digits of n to the base $b equals its reverse, else False.',
      'Create a test for numbers whose representation with base $b is symmetric.',
    ),
    terse='Check for a palindrome in a base.',
    names=('is_palindrome_base', 'palindrome_base_$b', 'symmetric_digits', 'mirror_number'),
    code="""\
def $f(n):
  digits = []
  while n > 0:
    digits.append(n % $b)
    n //= $b
  return digits == digits[::-1]
""",
    inputs=lambda rng, p: (_in_base(rng, p['b']),),
    params={'b': range(2, 17)},
    ood=True,
  ),
  Family(
    name='digit_count_numbers_with',
    group='number',
    canonical='Write a function to count the integers from 1 to n whose decimal notation contains '
    'the digit $d.',
    paraphrases=(
      'Given n, how many of the numbers 1, 2, ..., n have $d among their digits?',
      'Numbers up to and including n, from 1 on, in which $d appears at least once should be '
      'counted.',
      'Create a function telling how many page numbers of a book with n pages include a $d.',
    ),
    terse='Count numbers containing a digit.',
    names=('count_containing', 'numbers_with_$d', 'count_with_digit', 'pages_with_digit'),
    code="""\
def $f(n):
  return sum(1 for i in range(1, n + 1) if '$d' in str(i))
""",
    inputs=lambda rng, p: (rng.choice((rng.randint(10, 99), rng.randint(10, 400))),),
    params={'d': range(10)},
  ),
  Family(
    name='digit_spread',
    group='number',
    canonical='Write a function to find the difference between the largest and the smallest digit '
    'of a positive integer.',
    paraphrases=(
      'Given a positive whole number, subtract its minimum digit from its maximum digit.',
      'By how much does the highest digit of the number exceed its lowest one?',
      'Create a function that returns the range spanned by the decimal digits of an integer.',
    ),
    terse='Spread of the digits.',
    names=('digit_spread', 'digit_range', 'max_minus_min_digit', 'digit_gap'),
    code="""\
def $f(n):
  digits = [int(ch) for ch in str(n)]
  return max(digits) - min(digits)
""",
    inputs=lambda rng, p: (rng.randint(10, 9999),),
  ),
)
