"""Exchanging the values that a request and its reply share."""

import random

from promptrl_jax.training.supervised.chat import Chat
from promptrl_jax.training.supervised.values import (
  exchange_values,
)


def chat(request, reply):
  return Chat((('user', request),), reply)


def exchanged(request, reply, seed=0):
  found = exchange_values(chat(request, reply), random.Random(seed))
  return found.messages[0][1], found.reply


def test_a_shared_value_is_exchanged_on_both_sides():
  seen = set()
  for seed in range(50):
    request, reply = exchanged(
      'only those above 7 matter\n# f([7, 9])', ' greater than 7', seed
    )
    number = reply.removeprefix(' greater than ')
    assert number.isdigit()
    assert request == f'only those above {number} matter\n# f([{number}, 9])'
    assert number != '9', 'it would be the other value'
    seen.add(number)
  assert len(seen) > 10


def test_quoted_texts_keep_their_length():
  request, reply = exchanged('with "ab" in it', ' contain "ab"')
  text = reply.removeprefix(' contain ')
  assert len(text) == 4 and text.strip('"').isalpha() and text != '"ab"'
  assert request == f'with {text} in it'


def test_different_values_stay_different():
  for seed in range(200):
    request, _ = exchanged('from 1 to 2', ' from 1 to 2', seed)
    _, low, _, high = request.split()
    assert low != high


def test_what_is_not_shared_or_no_value_stays():
  for request, reply in (
    ('above 7', ' greater than 8'),
    ('name: f_7\n=>', ' the 7th'),
    ('add 0.5 of 1.5', ' add 0.5'),
    ('no value', ''),
  ):
    assert exchanged(request, reply) == (request, reply)


def test_it_depends_on_the_generator_alone():
  given = 'above 7 and "x"', ' greater than 7 and "x"'
  assert exchanged(*given, seed=3) == exchanged(*given, seed=3)
