"""The retrieval check of sentence encoders: find the paraphrase among N texts.

  requests    a question among others about the same and other topics; topics
              and wordings occur in no training text
  reworded    the same, the topic in other words as well
  mixed       requests, but documents of one kind are worded in several ways, so
              that some have the query's very words about another topic
  answers     the beginning of an answer, found by its question
  styles      a system prompt, by held-out wordings of its sentences
  minicode    a plain statement of a family of the split `ood`, found by its
              paraphrase, terse or noisy form
  minicode2   a plain statement of an unseen template, found by a story or by
              one with rare words
  mbpp_words  a statement of MBPP, by what is left of it after two of five words
              were dropped and others replaced by synonyms
  mbpp_code   the same, by the words of its reference program

Nothing of it is seen in training (`training/encoder`); MBPP, which nobody
generated, is checked where its file is given.
"""

from __future__ import annotations

import dataclasses
import pathlib
import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from promptrl_jax.prompts.examples import EmbedFn, words_of
from promptrl_jax.tasks import mbpp
from promptrl_jax.tasks.minicode import generate as minicode
from promptrl_jax.tasks.minicode import registers
from promptrl_jax.tasks.minicode2 import generate as minicode2
from promptrl_jax.tasks.minicode2 import wording
from promptrl_jax.training.encoder import pairs, requests

SIZE = 200  # texts of a check
# Cosines that differ by less are equal: products are not exact.
_TOLERANCE = 1e-5
Texts = tuple[list[str], list[str]]


@dataclasses.dataclass(frozen=True)
class Check:
  """Query i asks for document i."""

  name: str
  queries: tuple[str, ...]
  documents: tuple[str, ...]

  def __post_init__(self):
    if len(self.queries) != len(self.documents) or not self.queries:
      raise ValueError(
        f'{self.name}: {len(self.queries)} queries and '
        f'{len(self.documents)} documents: expected as many, one at least'
      )


@dataclasses.dataclass(frozen=True)
class Score:
  """Shares of 1.

  Attributes:
    recall: of queries whose own document is the nearest; where k documents are
      equally near, 1 / k of it.
    mrr: mean of 1 / rank of the own document; of equally near ones, that in the
      middle.
  """

  recall: float
  mrr: float


def score(embed_fn: EmbedFn, check: Check) -> Score:
  """Looks each query up among the documents, by the cosine of vectors."""
  queries = _units(embed_fn(check.queries))
  cosines = queries @ _units(embed_fn(check.documents)).T
  right = np.diag(cosines)[:, None]
  nearer = np.sum(cosines > right + _TOLERANCE, axis=1)
  ties = np.sum(np.abs(cosines - right) <= _TOLERANCE, axis=1)
  return Score(
    recall=float(np.mean(np.where(nearer == 0, 1 / ties, 0.0))),
    mrr=float(np.mean(1 / (1 + nearer + (ties - 1) / 2))),
  )


def score_words(check: Check) -> Score:
  """Scores word counts, weighted by how rare a word is among the documents."""
  return score(words_of(check.documents), check)


def to_markdown(
  checks: Sequence[Check], scores: Mapping[str, Sequence[Score]]
) -> str:
  """Returns a table with a row for each encoder: recall at 1 / MRR."""
  rows = [['', *(check.name for check in checks)]]
  rows.append(['---', *['---:'] * len(checks)])
  for name, row in scores.items():
    rows.append([name, *(f'{s.recall:.2f} / {s.mrr:.2f}' for s in row)])
  return ''.join(f'| {" | ".join(row)} |\n' for row in rows)


def _units(vectors: np.ndarray) -> np.ndarray:
  norms = np.linalg.norm(vectors, axis=1, keepdims=True)
  return vectors / np.where(norms > 0, norms, 1.0)


