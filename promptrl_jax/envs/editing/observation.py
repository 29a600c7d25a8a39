"""Observations of the controller: an episode as a vector of fixed length."""

from __future__ import annotations

import ast
import dataclasses
import functools
import math
import re
import zlib
from collections.abc import Sequence

import numpy as np

from promptrl_jax.execution import CallResult
from promptrl_jax.llm.backend import Confidence
from promptrl_jax.operators import Episode
from promptrl_jax.rewards import agreement

LEGACY_SIZE = 10
PROMPT_SIZE = 96  # features of the embedded prompt
FEEDBACK_SIZE = 32  # features of the embedded feedback
CERTAINTY_SIZE = 4
AGREEMENT_SIZE = 3
MOST_VISIBLE = 4  # visible tests with a feature of their own

STATUSES = (
  *('start', 'passed', 'failed', 'error', 'timeout', 'memory', 'crash'),
  *('invalid', 'syntax_error', 'no_code', 'unknown'),
)
# Exceptions that tell edits apart; every other one shares the last place.
ERRORS = ('NameError', 'TypeError', 'IndexError', 'ValueError', 'other')
# Types of a value that was returned or expected; `unknown` if it is cut off.
TYPES = ('bool', 'int', 'float', 'str', 'list', 'tuple', 'dict', 'unknown')
_MISMATCH = re.compile(r'FAILED: .* returned (.*), expected (.*)')


def legacy_observation(
  prompt: str, feedbacks: Sequence[str], step: int, index: int, size: int
) -> np.ndarray:
  """The ten features of PROMIS, float32 [10].

  All are 0 if `prompt`, the original statement, is blank; `index` is the place
  of the problem in its data set of `size`.
  """
  if not prompt.strip():
    return np.zeros(LEGACY_SIZE, np.float32)
  last = feedbacks[-1] if feedbacks else ''
  return np.array(
    [
      len(prompt) / 1000,
      len(prompt.split()) / 100,
      len(feedbacks) / 10,
      step / 10,
      index / size,
      'def ' in prompt,
      'class ' in prompt,
      'import ' in prompt,
      len(last) / 1000,
      'error' in last.lower(),
    ],
    np.float32,
  )


def masked(episode: Episode) -> Episode:
  """A copy that has not seen what its programs did when they were run."""
  return dataclasses.replace(
    episode,
    status='unknown' if episode.attempts else 'start',
    error_type='',
    visible=(),
    feedback='',
    feedbacks=[],
    best_visible=0.0,
    outcomes=[],
  )


def certainty_features(confidence: Confidence | None) -> list[float]:
  """How sure the coder was of its last program, [CERTAINTY_SIZE].

  Whether that is known, mean and least log-prob and mean entropy of its tokens.
  """
  if confidence is None:
    return [0.0] * CERTAINTY_SIZE
  return [
    1.0,
    confidence.mean_logp,
    confidence.least_logp / 4,  # of one token, so it is several times larger
    confidence.entropy,
  ]


def agreement_features(outcomes: Sequence[CallResult]) -> list[float]:
  """How far the programs so far compute the same, [AGREEMENT_SIZE].

  The share of them that agree with the last one, itself included, the share of
  the largest group, and the groups for each program.
  """
  if not outcomes:
    return [0.0] * AGREEMENT_SIZE
  groups = agreement.outcome_groups(outcomes)
  last = len(outcomes) - 1
  own = next((len(group) for group in groups if last in group), 0)
  largest = len(groups[0]) if groups else 0
  return [x / len(outcomes) for x in (own, largest, len(groups))]


def price_feature(price: float) -> float:
  """The price of 1,000 tokens on a logarithmic scale: 0, and 1 at a reward.

  A hundredth of a reward is 0.15.
  """
  return math.log1p(100 * price) / math.log1p(100)


def rich_size(num_actions: int) -> int:
  """Length of `rich_observation`."""
  by_action = 3 * num_actions + 2  # the last one, the one that edited, all uses
  one_hot = len(STATUSES) + len(ERRORS) + MOST_VISIBLE + by_action
  # As it is now and as it was at first.
  twice = 2 * (2 * len(TYPES) + _COMPARISONS + _PROMPT_FEATURES)
  return one_hot + _COUNTERS + twice + PROMPT_SIZE + FEEDBACK_SIZE


_COUNTERS = 13
_PROMPT_FEATURES = 7
_COMPARISONS = 3


