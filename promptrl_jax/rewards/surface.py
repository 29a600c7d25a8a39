"""What can be read off an answer without understanding it.

Length, layout, tone and what stands in an answer, by counting marks and words.
A learner of what a person likes may use them beside embeddings; a simulated
person (`envs/simulated_user.py`) likes or dislikes them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

import numpy as np

FEATURES = (
  *('length', 'bullets', 'steps', 'code', 'example', 'summary', 'question'),
  *('formal', 'warm', 'enthusiastic', 'hedges', 'exceptions'),
)
_STEP = re.compile(r'\d+[.)] ')


def _counter(*phrases: str, end: str = r'\b') -> Callable[[str], int]:
  """Counts phrases in text in lower case, where words begin and end.

  Most texts have none of them, which looking for each shows sooner than a
  pattern.
  """
  pattern = re.compile(rf'\b({"|".join(phrases)}){end}')

  def count(text: str) -> int:
    if not any(phrase in text for phrase in phrases):
      return 0
    return len(pattern.findall(text))

  return count


_examples = _counter('for example', 'for instance')
_formal = _counter(
  *('furthermore', 'moreover', 'therefore', 'hence', 'regarding'),
  'consequently',
)
_warm = _counter(
  *('glad', 'happy to', 'no worries', 'dear', 'take your time', 'you will do'),
  'warmly',
)
_hedges = _counter(
  *('probably', 'perhaps', 'fairly sure', 'not certain', 'as far as i know'),
  'likely',
)
_exceptions = _counter(
  *('except', 'exception', 'unless', 'caveat', 'beware', 'on the other hand'),
  end='',
)


def features(texts: Sequence[str]) -> np.ndarray:
  """Surface features of texts, float32 [N, len(FEATURES)], about 0 to 1.

  `length` is log(1 + words) / log(201); all others are 0 where there is no such
  thing, and 1 where there is much of it.
  """
  rows = [_features(text) for text in texts]
  return np.array(rows, np.float32).reshape(len(rows), len(FEATURES))


@functools.lru_cache(maxsize=1 << 16)
def _features(text: str) -> tuple[float, ...]:
  lines = [line.strip() for line in text.splitlines() if line.strip()]
  listed = max(1, len(lines))
  first = lines[0].lower() if lines else ''
  lower = text.lower()
  return (
    np.log1p(len(text.split())) / np.log(201),
    sum(line.startswith(('- ', '* ')) for line in lines) / listed,
    sum(_STEP.match(line) is not None for line in lines) / listed,
    float('```' in text),
    float(_examples(lower) > 0),
    float(first.startswith(('in short', 'summary'))),
    float(text.rstrip().endswith('?')),
    min(1.0, _formal(lower) / 2),
    min(1.0, _warm(lower) / 2),
    min(1.0, text.count('!') / 2),
    min(1.0, _hedges(lower) / 2),
    min(1.0, _exceptions(lower) / 2),
  )
