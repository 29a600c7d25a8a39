"""Metrics of an answer in words, given the answers that are right."""

from __future__ import annotations

import collections
import decimal
import re
from collections.abc import Callable, Sequence

import numpy as np

# A sign (not the dash of `5-3`), digits that may stand in groups of three,
# decimals, an exponent.
_NUMBER = re.compile(
  r'(?:(?<![\w.])[-+])?'
  r'(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)'
  r'(?:[eE][-+]?[0-9]{1,3}(?![0-9]))?'
)
# What announces the result: GSM8K's mark, or the words that models use.
_ANNOUNCED = re.compile(r'####|\banswer\s*(?:is|:|=)', re.IGNORECASE)

TextFn = Callable[[str, Sequence[str], Sequence[str]], float]


def normalise(text: str) -> str:
  """Lower case, single spaces, none around."""
  return ' '.join(text.lower().split())


def exact_match(answer: str, outputs: Sequence[str]) -> float:
  """1 if the normalised answer is one of the right ones, else 0."""
  return float(normalise(answer) in map(normalise, outputs))


def token_f1(answer: str, outputs: Sequence[str]) -> float:
  """F1 of the words of the answer and of the best right one.

  Over multisets of normalised words (Rajpurkar et al. 2016, arXiv 1606.05250,
  without its removal of articles and punctuation); 1 if both are empty.
  """
  return max(_f1(normalise(answer), normalise(o)) for o in outputs)


def _f1(answer: str, output: str) -> float:
  have, want = answer.split(), output.split()
  if not have or not want:
    return float(have == want)
  common = sum((collections.Counter(have) & collections.Counter(want)).values())
  return 2.0 * common / (len(have) + len(want))


def find_label(answer: str, labels: Sequence[str]) -> str | None:
  """The one label that an answer names; None if it names none or several.

  An answer that is a label, but for case and the marks around it, names it.
  Otherwise labels are searched as whole words, a longer one before a shorter
  one that is part of it (`very good` is no `good`).
  """
  known = {normalise(label): label for label in labels}
  bare = normalise(answer).strip('.,:;!?"\'`*()[] ')
  if bare in known:
    return known[bare]
  longest_first = sorted(known, key=lambda label: (-len(label), label))
  words = '|'.join(map(re.escape, longest_first))
  found = re.findall(rf'(?<!\w)(?:{words})(?!\w)', normalise(answer))
  return known[found[0]] if len(set(found)) == 1 else None


def accuracy(
  answer: str, outputs: Sequence[str], labels: Sequence[str]
) -> float:
  """1 if the answer names one label and that is right, else 0."""
  found = find_label(answer, labels)
  return float(found is not None and exact_match(found, outputs))


def find_number(text: str) -> decimal.Decimal | None:
  """The number that a text results in.

  The first one after the last announcement (`####`, `answer is`), or else the
  last one of the text; commas between groups of three are dropped.
  """
  announced = list(_ANNOUNCED.finditer(text))
  if announced:
    numbers = _numbers(text[announced[-1].end() :])
    if numbers:
      return numbers[0]
  numbers = _numbers(text)
  return numbers[-1] if numbers else None


def _numbers(text: str) -> list[decimal.Decimal]:
  found = (match.group() for match in _NUMBER.finditer(text))
  return [decimal.Decimal(number.replace(',', '')) for number in found]


def numeric(answer: str, outputs: Sequence[str]) -> float:
  """1 if the answer results in the number of a right one, else 0.

  Numbers are compared as decimals: `42`, `42.0` and `$42` are equal, `0.333`
  and `1/3` are not.
  """
  found = find_number(answer)
  return float(found is not None and found in map(find_number, outputs))


def perplexity_reward(logps: np.ndarray) -> float:
  """Minus the log-perplexity of a label, from its tokens' log-probs [N].

  The reward "perplexity" of PRewrite (arXiv 2401.08189), in logarithms: the
  perplexity itself has no bound, and one bad label would hide all the others.
  """
  logps = np.asarray(logps, np.float64)
  if logps.ndim != 1 or not logps.size or not np.isfinite(logps).all():
    raise ValueError(
      f'log-probs of a label have shape {logps.shape}: expected one or more '
      'finite numbers, one per token'
    )
  return float(np.mean(logps))


def _without_labels(function: Callable[[str, Sequence[str]], float]) -> TextFn:
  return lambda answer, outputs, labels: function(answer, outputs)


# Name -> (answer, right answers, labels) -> score in [0, 1].
METRICS: dict[str, TextFn] = {
  'em': _without_labels(exact_match),
  'f1': _without_labels(token_f1),
  'accuracy': accuracy,
  'numeric': _without_labels(numeric),
}


def check_metric(name: str, labels: Sequence[str]) -> None:
  """Raises ValueError if a metric is unknown or does not suit a task.

  Only a classification task has `labels`, which `accuracy` needs.
  """
  if name not in METRICS:
    raise ValueError(f'metric {name!r}: expected one of {", ".join(METRICS)}')
  if name == 'accuracy' and not labels:
    raise ValueError(
      'metric accuracy needs labels, which only a classification task has; '
      'choose em, f1 or numeric'
    )
