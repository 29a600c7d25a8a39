"""What can be read off an answer without understanding it.

Length, layout, tone and what stands in an answer, by counting marks and words.
A learner of what a person likes may use them beside embeddings; a simulated
person (`envs/simulated_user.py`) likes or dislikes them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import numpy as np

FEATURES = (
  *('length', 'bullets', 'steps', 'code', 'example', 'summary', 'question'),
  *('formal', 'warm', 'enthusiastic', 'hedges', 'exceptions'),
)
_FORMAL = re.compile(
  r'\b(furthermore|moreover|therefore|hence|regarding|consequently)\b', re.I
)
_WARM = re.compile(
  r'\b(glad|happy to|no worries|dear|take your time|you will do|warmly)\b', re.I
)
_HEDGES = re.compile(
  r'\b(probably|perhaps|fairly sure|not certain|as far as i know|likely)\b',
  re.I,
)
_EXCEPTIONS = re.compile(
  r'\b(except|exception|unless|caveat|beware|on the other hand)', re.I
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
  return (
    np.log1p(len(text.split())) / np.log(201),
    sum(line.startswith(('- ', '* ')) for line in lines) / listed,
    sum(bool(re.match(r'\d+[.)] ', line)) for line in lines) / listed,
    float('```' in text),
    float(bool(re.search(r'\b(for example|for instance)\b', text, re.I))),
    float(first.startswith(('in short', 'summary'))),
    float(text.rstrip().endswith('?')),
    min(1.0, len(_FORMAL.findall(text)) / 2),
    min(1.0, len(_WARM.findall(text)) / 2),
    min(1.0, text.count('!') / 2),
    min(1.0, len(_HEDGES.findall(text)) / 2),
    min(1.0, len(_EXCEPTIONS.findall(text)) / 2),
  )
