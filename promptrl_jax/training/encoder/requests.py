"""Requests to an assistant, its system prompts and answers, in many wordings.

  topics.txt, wordings.txt --> Meaning --render--> one of its wordings

Two wordings of one meaning are a pair to learn from. Wordings that are marked
`held` and the topics of `HELD_DOMAINS` are kept for checks.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import random
from collections.abc import Sequence

_STARTS = 'b c d f g h j k l m n p r s t v w z br cl dr fl gr pl sh st th tr'
_ENDS = 'a e i o u ai ea ou al an ar el en er ic il in ing is om on or um un'
_FOLDER = pathlib.Path(__file__).parent
# Two of eleven domains: their topics occur in no text to learn from.
HELD_DOMAINS = ('travel', 'people')
# Instructions on style that contradict each other are not given together.
_OPPOSITES = tuple(
  {f'style {name}' for name in group.split()}
  for group in (
    'short long',
    'bullets steps prose',
    'formal friendly humorous',
    'simple expert',
    'examples noexamples',
    'cautious confident',
  )
)


@dataclasses.dataclass(frozen=True)
class Topic:
  """Wordings of a topic that may stand for each other, the shortest first."""

  domain: str
  wordings: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Part:
  """Wordings of a sentence, apart from the topic that it is about."""

  learned: tuple[str, ...]
  held: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Meaning:
  """What a text says, whatever its words.

  Attributes:
    parts: names of its sentences, such as `kind cost`.
    topic: what they are about, if they are about anything.
  """

  parts: tuple[str, ...]
  topic: Topic | None = None


@functools.cache
def topics(held: bool) -> tuple[Topic, ...]:
  """Returns the topics to learn from, or those that are held out."""
  found = []
  for line in _lines('topics.txt'):
    domain, _, wordings = line.partition(': ')
    if (domain in HELD_DOMAINS) == held:
      found.append(Topic(domain, tuple(wordings.split(' | '))))
  return tuple(found)


@functools.cache
def parts() -> dict[str, Part]:
  """Returns the wordings of each sentence, by name."""
  lists: dict[str, tuple[list[str], list[str]]] = {}
  name, held = '', False
  for line in _lines('wordings.txt'):
    if line.startswith('['):
      name, held = line.strip('[]'), False
      lists[name] = [], []
    elif line == 'held':
      held = True
    else:
      lists[name][held].append(line)
  return {name: Part(tuple(a), tuple(b)) for name, (a, b) in lists.items()}


def invent(rng: random.Random) -> Topic:
  """Invents a topic of one to three words that nobody has read before.

  What is asked about it has to be told apart by words that have no meaning, as
  most topics of later texts have none for a small encoder.
  """
  starts, ends = _STARTS.split(), _ENDS.split()
  syllable = lambda: rng.choice(starts) + rng.choice(ends)
  words = [
    ''.join(syllable() for _ in range(rng.randint(1, 3)))
    for _ in range(rng.randint(1, 3))
  ]
  return Topic('invented', (' '.join(words),))


def names(group: str) -> list[str]:
  """Returns the names of the parts of a group: kind, answer, style or role."""
  return [name for name in parts() if name.startswith(f'{group} ')]


def render(
  meaning: Meaning,
  rng: random.Random,
  held: bool = False,
  topic_wordings: Sequence[str] = (),
) -> str:
  """Returns one wording of a meaning; sentences of a style in any order.

  Args:
    meaning: what to say.
    rng: draws the wording of each sentence and of the topic.
    held: whether the sentences are worded as those that are held out.
    topic_wordings: those to choose from; empty: all of the topic.
  """
  sentences = []
  topic = ''
  if meaning.topic is not None:
    topic = rng.choice(topic_wordings or meaning.topic.wordings)
  for name in meaning.parts:
    part = parts()[name]
    text = rng.choice(part.held if held else part.learned)
    sentences.append(fill(text, topic))
  first = meaning.parts[0].startswith('role ')
  rest = sentences[first:]
  rng.shuffle(rest)
  return ' '.join([*sentences[:first], *rest])


def fill(sentence: str, topic: str) -> str:
  """Puts a topic into a sentence; one without a place for it stays."""
  sentence = sentence.replace('$T', topic[:1].upper() + topic[1:])
  return sentence.replace('$t', topic)


def draw_style(rng: random.Random) -> Meaning:
  """Draws a system prompt: mostly a role, and one to four styles."""
  role = [rng.choice(names('role'))] if rng.random() < 0.7 else []
  return Meaning((*role, *_styles((), rng.randint(1, 4), rng)))


def vary(meaning: Meaning, rng: random.Random) -> Meaning:
  """Replaces one style of a system prompt, or its role, in two of three."""
  place = rng.randrange(len(meaning.parts))
  if rng.random() < 1 / 3:
    return meaning
  parts = list(meaning.parts)
  if parts[place].startswith('role '):
    parts[place] = rng.choice(names('role'))
    return Meaning(tuple(parts))
  del parts[place]
  role = [name for name in parts if name.startswith('role ')]
  styles = _styles(parts[len(role) :], len(parts) - len(role) + 1, rng)
  return Meaning((*role, *styles))


def _styles(
  chosen: Sequence[str], count: int, rng: random.Random
) -> tuple[str, ...]:
  """Adds styles that contradict no other up to a number; sorted."""
  styles = list(chosen)
  for name in rng.sample(names('style'), len(names('style'))):
    clash = any(
      {name, other} <= group for group in _OPPOSITES for other in styles
    )
    if len(styles) < count and name not in styles and not clash:
      styles.append(name)
  return tuple(sorted(styles))


def _lines(name: str) -> list[str]:
  text = (_FOLDER / name).read_text(encoding='utf-8')
  return [x for x in text.splitlines() if x and not x.startswith('#')]
