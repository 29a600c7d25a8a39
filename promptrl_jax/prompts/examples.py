"""Worked examples: solved tasks that a prompt shows before its own.

Brown et al., "Language models are few-shot learners", 2020
(https://arxiv.org/abs/2005.14165). Those nearest to the task help most: Liu et
al., "What makes good in-context examples for GPT-3?", 2021
(https://arxiv.org/abs/2101.06804).
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Sequence

import numpy as np

from promptrl_jax.types import Problem, Task

EmbedFn = Callable[[Sequence[str]], np.ndarray]
_MOST = 8  # examples that are looked up for a problem


@dataclasses.dataclass(frozen=True)
class WorkedExample:
  """A solved task.

  Attributes:
    task_id: of the task, so that it is not shown to itself.
    statement, signature, tests: as in `templates.CoderPrompt`.
    code: a program that passes all tests of the task.
  """

  task_id: str
  statement: str
  signature: str
  tests: tuple[str, ...]
  code: str


def from_tasks(
  tasks: Sequence[Task], visible: int = 1
) -> tuple[WorkedExample, ...]:
  """Returns the tasks that have a reference program, with their first tests."""
  return tuple(
    WorkedExample(
      task.task_id,
      task.statement,
      task.signature,
      task.tests[:visible],
      task.reference.strip(),
    )
    for task in tasks
    if task.reference
  )


class ExampleLibrary:
  """Finds the worked examples that are nearest to a problem."""

  def __init__(
    self, examples: Sequence[WorkedExample], embed_fn: EmbedFn | None = None
  ):
    """Embeds the examples.

    Args:
      examples: of the training split.
      embed_fn: n texts -> float [n, D]; the cosine of two vectors is how near
        their texts are. None: vectors of words, weighted by how rare they are
        among the examples.
    """
    self._examples = tuple(examples)
    texts = [example.statement for example in self._examples]
    self._embed_fn = embed_fn or words_of(texts)
    self._vectors = _units(self._embed_fn(texts)) if texts else np.zeros((0, 1))
    self._nearest = functools.lru_cache(maxsize=1 << 16)(self._find)

  def nearest(self, problem: Problem, count: int) -> tuple[WorkedExample, ...]:
    """Returns up to `count` examples, the nearest first, without the problem.

    An example with the statement of the problem is left out as well.
    """
    return self._nearest(problem.task_id, problem.statement)[:count]

  def _find(self, task_id: str, statement: str) -> tuple[WorkedExample, ...]:
    if not self._examples:
      return ()
    (vector,) = _units(self._embed_fn([statement]))
    order = _order(self._vectors, vector)
    found = (self._examples[i] for i in order[: _MOST + 2])
    others = [
      example
      for example in found
      if example.task_id != task_id and example.statement != statement
    ]
    return tuple(others[:_MOST])


def nearest_first(
  query: str, texts: Sequence[str], embed_fn: EmbedFn | None = None
) -> list[int]:
  """Returns the places of all texts, the nearest to the query first.

  Texts that are equally near keep their order; `embed_fn` as in
  `ExampleLibrary`.
  """
  if not texts:
    return []
  embed_fn = embed_fn or words_of(texts)
  (vector,) = _units(embed_fn([query]))
  return _order(_units(embed_fn(texts)), vector).tolist()


def _order(vectors: np.ndarray, vector: np.ndarray) -> np.ndarray:
  return np.argsort(-(vectors @ vector), kind='stable')


def _units(vectors: np.ndarray) -> np.ndarray:
  """Unit vectors; one without a direction stays zero."""
  norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
  return vectors / np.where(norms > 0, norms, 1.0)


def words_of(texts: Sequence[str]) -> EmbedFn:
  """Returns an embedding by words, weighted by log(n / texts that have it).

  Its vectors [n, words] have no unit length.
  """
  counts = collections.Counter(w for text in texts for w in {*_words(text)})
  place = {word: i for i, word in enumerate(sorted(counts))}
  weights = {word: math.log(len(texts) / n) for word, n in counts.items()}

  def embed(texts: Sequence[str]) -> np.ndarray:
    vectors = np.zeros((len(texts), max(1, len(place))), np.float32)
    for row, text in zip(vectors, texts, strict=True):
      for word, count in collections.Counter(_words(text)).items():
        if word in place:
          row[place[word]] = (1 + math.log(count)) * weights[word]
    return vectors

  return embed


def _words(text: str) -> list[str]:
  return re.findall(r'[a-z]+|\d+', text.lower())
