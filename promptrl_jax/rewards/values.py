"""The values of a statement: its numbers and quoted texts."""

from __future__ import annotations

import collections
import re

# A number that stands alone, or a text in double quotes.
VALUE = re.compile(r'"[^"\n]*"|(?<![\w.])\d+(?![\w.]*\d)')


def keeps_values(before: str, after: str) -> bool:
  """Whether a statement has the values of another one, each as often."""
  first = collections.Counter(VALUE.findall(before))
  return first <= collections.Counter(VALUE.findall(after))
