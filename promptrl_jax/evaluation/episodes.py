"""Problems as a strategy played them: prompts, programs and verdicts."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from promptrl_jax.execution import TestResult

_OUTCOMES = (
  'solved by the first program',
  'solved by a later program',
  'wrong: passes what is visible, fails a hidden test',
  'not solved: no program passes what is visible',
)
Episode = Sequence[Mapping[str, Any]]  # rows of a trace, one per step


def outcome(episode: Episode, is_solved: bool) -> str:
  """How an episode ended, in words."""
  programs = [row for row in episode if row.get('code') is not None] or episode
  if is_solved:
    return _OUTCOMES[int(len(programs) > 1)]
  return _OUTCOMES[2 if any(row['visible_passed'] for row in programs) else 3]


def chosen(episode: Episode) -> str | None:
  """The program that a strategy says it chose among those that it had.

  None if it does not say, or chose none. A member of a portfolio has a say in
  its own programs alone.
  """
  rows = [
    row['submission']
    for row in episode
    if 'submission' in row and 'member' not in row
  ]
  return rows[-1] or None if rows else None


def choose(outcomes: Sequence[str], count: int) -> list[int]:
  """Takes episodes of each outcome in turn; returns their places, sorted."""
  groups = [
    [i for i, name in enumerate(outcomes) if name == wanted]
    for wanted in _OUTCOMES
  ]
  in_turn = itertools.chain(*itertools.zip_longest(*groups))
  found = (i for i in in_turn if i is not None)
  return sorted(itertools.islice(found, count))


def to_markdown(
  episode: Episode,
  verdict: str,
  hidden: Iterable[tuple[str, TestResult]] = (),
) -> str:
  """One episode: the prompt and the program of each step, and its verdict.

  `hidden` are the hidden tests of the problem, as its last program did.
  """
  lines = [f'## {episode[0]["task_id"]}: {verdict}']
  for row in episode:
    lines.append(f'\n**{row["step"] + 1}. `{row["action"]}`** ')
    for sent in row['sent']:
      text = '\n'.join(message['content'] for message in sent['messages'])
      lines += [f'asks the {sent["role"]}:\n', _fenced(text)]
    if row['code'] is not None:
      lines += ['\nIts program:\n', _fenced(row['code'])]
      lines.append(f'\nThe visible tests: {row["status"]} {row["error_type"]}')
  ended = [
    f'{test}  # {result.status} {result.error_type}'.rstrip()
    + (f': {" ".join(result.message.split())}' if result.message else '')
    for test, result in hidden
  ]
  if ended:
    lines += ['\nThe hidden tests:\n', _fenced('\n'.join(ended))]
  return '\n'.join(line.rstrip() for line in lines) + '\n'


def _fenced(text: str) -> str:
  return f'````python\n{text}\n````'


def read(
  rows: Iterable[Mapping[str, Any]], strategy: str, budget: int
) -> dict[str, list[Mapping[str, Any]]]:
  """The steps of each problem in the first run, by the problem's name.

  The parity table, which comes after the others, is left out.

  Raises:
    ValueError: the trace has no such episode.
  """
  runs = collections.defaultdict(lambda: collections.defaultdict(list))
  played, protocol = set(), ''
  for row in rows:
    protocol = protocol or row['protocol']
    if row['protocol'] != protocol:
      continue
    played.add((row['strategy'], row['budget']))
    if (row['strategy'], row['budget']) == (strategy, budget):
      runs[row['seed']][row['task_id']].append(row)
  if not runs:
    names, budgets = (
      sorted(set(column)) for column in zip(*played, strict=True)
    )
    raise ValueError(
      f'nothing was played by {strategy} at a budget of {budget}; this run has '
      f'{names} at {budgets}'
    )
  return runs[min(runs)]
