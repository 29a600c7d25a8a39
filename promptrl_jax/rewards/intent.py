"""What a question asks for, by the words that it is asked with.

The embedding of a question is mostly about its topic, while the form of a good
answer depends on what is asked of that topic. These are the categories of
Graesser and Person 1994, Question Asking During Tutoring, that words show,
those close to each other in one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

_PATTERNS = {
  # Instrumental or procedural.
  'procedure': (
    r'\bhow (do|does one|can|could|to|should|would|might)\b'
    r'|\b(best|right|good|easy|quick) way\b|\bways? to\b|\bsteps?\b'
    r'|\bwhere (do|should|can) (i|we|you)\b|\bi (want|wish|would like) to\b'
  ),
  # Definition, concept completion, causes, consequences, interpretation.
  'explanation': (
    r'\b(what|who|when|where) (is|are|was|were|does|did|happens)\b'
    r'|\bwhy\b|\bhow (does|is|are|did) (?!one)|\b(explain|describe|define)\b'
    r'|\b(tell|teach) me (about|what|why)\b|\bmeaning of\b|\bmeant by\b'
  ),
  # Comparison and disjunction.
  'comparison': (
    r'\b(which|versus|vs|compar(e|es|ed|ing|ison)|differ(s|ent|ence|ences)?)\b'
    r'|\b(better|worse|rather|more|less)\b.*\b(or|than)\b|\bwhether\b'
  ),
  # Judgement.
  'judgement': (
    r'\b(should|ought) (i|we|one)\b|\b(worth|advisable|recommend)\b'
    r'|\b(advice|opinion|verdict)\b|\b(you|your) (think|thoughts|view|say)\b'
  ),
  # Verification: yes or no.
  'verification': (
    r'^(is|are|was|were|am|do|does|did|can|could|will|would|should|has|have)\b'
  ),
  # Request or directive for something that is to be made.
  'request': (
    r'^(please )?(write|create|make|build|give|draft|generate|draw|list)\b'
    r'|\bi need an?\b|\b(can|could|would) you (write|create|make|build|draft)\b'
  ),
}
CATEGORIES = tuple(_PATTERNS)
_COMPILED = tuple(re.compile(p, re.IGNORECASE) for p in _PATTERNS.values())


def features(questions: Sequence[str]) -> np.ndarray:
  """Which of `CATEGORIES` questions belong to, float32 [N, C] of 0 and 1.

  A question may belong to several of them, or to none.
  """
  rows = [
    [pattern.search(text) is not None for pattern in _COMPILED]
    for text in map(str.strip, questions)
  ]
  return np.array(rows, np.float32).reshape(len(rows), len(CATEGORIES))
