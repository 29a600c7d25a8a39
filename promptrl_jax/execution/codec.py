"""Plain values as JSON, to carry them out of a process that may lie.

`encode` runs in the program's process, which may tamper with it. `decode` runs
in the judge and trusts nothing: it uses no pickle and no eval, bounds size,
depth and count, and produces built-in types only. A JSON array is a list; an
object has exactly one key, which names the type of its value. An instance of a
subclass is encoded as its base type.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

MAX_DEPTH = 60
MAX_ELEMENTS = 200_000
MAX_KEYS = 5_000
# Keys whose hashes collide take quadratic time to insert.
_MAX_COLLIDING = 64
_MAX_BITS = 100_000  # Of a Fraction's parts: computing their divisor is slow.
_MAX_EXPONENT = 400  # Of a Decimal: int(Decimal('1e999999999')) never ends.
_SMALL = 2**63


class NotPlainError(ValueError):
  """A value is not plain data, or is too large; the message says which."""


class MalformedError(ValueError):
  """Raised for text that `encode` cannot have written."""


class Drained(Iterator):
  """An iterator over the values that an iterator of the program yielded."""

  def __init__(self, values: list[Any]):
    self._all = values
    self._rest = iter(values)

  def __next__(self) -> Any:
    return next(self._rest)

  def __repr__(self) -> str:
    return f'an iterator over {self._all}'


def encode(value: Any) -> Any:
  """Turns plain data into values that JSON can represent.

  Besides the built-in types these are deque, Decimal, Fraction, date, datetime,
  timedelta, dict views and iterators (which are used up), nested at will. A
  match of `re` is the tuple of its text and groups, which is true as it is.

  Raises:
    NotPlainError: the value contains another type, or is too large.
  """
  try:
    return _Encoder().encode(value, 0)
  except TypeError:
    what = f'an odd object of type {type(value).__name__}'
    raise NotPlainError(what[:100]) from None


class _Encoder:
  def __init__(self):
    self._left = MAX_ELEMENTS

  def encode(self, value: Any, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is str:
      return value
    if depth > MAX_DEPTH:
      raise NotPlainError(f'data nested deeper than {MAX_DEPTH}')
    if isinstance(value, int):
      number = int.__index__(value)
      if -_SMALL < number < _SMALL:
        return number
      return {'int': hex(number)}
    if isinstance(value, float):
      number = float.__float__(value)
      return number if math.isfinite(number) else {'float': repr(number)}
    if isinstance(value, str):
      return str.__str__(value)
    if isinstance(value, list):
      return self._all(list.__iter__(value), depth)
    if isinstance(value, tuple):
      return {'tuple': self._all(tuple.__iter__(value), depth)}
    if isinstance(value, dict):
      if len(value) > MAX_KEYS:
        raise NotPlainError(f'a dict of more than {MAX_KEYS} keys')
      return {'dict': [self._all(kv, depth) for kv in dict.items(value)]}
    if isinstance(value, set | frozenset):
      if len(value) > MAX_KEYS:
        raise NotPlainError(f'a set of more than {MAX_KEYS} elements')
      if isinstance(value, set):
        return {'set': self._all(set.__iter__(value), depth)}
      return {'frozenset': self._all(frozenset.__iter__(value), depth)}
    if isinstance(value, complex):
      number = complex.__complex__(value)
      return {'complex': self._all((number.real, number.imag), depth)}
    if isinstance(value, (bytes, bytearray)):
      tag = 'bytes' if isinstance(value, bytes) else 'bytearray'
      return {tag: memoryview(value).hex()}
    if isinstance(value, collections.deque):
      return {'deque': self._all(collections.deque.__iter__(value), depth)}
    if isinstance(value, range):
      ends = (value.start, value.stop, value.step)
      if _is_huge_range(value):
        raise NotPlainError(f'a range of more than {MAX_ELEMENTS} elements')
      return {'range': self._all(ends, depth)}
    if kind is re.Match:
      return self.encode((value.group(), *value.groups()), depth)
    if kind in _AS_TEXT:
      if kind is decimal.Decimal and _is_huge_decimal(value):
        raise NotPlainError(f'a Decimal beyond 1e{_MAX_EXPONENT}')
      return {kind.__name__: str(value)}
    if kind in _AS_NUMBERS:
      if kind is fractions.Fraction and _are_huge(
        value.numerator, value.denominator
      ):
        raise NotPlainError('a Fraction of huge numbers')
      return {kind.__name__: self._all(_AS_NUMBERS[kind](value), depth)}
    if isinstance(value, (Iterator, *_VIEWS)):
      return {'iterator': self._all(value, depth)}
    raise NotPlainError(f'an object of type {kind.__name__}'[:100])

  def _all(self, values: Iterable[Any], depth: int) -> list[Any]:
    encoded = []
    for value in values:
      self._left -= 1
      if self._left < 0:
        raise NotPlainError(f'more than {MAX_ELEMENTS} elements')
      encoded.append(self.encode(value, depth + 1))
    return encoded


_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
_AS_TEXT = (decimal.Decimal, datetime.date, datetime.datetime)
_AS_NUMBERS = {
  fractions.Fraction: lambda f: (f.numerator, f.denominator),
  datetime.timedelta: lambda t: (t.days, t.seconds, t.microseconds),
}


def _is_huge_decimal(number: decimal.Decimal) -> bool:
  return number.is_finite() and abs(number.adjusted()) > _MAX_EXPONENT


def _are_huge(*parts: int) -> bool:
  return max(part.bit_length() for part in parts) > _MAX_BITS


def _is_huge_range(values: range) -> bool:
  return bool(values) and (
    (values[-1] - values[0]) // values.step >= MAX_ELEMENTS
  )


def loads(text: bytes | bytearray) -> Any:
  """Parses JSON from an untrusted process.

  Raises:
    MalformedError: the text is not JSON, is nested too deeply, or contains a
      number that `encode` would have written differently.
  """
  try:
    return _DECODER.decode(text.decode())
  except (ValueError, RecursionError) as error:
    raise MalformedError(f'not a message: {error}'[:200]) from None


def _parse_int(digits: str) -> int:
  if len(digits) > 20:  # Decimal digits take quadratic time.
    raise MalformedError('a long integer in decimal digits')
  return int(digits)


def _refuse_constant(name: str) -> Any:
  raise MalformedError(f'the constant {name}')


_DECODER = json.JSONDecoder(
  parse_int=_parse_int, parse_constant=_refuse_constant
)


def decode(encoded: Any) -> Any:
  """Turns the output of `encode` into fresh built-in values.

  Raises:
    MalformedError: `encode` cannot have produced it.
  """
  try:
    return _Decoder().decode(encoded, 0)
  except MalformedError:
    raise
  except (ValueError, TypeError, ArithmeticError, KeyError) as error:
    raise MalformedError(f'not a value: {error!r}'[:200]) from None


class _Decoder:
  def __init__(self):
    self._left = MAX_ELEMENTS

  def decode(self, encoded: Any, depth: int) -> Any:
    if encoded is None or isinstance(encoded, (bool, int, float, str)):
      return encoded
    if depth > MAX_DEPTH + 1:
      raise MalformedError('nested too deeply')
    if isinstance(encoded, list):
      return self._all(encoded, depth)
    ((tag, body),) = encoded.items()
    if tag == 'dict':
      pairs = [self._all(item, depth) for item in _at_most(MAX_KEYS, body)]
      _check_hashes([key for key, _ in pairs])
      return dict(pairs)
    if tag in ('set', 'frozenset'):
      values = self._all(_at_most(MAX_KEYS, body), depth)
      _check_hashes(values)
      return set(values) if tag == 'set' else frozenset(values)
    if tag in _SEQUENCES:
      return _SEQUENCES[tag](self._all(body, depth))
    if tag in _SCALARS:
      return _SCALARS[tag](body)
    if tag in _COMPOUND:
      return _COMPOUND[tag](*self._all(body, depth))
    raise MalformedError(f'unknown tag {tag!r}'[:200])

  def _all(self, body: Any, depth: int) -> list[Any]:
    if not isinstance(body, list):
      raise MalformedError('not a list')
    self._left -= len(body)
    if self._left < 0:
      raise MalformedError('too many elements')
    return [self.decode(item, depth + 1) for item in body]


def _at_most(limit: int, body: Any) -> Any:
  if len(body) > limit:
    raise MalformedError(f'more than {limit} keys')
  return body


def _check_hashes(keys: list[Any]) -> None:
  if len(keys) <= _MAX_COLLIDING:
    return
  if max(collections.Counter(map(hash, keys)).values()) > _MAX_COLLIDING:
    raise MalformedError('too many keys whose hashes collide')


def _float(text: str) -> float:
  if text not in ('nan', 'inf', '-inf'):
    raise MalformedError(f'the float {text!r}'[:200])
  return float(text)


def _decimal(text: str) -> decimal.Decimal:
  number = decimal.Decimal(text)
  if _is_huge_decimal(number):
    raise MalformedError('a huge Decimal')
  return number


def _fraction(numerator: int, denominator: int) -> fractions.Fraction:
  # A text would be dangerous, even one as short as '1e999999999'.
  if not isinstance(numerator, int) or not isinstance(denominator, int):
    raise MalformedError('a Fraction of something else than integers')
  if _are_huge(numerator, denominator):
    raise MalformedError('a Fraction of huge numbers')
  return fractions.Fraction(numerator, denominator)


def _range(start: int, stop: int, step: int) -> range:
  values = range(start, stop, step)
  if _is_huge_range(values):
    raise MalformedError('a huge range')
  return values


_SEQUENCES = {'tuple': tuple, 'deque': collections.deque, 'iterator': Drained}
_SCALARS = {
  'int': lambda text: int(text, 16),
  'float': _float,
  'bytes': bytes.fromhex,
  'bytearray': bytearray.fromhex,
  'Decimal': _decimal,
  'date': datetime.date.fromisoformat,
  'datetime': datetime.datetime.fromisoformat,
}
_COMPOUND = {
  'complex': complex,
  'range': _range,
  'Fraction': _fraction,
  'timedelta': datetime.timedelta,
}
