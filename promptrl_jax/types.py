"""The structs that cross rooms, and the axis letters that shapes use.

Axis letters, one meaning each, used in every docstring and einsum of the
project. Combinations are written out: `[T * E, O]`, `[R, J * C]`.

  batch         B  prompts of a batch, or batch slots of the decoding engine
                G  samples per prompt
                N  completions, B * G
  text          P  prompt tokens             C  completion tokens
                S  tokens of a text, P + C   V  vocabulary
  packed rows   R  rows                      J  lanes of C tokens in a row
                I  completions in a row, at most
  model         L  layers                    D  model width
                F  MLP width                 H  head size
                K  key-value heads           U  query heads per key-value head
                Q  query heads, K * U        r  LoRA rank
  cache         M  cache length, X * W       X  blocks of the cache
                W  cache places per block
  beam search   Z  beams per prompt
  environment   E  environments that run at once, one episode each
                T  steps of a rollout        A  actions
                O  observation features

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
