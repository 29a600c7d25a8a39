"""Numbers and quoted texts of statements."""

from promptrl_jax.rewards.values import keeps_values


def test_a_statement_keeps_the_values_of_another_one():
  for before, after, kept in (
    ('above 7 with "x"', 'with "x", greater than 7', True),
    ('above 7 with "x"', 'greater than 8 with "x"', False),
    ('those that are small', 'smaller than 18', True),
    ('not 7, taken 7 times', 'multiples by 7', False),
    ('above 17', 'greater than 7', False),
    ('all the 8s', 'divisible by 8', True),
    ('no value', 'no value', True),
  ):
    assert keeps_values(before, after) is kept, (before, after)
