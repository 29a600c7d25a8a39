"""Random arguments for the families: small, varied, short when printed."""

from __future__ import annotations

import random
import string

WORDS = ['apple', 'bird', 'cloud', 'dance', 'eagle', 'flame', 'grape', 'house', 'input', 'jolly', 'kite', 'lemon', 'mango', 'night', 'ocean', 'piano', 'queen', 'river', 'stone', 'tiger', 'uncle', 'violet', 'water', 'xenon', 'yellow', 'zebra', 'red', 'sky', 'sun', 'map', 'level', 'noon', 'radar', 'civic', 'data', 'code', 'loop', 'tree']


def ints(
  rng: random.Random, low: int = -9, high: int = 20, least: int = 3, most: int = 6
) -> list[int]:
  """A list of `least..most` integers in `[low, high]`, repeats allowed."""
  return [rng.randint(low, high) for _ in range(rng.randint(least, most))]


def distinct_ints(
  rng: random.Random, low: int = 0, high: int = 20, least: int = 3, most: int = 6
) -> list[int]:
  """A list of distinct integers."""
  return rng.sample(range(low, high + 1), rng.randint(least, most))


def word(rng: random.Random) -> str:
  return rng.choice(WORDS)


def words(rng: random.Random, least: int = 2, most: int = 4) -> list[str]:
  return [word(rng) for _ in range(rng.randint(least, most))]


def sentence(rng: random.Random, least: int = 2, most: int = 4) -> str:
  return ' '.join(words(rng, least, most))


def letters(rng: random.Random, alphabet: str = 'abcde', least: int = 3, most: int = 8) -> str:
  return ''.join(rng.choice(alphabet) for _ in range(rng.randint(least, most)))


def mixed_text(rng: random.Random, least: int = 4, most: int = 9) -> str:
  """Letters of both cases, digits and blanks."""
  alphabet = string.ascii_letters + string.digits + '  '
  return ''.join(rng.choice(alphabet) for _ in range(rng.randint(least, most)))


def counts(rng: random.Random, least: int = 2, most: int = 4) -> dict[str, int]:
  """A dictionary from words to small integers."""
  keys = rng.sample(WORDS, rng.randint(least, most))
  return {k: rng.randint(1, 20) for k in keys}


def pairs(rng: random.Random, least: int = 2, most: int = 4) -> list[tuple[str, int]]:
  return [(word(rng), rng.randint(1, 20)) for _ in range(rng.randint(least, most))]
