"""Values that a request and its reply share are exchanged or put back."""

import random
import string

from promptrl_jax.training.supervised.chat import Chat
from promptrl_jax.training.supervised.values import (
  by_values,
  exchange_values,
  restored,
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


def test_a_mark_becomes_a_mark():
  for seed in range(50):
    _, reply = exchanged('glued with "=" or "a b"', ' by "=" or "a b"', seed)
    mark, text = reply.removeprefix(' by ').split(' or ')
    assert mark[1] in string.punctuation and mark != '"""' and len(mark) == 3
    assert text[1].isalpha() and text[2] == ' ' and text[3].isalpha()


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


def test_lost_values_are_put_back_in_each_order():
  story = 'ones that top 7, with 3 on top, glued with "-"'
  plain = ' joined by {} of the increases by {} of those greater than {}'
  assert list(restored(story, plain.format('"="', 5, 9))) == [
    plain.format('"-"', 7, 3),
    plain.format('"-"', 3, 7),
  ]
  # One number is there already, and stays where it is.
  assert list(restored(story, plain.format('"-"', 3, 9))) == [
    plain.format('"-"', 3, 7)
  ]


def test_what_lost_nothing_is_its_own_restoration():
  kept = ' leave remainder 1 when divided by 8'
  assert list(restored('after taking out all 8 there', kept)) == [kept]
  # There, 1 and 6 may each stand for the 8 that was lost.
  assert list(restored('all 8 there', ' remainder 1, divided by 6')) == [
    ' remainder 8, divided by 6',
    ' remainder 1, divided by 8',
  ]


def test_a_value_without_a_place_of_its_kind_is_not_put_back():
  assert not list(restored('top 7', ' that are even'))
  assert not list(restored('with "a" inside', ' greater than 5'))


def test_few_of_many_orders_are_tried():
  many = ' '.join(map(str, range(20, 26)))
  assert len(list(restored('1 2 3 4 5 6', many))) == 6


def test_replies_are_grouped_by_the_kind_of_their_values():
  even = chat('which two people can share', ' that are even')
  above = chat('that top 7', ' greater than 7')
  joined = chat('those that top 7, with "="', ' joined by "=", above 7')
  assert by_values([even, above, joined]) == [[joined], [above], [even]]
  assert by_values([even]) == [[even]]
