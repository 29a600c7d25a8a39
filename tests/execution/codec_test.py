from __future__ import annotations

import collections
import datetime
import decimal
import enum
import fractions
import itertools
import json
import math
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptrl_jax.execution import codec


def there_and_back(value):
  return codec.decode(codec.loads(json.dumps(codec.encode(value)).encode()))


hashable = st.recursive(
  st.none()
  | st.booleans()
  | st.integers()
  | st.floats(allow_nan=False)
  | st.text()
  | st.binary()
  | st.complex_numbers(allow_nan=False)
  | st.fractions()
  | st.dates()
  | st.datetimes()
  | st.timedeltas(),
  lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
  max_leaves=5,
)
plain = st.recursive(
  hashable,
  lambda inner: (
    st.lists(inner, max_size=4)
    | st.dictionaries(hashable, inner, max_size=4)
    | st.sets(hashable, max_size=4)
    | st.tuples(inner, inner)
  ),
  max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(plain)
def test_plain_data_comes_back_equal_and_of_the_same_type(value):
  back = there_and_back(value)
  assert back == value
  assert repr(type(back)) == repr(type(value))


@pytest.mark.parametrize(
  'value',
  [
    *(2**63 - 1, 2**63, -(2**63), 10**4000, -0.0, math.inf, 1e-320),
    *('\ud800', '\0', bytearray(b'x'), range(3, 9, 2), range(0)),
    *(collections.deque([1, (2,)]), {(1, 2): {3: [4]}}, {True: 'a'}),
    *(decimal.Decimal('1.50'), decimal.Decimal('NaN').copy_abs().is_nan()),
    *(fractions.Fraction(1, 3), datetime.timedelta(days=-1, seconds=3)),
  ],
)
def test_special_values_come_back(value):
  back = there_and_back(value)
  assert repr(back) == repr(value)


def test_nan_comes_back():
  assert math.isnan(there_and_back(math.nan))


def test_subclasses_travel_as_their_base_type():
  point = collections.namedtuple('point', 'x y')

  class Name(str):
    def __str__(self):
      return 'another'

  class Number(enum.IntEnum):
    ONE = 1

  for value, expected in (
    (collections.Counter('aab'), {'a': 2, 'b': 1}),
    (collections.defaultdict(list, a=[1]), {'a': [1]}),
    (collections.OrderedDict(a=1), {'a': 1}),
    (point(1, 2), (1, 2)),
    (Name('true'), 'true'),
    (Number.ONE, 1),
  ):
    back = there_and_back(value)
    assert back == expected
    assert type(back) is type(expected)


def test_a_match_is_the_tuple_of_its_text_and_groups():
  match = re.search('(b)|(x)', 'abc')
  assert there_and_back([match]) == [('b', 'b', None)]
  assert there_and_back(re.search('x?', 'abc')) == ('',)  # True, as a match.


def test_iterators_and_views_come_back_as_iterators():
  for value in (iter([1, 2]), (i for i in (1, 2)), {1: 3, 2: 4}.keys()):
    back = there_and_back(value)
    assert back != [1, 2]
    assert list(back) == [1, 2]


class Equal:
  def __eq__(self, other):
    return True


class Fake:
  __class__ = list  # type: ignore[assignment]


cyclic: list = []
cyclic.append(cyclic)


@pytest.mark.parametrize(
  'value',
  [
    *(Equal(), [Equal()], {'a': Equal()}, object, print, Fake(), ..., cyclic),
    *([0] * (codec.MAX_ELEMENTS + 1), set(range(codec.MAX_KEYS + 1))),
    *(dict.fromkeys(range(codec.MAX_KEYS + 1)), range(10**9), json),
    decimal.Decimal('1e999999'),
    fractions.Fraction(1, 10**40_000),
  ],
)
def test_what_is_not_plain_or_too_much_is_refused(value):
  with pytest.raises(codec.NotPlainError):
    codec.encode(value)


def test_depth_is_bounded_on_both_sides():
  value: list = []
  for _ in range(codec.MAX_DEPTH):
    value = [value]
  assert there_and_back(value) == value
  with pytest.raises(codec.NotPlainError, match='deeper'):
    codec.encode([value])
  encoded: list = []
  for _ in range(codec.MAX_DEPTH + 5):
    encoded = [encoded]
  with pytest.raises(codec.MalformedError, match='deep'):
    codec.decode(encoded)


@pytest.mark.parametrize(
  'text',
  [
    *('', '{', 'NaN', '-Infinity', '[1,', '\xff', '[' * 100_000, '1' * 21),
    *('{}', '{"list": [1], "set": [1]}', '{"eval": "1"}', '{"int": 5}'),
    *('{"set": [[1]]}', '{"dict": [[1]]}', '{"dict": [[[], 1]]}', '{"set": 1}'),
    *('{"float": "1"}', '{"bytes": "x"}', '{"range": [0, 9, 0]}'),
    *('{"range": [0, 1000000000, 1]}', '{"Decimal": "1e999999999"}'),
    *('{"Fraction": ["1e99"]}', '{"Fraction": ["1/3", 1]}'),
    *('{"Fraction": [1, 0]}', '{"complex": [[], 1]}', '{"date": "x"}'),
    *('{"timedelta": [1e300]}', '{"tuple": {"tuple": []}}'),
    json.dumps({'set': list(range(codec.MAX_KEYS + 1))}),
    json.dumps([0] * (codec.MAX_ELEMENTS + 1)),
  ],
)
def test_what_encode_cannot_have_written_is_malformed(text):
  with pytest.raises(codec.MalformedError):
    codec.decode(codec.loads(text.encode('latin-1')))


# The time of decoding must be bounded, too: each of these took seconds.
MODULUS = 2**61 - 1  # Python takes hashes of numbers modulo this prime.


@pytest.mark.parametrize(
  'encoded',
  [
    {'set': [{'int': hex(i * MODULUS)} for i in range(4999)]},
    {'dict': [[{'int': hex(i * MODULUS)}, 0] for i in range(4999)]},
    {
      'frozenset': [
        {'Fraction': [{'int': hex(i * MODULUS)}, 1]} for i in range(4999)
      ]
    },
    {
      'set': [
        {'tuple': [0] * 38 + [{'int': hex(i * MODULUS)}]} for i in range(4999)
      ]
    },
    {'Fraction': [{'int': hex(3**10**6)}, {'int': hex(7**10**6)}]},
  ],
)
def test_what_takes_long_to_decode_is_malformed(encoded):
  start = time.thread_time()
  with pytest.raises(codec.MalformedError):
    codec.decode(encoded)
  assert time.thread_time() - start < 0.5


def test_honest_keys_collide_a_little():
  cube = set(itertools.product(range(-3, 4), repeat=3))  # hash(-1) == hash(-2)
  assert there_and_back(cube) == cube