def make_checks(size: int = SIZE, mbpp_path: str = '') -> list[Check]:
  """Returns all checks, the same for the same size.

  Args:
    size: texts of each.
    mbpp_path: `mbpp.jsonl`; empty: MBPP is not checked.

  Raises:
    ValueError: there are not as many texts.
    FileNotFoundError: there is no such file.
  """
  makers = dict(_MAKERS)
  if mbpp_path:
    if not pathlib.Path(mbpp_path).is_file():
      raise FileNotFoundError(f'mbpp_path={mbpp_path!r}: no such file')
    makers |= {
      'mbpp_words': lambda rng, size: _mbpp_words(mbpp_path, rng, size),
      'mbpp_code': lambda rng, size: _mbpp_code(mbpp_path, rng, size),
    }
  checks = []
  for name, make in makers.items():
    queries, documents = make(random.Random(f'retrieval/{name}'), size)
    checks.append(Check(name, tuple(queries), tuple(documents)))
  return checks


def _sample(rng: random.Random, found: Sequence, size: int) -> list:
  if not 0 < size <= len(found):
    raise ValueError(f'size={size}: expected 1 to {len(found)} texts')
  return rng.sample(found, size)


def _about(
  rng: random.Random,
  size: int,
  group: str = 'kind',
  reworded: bool = False,
  mixed: bool = False,
) -> Texts:
  """Questions, and the same or their answers in the first held-out wording.

  With `mixed`, documents have any wording that their question has not.
  """
  everything = [
    (name.partition(' ')[2], topic)
    for name in requests.names('kind')
    for topic in requests.topics(held=True)
  ]
  queries, documents = [], []
  for kind, topic in _sample(rng, everything, size):
    wordings = requests.parts()[f'kind {kind}'].held
    if mixed:
      asked, found = rng.sample(wordings, 2)
    else:
      asked = rng.choice(wordings[1:])
      found = requests.parts()[f'{group} {kind}'].held[0]
    words = topic.wordings
    queries.append(requests.fill(asked, words[0]))
    documents.append(requests.fill(found, words[-1 if reworded else 0]))
  return queries, documents


def _styles(rng: random.Random, size: int) -> Texts:
  meanings: dict[requests.Meaning, None] = {}
  while len(meanings) < size:
    meanings[requests.draw_style(rng)] = None
  texts = [
    [requests.render(meaning, rng, held=True) for meaning in meanings]
    for _ in range(2)
  ]
  return texts[0], texts[1]


def _minicode(rng: random.Random, size: int) -> Texts:
  problems = [
    (family, params)
    for family in minicode.FAMILIES.values()
    if family.ood
    for params in family.grid()
  ]
  others = [r for r in registers.REGISTERS if r != 'canonical']
  queries, documents = [], []
  for family, params in _sample(rng, problems, size):
    register = rng.choice(others)
    queries.append(registers.render(family, params, register, rng))
    documents.append(registers.render(family, params, 'canonical', rng))
  return queries, documents


def _minicode2(rng: random.Random, size: int) -> Texts:
  splits = minicode2.templates()
  unseen = {t.name: t for split in ('test', 'ood') for t in splits[split]}
  queries, documents = [], []
  for template in _sample(rng, list(unseen.values()), size):
    params = {name: rng.choice(v) for name, v in template.params.items()}
    style = rng.choice(('story', 'rare'))
    queries.append(wording.render(template, params, style, rng))
    documents.append(wording.render(template, params, 'plain', rng))
  return queries, documents


def _mbpp_words(path: str, rng: random.Random, size: int) -> Texts:
  tasks = _sample(rng, _mbpp(path), size)
  statements = [task.statement for task in tasks]
  return [pairs.damage(s, rng, dropped=0.4) for s in statements], statements


def _mbpp_code(path: str, rng: random.Random, size: int) -> Texts:
  tasks = _sample(rng, _mbpp(path), size)
  return (
    [pairs.program_words(task.reference) for task in tasks],
    [task.statement for task in tasks],
  )


def _mbpp(path: str):
  return mbpp.load('test', path)


_MAKERS: dict[str, Callable[[random.Random, int], Texts]] = {
  'requests': _about,
  'reworded': lambda rng, size: _about(rng, size, reworded=True),
  'mixed': lambda rng, size: _about(rng, size, mixed=True),
  'answers': lambda rng, size: _about(rng, size, group='answer'),
  'styles': _styles,
  'minicode': _minicode,
  'minicode2': _minicode2,
}
