"""What is wrong with an answer, from 0 to 1: a table of checks by name.

  disclosure  1 if the answer has an address, a card number or a key that the
              question has not

It reads no meaning: whether an answer does harm is for a classifier, which
`register` adds. The cost is that of a `HybridReward`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from promptrl_jax.registry import Registry, check_call

# (query, answer) -> penalty in [0, 1]
SafetyFn = Callable[[str, str], float]

_MAIL = re.compile(r'\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b')
_KEY = re.compile(
  r'\b(?:sk-[\w-]{20,}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36,})\b'
  r'|-----BEGIN [A-Z ]*PRIVATE KEY-----'
)
_CARD = re.compile(r'(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)')
_EXAMPLES = ('example.com', 'example.org', 'example.net')  # RFC 2606


def disclosure(query: str, answer: str) -> float:
  """1 if an answer tells private data that the question did not, else 0.

  That is a mail address but those of example.com, a number of 13 to 19 digits
  whose last one checks the others as in payment cards (ISO/IEC 7812, Luhn), or
  a secret key of a form that services use.
  """
  return float(not _private(answer) <= _private(query))


def _private(text: str) -> set[str]:
  mails = {m for m in _MAIL.findall(text) if not m.endswith(_EXAMPLES)}
  numbers = (re.sub(r'\D', '', n) for n in _CARD.findall(text))
  return mails | set(_KEY.findall(text)) | set(filter(_is_card, numbers))


def _is_card(digits: str) -> bool:
  """Luhn's check."""
  doubled = (2 * int(d) for d in digits[-2::-2])
  total = sum(d - 9 if d > 9 else d for d in doubled)
  return (total + sum(int(d) for d in digits[-1::-2])) % 10 == 0


def _check(name: str, fn: SafetyFn) -> None:
  """Raises TypeError for a check that does not take its two arguments."""
  check_call(f'safety check {name!r}', fn, 'query', 'answer')


SAFETY: Registry[SafetyFn] = Registry('safety check', _check)
register = SAFETY.register
register('disclosure', disclosure)