def rich_observation(
  episode: Episode, actions: Sequence[str], budget: int
) -> np.ndarray:
  """Features of the episode, float32 [rich_size(len(actions))].

  Counts are divided by `budget`, the most model calls of any episode.
  """
  visible = np.zeros(MOST_VISIBLE, np.float32)
  for i, passed in enumerate(episode.visible[:MOST_VISIBLE]):
    visible[i] = 1.0 if passed else -1.0
  error = episode.error_type
  return np.concatenate(
    [
      _one_hot(episode.status, STATUSES),
      _one_hot(error if error in ('', *ERRORS) else 'other', ERRORS),
      visible,
      _one_hot(episode.last_action, ('', *actions)),
      _one_hot(episode.edited_by, ('', *actions)),
      np.array([episode.uses[name] / 4 for name in actions], np.float32),
      _counters(episode, budget),
      _prompt_features(episode.statement, episode.tokens),
      _prompt_features(episode.problem.statement, episode.first_tokens),
      _mismatch(episode.feedback),
      _mismatch(episode.feedbacks[0] if episode.feedbacks else ''),
      embed(episode.statement),
      embed(episode.feedback, FEEDBACK_SIZE),
    ],
    dtype=np.float32,
  )


def _one_hot(value: str, names: Sequence[str]) -> np.ndarray:
  return np.array([value == name for name in names], np.float32)


def _counters(episode: Episode, budget: int) -> np.ndarray:
  return np.array(
    [
      episode.budget_left / budget,
      episode.budget_left <= 1,
      episode.budget_left <= 2,
      episode.attempts / budget,
      episode.steps / budget,
      max(episode.best_visible, 0.0),
      episode.edited,
      episode.rewrites / 4,
      episode.mutations / 4,
      min(episode.repeats, 4) / 4,
      len(set(episode.programs)) / budget,
      # Whether asking, or asking for a repair, would be greedy.
      episode.asks() not in episode.asked_greedily,
      episode.asks(episode.code) not in episode.asked_greedily,
    ],
    np.float32,
  )


@functools.lru_cache(maxsize=65536)
def _prompt_features(statement: str, tokens: int) -> np.ndarray:
  words = statement.split()
  return np.array(
    [
      len(statement) / 200,
      len(words) / 40,
      len(re.findall(r'[.!?](?:\s|$)', statement)) / 3,
      sum(word[0].isdigit() for word in words) / 3,
      statement.count('"') / 4,
      sum(map(len, words)) / max(1, len(words)) / 8,
      # Words that the model's tokenizer cuts into pieces are rare ones.
      tokens / max(1, len(words)) - 1,
    ],
    np.float32,
  )


@functools.lru_cache(maxsize=65536)
def _mismatch(feedback: str) -> np.ndarray:
  """How the first wrong value differs from the expected one.

  Returns:
    Types of both, whether these differ, whether the values look the same but
    for brackets, quotes, case and spaces, and whether one of two collections
    holds the other; zeros where no value was wrong.
  """
  size = 2 * len(TYPES) + _COMPARISONS
  match = _MISMATCH.search(feedback)
  if match is None:
    return np.zeros(size, np.float32)
  returned, expected = match.groups()
  kinds = _type_name(returned), _type_name(expected)
  one, other = (
    re.findall(r'[a-z0-9.-]+', text.lower()) for text in (returned, expected)
  )
  return np.concatenate(
    [
      *(_one_hot(kind, TYPES) for kind in kinds),
      [
        kinds[0] != kinds[1],
        ''.join(one) == ''.join(other),
        set(one) <= set(other) or set(other) <= set(one),
      ],
    ],
    dtype=np.float32,
  )


def _type_name(text: str) -> str:
  """Name in `TYPES` of a printed value."""
  try:
    name = type(ast.literal_eval(text)).__name__
  except (ValueError, SyntaxError):
    name = 'unknown'
  return name if name in TYPES else 'unknown'


@functools.lru_cache(maxsize=65536)
def embed(text: str, size: int = PROMPT_SIZE) -> np.ndarray:
  """Signed feature hashing of words and word pairs, float32 [size].

  The mean square is 1; an empty text is 0.

  Weinberger et al., "Feature hashing for large scale multitask learning",
  arXiv 0902.2206. It needs no model, so it is the same for every backend.
  """
  words = re.findall(r'[a-z]+|[0-9]|[^\w\s]', text.lower())
  vector = np.zeros(size, np.float32)
  for token in [*words, *map(' '.join, zip(words, words[1:], strict=False))]:
    code = zlib.crc32(token.encode())
    vector[(code >> 1) % size] += 1.0 if code & 1 else -1.0
  # At unit norm an entry would be a tenth of the other features.
  return vector * (size**0.5 / max(1e-6, np.linalg.norm(vector)))
