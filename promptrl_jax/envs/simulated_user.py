"""A simulated person who rates answers, with a taste that is known.

  answer --surface features--> how well each aspect suits this kind of question
         --weights--> satisfaction in [0, 1] --noise, slips--> rating of 1 to 5

Nothing but the text of the answer and the kind of the question counts. What a
person likes differs by the kind of the question, so that no single prompt is
best for all, and may change to another taste at some question. It shows whether
a learner learns from ratings; it does not show what people like.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Sequence

import numpy as np

from promptrl_jax.llm import templated
from promptrl_jax.prompts import catalogue
from promptrl_jax.prompts.genome import PromptGenome
from promptrl_jax.rewards import surface
from promptrl_jax.tasks import queries
from promptrl_jax.tasks.queries import Query

# What a person may prefer in each aspect of an answer, and how much it counts.
ASPECTS = {
  'length': (('short', 'medium', 'long'), 0.25),
  'layout': (('prose', 'bullets', 'steps', 'summary', 'question'), 0.25),
  'tone': (('plain', 'formal', 'warm', 'enthusiastic'), 0.2),
  'support': (('nothing', 'example', 'code'), 0.2),
  'care': (('nothing', 'hedges', 'exceptions'), 0.1),
}
# What somebody says who misses it.
_WISHES = {
  'length': {
    'short': 'Say it in two sentences at most.',
    'medium': 'About five sentences would be right.',
    'long': 'Be more thorough.',
  },
  'layout': {
    'prose': 'Write a paragraph instead of a list.',
    'bullets': 'Put it into a bulleted list.',
    'steps': 'Number the steps.',
    'summary': 'A summary at the beginning would help.',
    'question': 'Ask me a question at the end.',
  },
  'tone': {
    'plain': 'Write more plainly.',
    'formal': 'The tone should be formal.',
    'warm': 'Sound warm and friendly.',
    'enthusiastic': 'Show some enthusiasm.',
  },
  'support': {
    'nothing': 'Leave out examples and code.',
    'example': 'An example is missing.',
    'code': 'Show me a snippet of code.',
  },
  'care': {
    'nothing': 'Do not hedge.',
    'hedges': 'Say how sure you are.',
    'exceptions': 'Which exceptions are there?',
  },
}
_LENGTHS = {'short': 0.62, 'medium': 0.76, 'long': 0.9}
_LENGTH_WIDTH = 0.1


@dataclasses.dataclass(frozen=True)
class UserConfig:
  """What a simulated person is like.

  Attributes:
    own: probability that a kind of question has a preference of its own in an
      aspect, and not the person's general one.
    lowest, highest: satisfaction with an answer that suits in no aspect, and in
      all of them.
    noise: standard deviation of a rating, in points of the scale of 1 to 5.
    slips: probability of a rating that is drawn blindly.
    comments: probability that a rating comes with what is missed most.
    drift: question from which on the taste is another one; 0: never.
    moved: probability that a preference is drawn again then; 1: the taste is as
      that of another person.
  """

  own: float = 0.5
  lowest: float = 0.1
  highest: float = 0.95
  noise: float = 0.6
  slips: float = 0.05
  comments: float = 0.0
  drift: int = 0
  moved: float = 1.0

  def __post_init__(self):
    for name in ('own', 'slips', 'comments', 'moved', 'lowest', 'highest'):
      if not 0 <= getattr(self, name) <= 1:
        raise ValueError(f'user.{name}={getattr(self, name)}: expected 0 to 1')
    if self.lowest >= self.highest or self.noise < 0 or self.drift < 0:
      raise ValueError(
        f'user.lowest={self.lowest}, highest={self.highest}, '
        f'noise={self.noise}, drift={self.drift}: expected lowest < highest, '
        'and noise and drift of at least 0'
      )

  def satisfaction(self, total: np.ndarray) -> np.ndarray:
    """Of answers that suit by so much in all aspects together, 0 to 1."""
    return self.lowest + (self.highest - self.lowest) * total


Taste = dict[str, dict[str, str]]  # kind -> aspect -> what is preferred


def suits(query: Query) -> dict[str, np.ndarray]:
  """How well the answers that all genomes get suit who prefers what.

  By aspect, [preferences, genomes] in 0 to 1, in the order of `ASPECTS` and of
  `catalogue.every()`.
  """
  rows = _rows_of_genomes(query)
  return {
    aspect: np.array([_match(rows, aspect, one) for one in options])
    for aspect, (options, _) in ASPECTS.items()
  }


class SimulatedUser:
  """A person whose taste and ratings are functions of the seed."""

  def __init__(self, config: UserConfig = UserConfig(), seed: int = 0):
    self.config = config
    self._seed = seed
    rng = random.Random(f'taste {seed}')
    before, other = (_draw_taste(config, rng) for _ in range(2))
    self._tastes = before, _mix(before, other, config.moved, rng)

  def taste(self, at: int) -> Taste:
    """What the person prefers at a question."""
    return self._tastes[bool(self.config.drift) and at >= self.config.drift]

  def satisfaction(self, query: Query, text: str, at: int) -> float:
    """True satisfaction with an answer, which no learner is told."""
    rows = surface.features([text])
    return float(self._satisfaction(rows, query.kind, at)[0])

  def rate(self, query: Query, text: str, at: int) -> int:
    """A rating of 1 to 5, the same whenever the same is asked.

    `at` is the number of the question.
    """
    rng = random.Random(f'rating {self._seed} {at} {text}')
    if rng.random() < self.config.slips:
      return rng.randint(1, 5)
    score = 1 + 4 * self.satisfaction(query, text, at)
    return min(5, max(1, round(rng.gauss(score, self.config.noise))))

  def comment(self, query: Query, text: str, at: int) -> str:
    """What the person would rather have read; empty if nothing is said."""
    rng = random.Random(f'comment {self._seed} {at} {text}')
    if rng.random() >= self.config.comments:
      return ''
    taste, rows = self.taste(at)[query.kind], surface.features([text])
    missed = {
      aspect: weight * (1 - float(_match(rows, aspect, taste[aspect])[0]))
      for aspect, (_, weight) in ASPECTS.items()
    }
    most = max(missed, key=missed.__getitem__)
    return _WISHES[most][taste[most]] if missed[most] > 0 else ''

  def best(self, query: Query, at: int) -> float:
    """Satisfaction with the best answer that a genome of the catalogue gets."""
    return float(self._of_genomes(query, at).max())

  def best_static(
    self, asked: Sequence[Query], start: int = 0
  ) -> tuple[PromptGenome, float]:
    """The genome that is best for all these questions, and its mean."""
    means = np.mean(
      [self._of_genomes(query, start + i) for i, query in enumerate(asked)], 0
    )
    return catalogue.every()[int(means.argmax())], float(means.max())

  def mean_static(self, asked: Sequence[Query], start: int = 0) -> float:
    """Mean satisfaction of all genomes of the catalogue."""
    return float(
      np.mean(
        [self._of_genomes(query, start + i) for i, query in enumerate(asked)]
      )
    )

  def _of_genomes(self, query: Query, at: int) -> np.ndarray:
    return self._satisfaction(_rows_of_genomes(query), query.kind, at)

  def _satisfaction(self, rows: np.ndarray, kind: str, at: int) -> np.ndarray:
    taste, total = self.taste(at)[kind], np.zeros(len(rows))
    for aspect, (_, weight) in ASPECTS.items():
      total += weight * _match(rows, aspect, taste[aspect])
    return self.config.satisfaction(total)


def _draw_taste(config: UserConfig, rng: random.Random) -> Taste:
  general = {name: rng.choice(of) for name, (of, _) in ASPECTS.items()}
  return {
    kind: {
      name: rng.choice(of) if rng.random() < config.own else general[name]
      for name, (of, _) in ASPECTS.items()
    }
    for kind in queries.KINDS
  }


def _mix(
  before: Taste, other: Taste, moved: float, rng: random.Random
) -> Taste:
  """A taste of which some preferences, drawn one by one, are the other's."""
  return {
    kind: {
      name: other[kind][name] if rng.random() < moved else kept
      for name, kept in of.items()
    }
    for kind, of in before.items()
  }


