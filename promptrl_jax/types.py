"""The structs that cross rooms, and the axis letters that shapes use.

Axis letters, used in every docstring and einsum of the project:

  B prompts            G samples per prompt   P prompt length     N new tokens
  T = P + N            S cache length         L layers            D model width
  H head size          Q query heads          K key-value heads   F mlp width
  V vocabulary

What a solver may see is enforced by these types: a `Task` holds everything and
stays with the evaluator; a strategy or environment is handed a `Problem`, which
has no field that could hold a hidden test.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Task:
  """One programming task with everything that is known about it.

  Attributes:
    task_id: unique name inside its data set, e.g. `mbpp/11`.
    statement: what the program should do, in words.
    entry_point: name of the function that the tests call.
    signature: the first line of the program, `def f(a, b):`.
    tests: assertions, each one or more statements that end in an `assert`.
    setup: statements that run after the program and before the tests.
    reference: a program that passes every test.
    split: `train`, `validation`, `test`, `prompt` (MBPP few-shot) or `ood`.
    register: wording of the statement (minicode only), else empty.
    canonical: the canonical statement (minicode only), else empty.
    family: problem family (minicode only), else empty.
  """

  task_id: str
  statement: str
  entry_point: str
  signature: str
  tests: tuple[str, ...]
  setup: str = ''
  reference: str = ''
  split: str = ''
  register: str = ''
  canonical: str = ''
  family: str = ''


@dataclasses.dataclass(frozen=True)
class Problem:
  """What a strategy or an environment may know of a task.

  Attributes:
    task_id, statement, entry_point, signature, setup: as in `Task`.
    visible_tests: assertions that may be read, shown to a model, and run.
    reward_tests: assertions of a *training* task that may be run for reward and
      never shown; always empty outside the training split.
  """

  task_id: str
  statement: str
  entry_point: str
  signature: str
  visible_tests: tuple[str, ...]
  setup: str = ''
  reward_tests: tuple[str, ...] = ()
