"""Agreement among programs, with model-written tests or without any tests.

Model-written tests may be wrong, so a verdict on them is evidence and no proof.
Where there are no tests, programs that compute equal values on the same inputs
are evidence for one another. The functions below `outcome_groups` take arrays:

  passed  bool [programs, tests], the program passes the test;
  judged  bool [programs], the pool came to a verdict: False is a failure of
          ours and says nothing about the program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from promptrl_jax.execution import (
  CallResult,
  ExpressionResult,
  Program,
  ProgramResult,
)


class AgreementMatrix(NamedTuple):
  """Verdicts of programs on tests; see the top of this file for the fields."""

  passed: np.ndarray
  judged: np.ndarray


@dataclasses.dataclass(frozen=True)
class ConsensusSet:
  """Programs that pass the same tests, and these tests.

  Attributes:
    programs: indices, ascending.
    tests: indices, ascending; empty for the programs that pass none.
  """

  programs: tuple[int, ...]
  tests: tuple[int, ...]

  @property
  def score(self) -> int:
    """Size of the set of (program, test) pairs: |programs| * |tests|."""
    return len(self.programs) * len(self.tests)


def to_program(
  code: str,
  tests: Iterable[str],
  *,
  entry_point: str,
  setup: str = '',
) -> Program:
  """A program to run against tests that a model wrote, each one confined.

  Give it tests from `prompts.generated_tests.collect`, which refuses those that
  do more than test.
  """
  return Program(code, tuple(tests), setup, entry_point, isolate_tests=True)


def agreement_matrix(
  results: Sequence[ProgramResult], tests: int
) -> AgreementMatrix:
  """The verdicts of the pool on programs that ran the same `tests` tests.

  A program has one budget of time for all its tests (see `Limits`): what it
  leaves unrun is not passed. The same holds for tests that cannot be judged.
  """
  passed = [[test.status == 'passed' for test in r.tests] for r in results]
  judged = [result.status != 'infra_error' for result in results]
  return AgreementMatrix(
    np.array(passed, bool).reshape(len(results), tests),
    np.array(judged, bool),
  )


def outcome(result: ExpressionResult) -> str | None:
  """What one program computes for one input, comparable by its text.

  That is the `repr` of the value, the class of the exception, or the status
  that took the place of both (`timeout`, `memory`, `crash`, `not_run`). None
  for a value that is no plain data or is not complete: nobody can say that it
  equals another.
  """
  if result.status == 'ok':
    return None if result.value_is_cut else result.value
  if result.status == 'error':
    return f'raises {result.error_type}'
  return None if result.status == 'invalid' else result.status


def outcome_groups(results: Sequence[CallResult]) -> list[tuple[int, ...]]:
  """Groups programs that compute equal outcomes; needs no tests.

  Majority vote over execution results, as MBR-EXEC with its 0/1 loss (Shi et
  al. 2022, arXiv 2204.11454): correct programs agree on every input, wrong ones
  are seldom wrong in the same way.

  Args:
    results: of programs, duplicates included, on the same inputs: each sample
      counts. `1` and `1.0` differ, as their texts do.

  Returns:
    Indices of the programs of each group, ascending, in the order of size;
    groups of equal size keep the order of their first programs. Programs
    without a result or an `outcome` for every input are in no group.
  """
  groups: dict[tuple[str | None, ...], list[int]] = {}
  for program, result in enumerate(results):
    outcomes = tuple(map(outcome, result.expressions))
    was_run = result.status not in ('infra_error', 'refused')
    if was_run and None not in outcomes:
      groups.setdefault(outcomes, []).append(program)
  return sorted((tuple(g) for g in groups.values()), key=len, reverse=True)


def statuses(passed: np.ndarray, judged: np.ndarray) -> list[str]:
  """`passed`, `failed` or `unknown` for each program.

  `unknown` is a program without a verdict, and every program if there are no
  tests: "all of none" is no pass.
  """
  _check(passed, judged)
  if not passed.shape[1]:
    return ['unknown' for _ in judged]
  return [
    ('passed' if row.all() else 'failed') if known else 'unknown'
    for row, known in zip(passed, judged, strict=True)
  ]


def consensus_sets(
  passed: np.ndarray, judged: np.ndarray
) -> list[ConsensusSet]:
  """Groups of programs that pass the same tests, highest score first.

  Dual execution agreement of CodeT (Chen et al. 2022, arXiv 2207.10397): a set
  with many programs and many tests is right, because wrong programs and wrong
  tests seldom agree by chance. Each sample counts, duplicates too. Equal scores
  stand in the order of their first programs. A program without a verdict is in
  no set.

  The best program is the first of the first set, and the tests that belong to
  it are those of that set; a score of 0 says that no program passed any test.
  """
  _check(passed, judged)
  groups: dict[tuple[int, ...], list[int]] = {}
  for program in np.flatnonzero(judged).tolist():
    tests = tuple(np.flatnonzero(passed[program]).tolist())
    groups.setdefault(tests, []).append(program)
  sets = [ConsensusSet(tuple(group), tests) for tests, group in groups.items()]
  return sorted(sets, key=lambda s: -s.score)  # Stable.


def rank(passed: np.ndarray, judged: np.ndarray) -> np.ndarray:
  """All programs by the score of their consensus set, best first.

  Returns:
    int [programs], indices. Equal scores and members of one set keep their
    order, so without any agreement the order is that of the programs; those
    without a verdict come last.
  """
  sets = consensus_sets(passed, judged)
  ranked = [program for group in sets for program in group.programs]
  unjudged = np.flatnonzero(~judged).tolist()
  return np.array(ranked + unjudged, np.int64)


def vote(
  passed: np.ndarray, judged: np.ndarray, at_least: float = 0.5
) -> np.ndarray:
  """Which tests enough programs pass, bool [tests].

  `at_least` is a share of the programs with a verdict, in (0, 1]; without any,
  all are False.
  """
  _check(passed, judged)
  if not 0 < at_least <= 1:
    raise ValueError(f'at_least={at_least}: expected a share in (0, 1]')
  votes = passed[judged].sum(axis=0)
  return votes / max(judged.sum(), 1) >= at_least


def _check(passed: np.ndarray, judged: np.ndarray) -> None:
  if passed.dtype != bool or judged.dtype != bool:
    raise TypeError(
      f'passed is {passed.dtype} and judged is {judged.dtype}; expected bool'
    )
  if passed.ndim != 2 or judged.shape != passed.shape[:1]:
    raise ValueError(
      f'passed has shape {passed.shape} and judged {judged.shape}; expected '
      '[programs, tests] and [programs]'
    )
