"""Guards against rewrites that earn the reward without doing the work.

A rewriter that is rewarded by tests can earn the reward without saying what the
program should do: it may write the program itself, repeat the tests, or name
what they pass and expect. A flagged rewrite is worth nothing, whatever the
tests say.

  empty           too few words to be a task
  overlong        longer than a statement need be, or cut off by the limit
  repetition      the same words or characters over and over
  assertion       a test, or a call of the function on data
  code            Python, or a piece of the reference
  test_data       what a hidden test passes or expects
  lost_value      a number or quoted text of the statement is missing
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from promptrl_jax.rewards import code_leaks, data_leaks
from promptrl_jax.rewards.values import keeps_values
from promptrl_jax.types import Task


@dataclasses.dataclass(frozen=True)
class GuardsConfig:
  """Where the bounds lie; the leaks have none.

  Attributes:
    min_words: fewer are `empty`.
    max_words: more are `overlong`.
    max_growth: so are more than this many times the words of the statement, and
      `free_words` on top: a terse statement may have to become a long one.
    free_words: see `max_growth`.
    max_run: one word so often in a row is `repetition`.
    min_distinct: so is a smaller share of distinct runs of three words, in the
      text or in any 18 words of it.
    keep_values: whether `lost_value` is a flag. A few tests let pass a rewrite
      with another number, and a rewriter that is rewarded for it learns to
      write any number.
  """

  min_words: int = 3
  max_words: int = 100
  max_growth: float = 4.0
  free_words: int = 30
  max_run: int = 4
  min_distinct: float = 0.5
  keep_values: bool = False

  def __post_init__(self):
    if not 1 <= self.min_words <= self.max_words:
      raise ValueError(
        f'min_words={self.min_words}, max_words={self.max_words}: expected '
        '1 <= min_words <= max_words'
      )
    if self.max_run < 2 or not 0 <= self.min_distinct <= 1:
      raise ValueError(
        f'max_run={self.max_run}, min_distinct={self.min_distinct}: expected '
        'a run of at least 2 and a share in 0..1'
      )


FLAGS = (
  *('empty', 'overlong', 'repetition', 'assertion', 'code', 'test_data'),
  'lost_value',
)

# One to six characters, six times over: "=>=>=>=>=>=>". Not blanks, nor the
# line that marks a gap.
_STUTTER = re.compile(r'([^\s_.]{1,6}?)\1{5,}')
_LONGEST_WORD = 60
# This many words in a row are quoted: two texts about tasks share shorter runs.
_QUOTED = 6
_FEWEST_RUNS, _WINDOW = 6, 16


def flag(
  rewrite: str,
  task: Task,
  visible_tests: Sequence[str] = (),
  config: GuardsConfig = GuardsConfig(),
) -> str:
  """The first of `FLAGS` that applies, or '' if none does.

  A solver may read the `visible_tests`: their values are no secret.
  """
  if flagged := flag_form(rewrite, task.statement, config):
    return flagged
  checks = {
    'assertion': lambda: data_leaks.has_assertion(rewrite, task),
    'code': lambda: code_leaks.has_code(rewrite, task),
    'test_data': lambda: data_leaks.has_test_data(rewrite, task, visible_tests),
    'lost_value': lambda: (
      config.keep_values and not keeps_values(task.statement, rewrite)
    ),
  }
  return next((name for name, check in checks.items() if check()), '')


def flag_form(
  rewrite: str, statement: str, config: GuardsConfig = GuardsConfig()
) -> str:
  """The first of `empty`, `overlong` and `repetition` that applies, or ''.

  These need no task: `statement` is any text that was rewritten.
  """
  checks = {
    'empty': lambda: not _has_words(rewrite, config),
    'overlong': lambda: _is_overlong(rewrite, statement, config),
    'repetition': lambda: is_repetitive(rewrite, config),
  }
  return next((name for name, check in checks.items() if check()), '')


def quotes(text: str, instruction: str, allowed: Sequence[str] = ()) -> bool:
  """Whether a text repeats an instruction instead of following it.

  That is six words in a row of the instruction, in any case and whatever marks
  stand between them, that none of the `allowed` texts holds.
  """
  known = frozenset[tuple[str, ...]]().union(*map(_word_runs, allowed))
  return not _word_runs(text).isdisjoint(_word_runs(instruction) - known)


def _word_runs(text: str) -> frozenset[tuple[str, ...]]:
  words = re.findall(r'\w+', text.lower())
  runs = zip(*(words[i:] for i in range(_QUOTED)), strict=False)
  return frozenset(runs)


def _has_words(text: str, config: GuardsConfig) -> bool:
  return len(re.findall(r'[^\W\d_]+', text)) >= config.min_words


def _is_overlong(rewrite: str, statement: str, config: GuardsConfig) -> bool:
  count, before = len(rewrite.split()), len(statement.split())
  growth = config.max_growth * before + config.free_words
  return count > min(max(config.max_words, before), growth)


def is_repetitive(text: str, config: GuardsConfig = GuardsConfig()) -> bool:
  """Whether a text goes round in circles."""
  # Marks count as words here: "3, 3 + 3, 3 + 6" goes somewhere.
  words = re.findall(r"\w[\w'-]*|\S", text.lower())
  if _STUTTER.search(text) or any(len(w) > _LONGEST_WORD for w in words):
    return True
  run = 1
  for before, word in zip(words, words[1:], strict=False):
    run = run + 1 if word == before else 1
    if run >= config.max_run and word.isalnum():
      return True
  triples = list(zip(words, words[1:], words[2:], strict=False))
  windows = [
    triples[max(0, end - _WINDOW) : end]
    for end in range(_FEWEST_RUNS, len(triples) + 1)
  ]
  return any(
    len(set(window)) < config.min_distinct * len(window)
    for window in [*windows, triples]
  )
