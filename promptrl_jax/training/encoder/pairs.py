"""Pairs of texts that mean the same, for the sentence encoder to learn from.

requests      two wordings of a question about a topic
answers       a question and the beginning of an answer to it
styles        two wordings of a system prompt
minicode      a problem in two registers
minicode2     a template of `pretrain` in two wordings
views         a text and what is left of it after words were dropped,
              misspelt or replaced: "SimCSE", Gao et al., 2021
              (https://arxiv.org/abs/2104.08821), with words for units
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable, Hashable

from promptrl_jax.operators import lexical
from promptrl_jax.tasks.minicode import generate as minicode
from promptrl_jax.tasks.minicode import registers
from promptrl_jax.tasks.minicode.family import Family, fill
from promptrl_jax.tasks.minicode2 import generate as minicode2
from promptrl_jax.tasks.minicode2 import wording
from promptrl_jax.tasks.minicode2.grammar import Template
from promptrl_jax.training.encoder import requests
from promptrl_jax.training.encoder.requests import Meaning, Topic

_SYNONYMS = lexical.LexicalConfig(probability=0.4)
_WORD = re.compile(r'[A-Za-z]{5,}')


@dataclasses.dataclass(frozen=True)
class Pair:
  """Two texts; those of equal meaning are no negatives of each other."""

  first: str
  second: str
  meaning: Hashable


@dataclasses.dataclass(frozen=True)
class Focus:
  """What one batch is about: little, so that negatives are hard.

  With a topic of its own for each pair, a batch would be told apart by topics
  alone, and what is asked about them would not be learned.
  """

  topics: tuple[Topic, ...]
  styles: tuple[Meaning, ...]
  families: tuple[Family, ...]
  templates: tuple[Template, ...]


def draw_focus(rng: random.Random, size: int) -> Focus:
  """Draws so many topics, styles, families and templates to learn from.

  Half of the topics are invented.

  Raises:
    ValueError: there are not as many.
  """
  families = [f for f in minicode.FAMILIES.values() if not f.ood]
  most = min(len(families), len(requests.topics(False)))
  if size > most:
    raise ValueError(f'focus={size}: expected at most {most}')
  return Focus(
    (
      *rng.sample(requests.topics(False), size - size // 2),
      *(requests.invent(rng) for _ in range(size // 2)),
    ),
    tuple(requests.draw_style(rng) for _ in range(size)),
    tuple(rng.sample(families, size)),
    tuple(rng.sample(minicode2.templates()['pretrain'], 4 * size)),
  )


def draw_request(focus: Focus, rng: random.Random) -> Pair:
  """Two wordings of a question; the topic's differ in one of two."""
  kind = rng.choice(requests.names('kind'))
  return _about(Meaning((kind,), rng.choice(focus.topics)), rng)


def draw_answer(focus: Focus, rng: random.Random) -> Pair:
  """A question and the first words of an answer."""
  kind = rng.choice(requests.names('kind'))
  return _about(
    Meaning((kind,), rng.choice(focus.topics)),
    rng,
    kind.replace('kind', 'answer'),
  )


def _about(meaning: Meaning, rng: random.Random, other: str = '') -> Pair:
  assert meaning.topic is not None
  words = meaning.topic.wordings
  if rng.random() < 0.5:
    words = (rng.choice(words),)
  second = Meaning((other,), meaning.topic) if other else meaning
  return Pair(
    requests.render(meaning, rng, topic_wordings=words),
    requests.render(second, rng, topic_wordings=words),
    meaning,
  )


def draw_style(focus: Focus, rng: random.Random) -> Pair:
  """Two wordings of a system prompt."""
  meaning = requests.vary(rng.choice(focus.styles), rng)
  return Pair(
    requests.render(meaning, rng), requests.render(meaning, rng), meaning
  )


def draw_minicode(focus: Focus, rng: random.Random) -> Pair:
  """A problem of the train families in two registers."""
  family = rng.choice(focus.families)
  params = rng.choice(family.grid())
  first, second = rng.sample(registers.REGISTERS, 2)
  return Pair(
    registers.render(family, params, first, rng),
    registers.render(family, params, second, rng),
    # A terse statement leaves parameters out.
    family.name if 'terse' in (first, second) else (family.name, str(params)),
  )


def draw_program(focus: Focus, rng: random.Random) -> Pair:
  """A problem of the train families and the words of its program."""
  family = rng.choice(focus.families)
  params = rng.choice(family.grid())
  register = rng.choice(('canonical', 'paraphrased', 'noisy'))
  name = minicode.draw_name(family, params, rng)
  return Pair(
    registers.render(family, params, register, rng),
    program_words(fill(family.code, params, f=name)),
    (family.name, str(params)),
  )


def program_words(code: str) -> str:
  """Returns the words and numbers of a program, without its marks."""
  return ' '.join(re.findall(r'[a-z]+|\d+', code.lower()))


def draw_minicode2(focus: Focus, rng: random.Random) -> Pair:
  """A template that the frozen models learn from, in two wordings."""
  template = rng.choice(focus.templates)
  params = {name: rng.choice(v) for name, v in template.params.items()}
  first, second = rng.sample(wording.WORDINGS, 2)
  return Pair(
    wording.render(template, params, first, rng),
    wording.render(template, params, second, rng),
    (template.name, str(params)),
  )


def draw_view(focus: Focus, rng: random.Random) -> Pair:
  """A text of any other kind and a damaged copy."""
  pair = rng.choice(_TEXTS)(focus, rng)
  return Pair(pair.first, damage(pair.first, rng), pair.meaning)


def damage(text: str, rng: random.Random, dropped: float = 0.3) -> str:
  """Replaces, drops and misspells some words; one at least stays."""
  words = lexical.mutate(text, rng, _SYNONYMS).split()
  kept = [w for w in words if rng.random() >= dropped] or words[:1]
  return ' '.join(
    _WORD.sub(lambda m: registers.misspell(m[0], rng), word)
    if rng.random() < 0.05
    else word
    for word in kept
  )


_TEXTS: tuple[Callable[[Focus, random.Random], Pair], ...] = (
  draw_request,
  draw_answer,
  draw_style,
  draw_minicode,
  draw_minicode2,
)
DRAWS = {
  'requests': draw_request,
  'answers': draw_answer,
  'styles': draw_style,
  'minicode': draw_minicode,
  'programs': draw_program,
  'minicode2': draw_minicode2,
  'views': draw_view,
}