def _match(rows: np.ndarray, aspect: str, preferred: str) -> np.ndarray:
  """How well answers suit in one aspect, [N] in 0 to 1, from their features."""
  of = dict(zip(surface.FEATURES, rows.T, strict=True))
  if aspect == 'length':
    distance = (of['length'] - _LENGTHS[preferred]) / _LENGTH_WIDTH
    return np.exp(-0.5 * distance**2)
  if preferred in of:
    return of[preferred]
  if preferred == 'prose':
    return 1 - np.maximum(of['bullets'], of['steps'])
  others = [of[name] for name in ASPECTS[aspect][0] if name in of]
  return 1 - np.max(others, axis=0)


def _rows_of_genomes(query: Query) -> np.ndarray:
  return _features_of_genomes(query.kind, len(query.topic.split()))


@functools.cache
def _features_of_genomes(kind: str, topic_words: int) -> np.ndarray:
  """Surface features of the answers that all genomes of the catalogue get.

  Of a question only its kind and the number of words of its topic matter.
  """
  query = next(
    q
    for split in queries.SPLITS
    for q in queries.load(split)
    if q.kind == kind and len(q.topic.split()) == topic_words
  )
  return surface.features(
    [templated.answer(g.render(), query.text) for g in catalogue.every()]
  )
