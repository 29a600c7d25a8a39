"""Questions of people, of several kinds, for assistants that answer them.

They are made of templates and topics. The topics of the split `test` are in no
other split.
"""

from __future__ import annotations

import dataclasses
import random

KINDS = ('how_to', 'explanation', 'comparison', 'opinion', 'code')
SPLITS = ('train', 'test')

_TEMPLATES = {
  'how_to': (
    'How do I {act}?',
    'What is the best way to {act}?',
    'I want to {act}. Where do I begin?',
  ),
  'explanation': (
    'What is {thing}?',
    'Explain {thing} to me.',
    'Why does {thing} matter?',
  ),
  'comparison': (
    'Which is better, {thing} or {rival}?',
    'Compare {thing} with {rival}.',
    'What is the difference between {thing} and {rival}?',
  ),
  'opinion': (
    'Is {thing} worth my time?',
    'What do you think of {thing}?',
    'Should I care about {thing}?',
  ),
  'code': (
    'Write a function that {job}.',
    'I need a script that {job}.',
    'Give me code that {job}.',
  ),
}
# What can be done, what it is about, what it is compared with, and a program.
_TOPICS = (
  ('bake sourdough bread', 'fermentation', 'yeast', 'scales a recipe'),
  ('grow tomatoes', 'compost', 'fertiliser', 'plans a watering schedule'),
  ('learn Spanish', 'spaced repetition', 'cramming', 'shuffles flash cards'),
  ('train for a marathon', 'interval training', 'long runs', 'logs a run'),
  ('repair a bicycle', 'a derailleur', 'a hub gear', 'computes gear ratios'),
  ('save for a house', 'compound interest', 'a bond', 'plots a savings plan'),
  ('sleep better', 'the sleep cycle', 'napping', 'averages hours of sleep'),
  ('take sharp photos', 'aperture', 'shutter speed', 'renames photos by date'),
  ('play the guitar', 'a chord', 'a scale', 'transposes chords'),
  ('write a novel', 'a plot', 'a character', 'counts words in chapters'),
  ('back up a laptop', 'incremental backup', 'cloud storage', 'copies files'),
  ('speed up a website', 'caching', 'compression', 'measures response times'),
  ('train a classifier', 'overfitting', 'underfitting', 'splits a data set'),
  ('sort large files', 'merge sort', 'quicksort', 'merges sorted lists'),
  ('query a database', 'an index', 'a full scan', 'finds duplicate rows'),
  ('review a pull request', 'code review', 'pair work', 'lists open reviews'),
  ('insulate an attic', 'thermal mass', 'insulation', 'sums heat losses'),
  ('install solar panels', 'an inverter', 'a battery', 'estimates the yield'),
  ('brew coffee', 'extraction', 'roasting', 'converts grams to spoons'),
  ('make yoghurt', 'a culture', 'rennet', 'sets a timer'),
  ('keep bees', 'pollination', 'wind dispersal', 'records hive weights'),
  ('read a map', 'a contour line', 'a compass', 'measures distances'),
  ('sail a dinghy', 'apparent wind', 'true wind', 'draws a wind rose'),
  ('forecast the weather', 'a pressure front', 'a jet stream', 'parses rain'),
  ('give a speech', 'rhetoric', 'storytelling', 'times a talk'),
  ('hold a meeting', 'an agenda', 'a stand-up', 'finds a free slot'),
  ('knit a scarf', 'a purl stitch', 'crochet', 'counts stitches'),
  ('sharpen a knife', 'a whetstone', 'a honing rod', 'tracks maintenance'),
  ('plan a hike', 'elevation gain', 'distance', 'reads a track file'),
  ('invest in funds', 'an index fund', 'a single stock', 'rebalances shares'),
)
_HELD_OUT = 6  # topics of the test split, the last ones


@dataclasses.dataclass(frozen=True)
class Query:
  """What a person asks.

  Attributes:
    kind: one of `KINDS`; no solver is told it.
    topic: what an answer is about.
  """

  text: str
  kind: str
  topic: str


def load(split: str) -> tuple[Query, ...]:
  """All questions of a split, in a fixed order.

  Raises:
    ValueError: there is no such split.
  """
  if split not in SPLITS:
    raise ValueError(f'split {split!r}: expected one of {", ".join(SPLITS)}')
  topics = _TOPICS[-_HELD_OUT:] if split == 'test' else _TOPICS[:-_HELD_OUT]
  return tuple(
    Query(template.format(act=act, thing=thing, rival=rival, job=job), kind, on)
    for act, thing, rival, job in topics
    for kind, templates in _TEMPLATES.items()
    for on in [{'how_to': act, 'code': job}.get(kind, thing)]
    for template in templates
  )


def draw(split: str, count: int, seed: int) -> list[Query]:
  """Draws questions, all kinds equally often in the mean, with replacement."""
  return random.Random(seed).choices(load(split), k=count)
