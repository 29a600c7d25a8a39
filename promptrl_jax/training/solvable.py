"""Training problems that can be solved, chosen once and kept in a file."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from promptrl_jax.envs.rewriting.interface import Identified
from promptrl_jax.files import write_atomically

_NAME = 'solvable.json'
_ProblemT = TypeVar('_ProblemT', bound=Identified)


def keep(
  folder: pathlib.Path,
  problems: Sequence[_ProblemT],
  choose: Callable[[], tuple[Sequence[_ProblemT], int]],
) -> tuple[list[_ProblemT], int]:
  """The problems that were chosen, and the calls that this cost.

  Args:
    folder: of the run. What its `solvable.json` says is not chosen again.
    problems: of the training split.
    choose: gives some of them, and the calls made.
  """
  path = folder / _NAME
  if not path.exists():
    kept, cost = choose()
    chosen = {'calls': cost, 'problems': [each.task_id for each in kept]}
    write_atomically(path, f'{json.dumps(chosen, indent=1)}\n'.encode())
  ids = set(json.loads(path.read_text())['problems'])
  return [each for each in problems if each.task_id in ids], calls(folder)


def calls(folder: pathlib.Path) -> int:
  """What the choice of a run cost; 0 if it trained on all problems."""
  path = folder / _NAME
  return json.loads(path.read_text())['calls'] if path.exists() else 0
