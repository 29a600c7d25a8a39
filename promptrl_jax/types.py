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

A task is a statement and a checker, which decides how good a reply to the
statement is. The types keep hidden checks hidden: a `Task` holds everything and
stays with the evaluator; a strategy or environment is handed a `Problem`, whose
checker holds the visible part alone.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class UnitTests:
  """A checker of programs: assertions that have to hold.

  Attributes:
    entry_point: name of the function that the tests call.
    signature: how the program begins: `def f(a, b):`, perhaps below imports and
      functions that it may call.
    tests: assertions, each one or more statements that end in an `assert`.
    setup: statements that run after the program and before the tests.
    extra: how many of the last tests try further inputs of an extended data set
      (MBPP+, HumanEval+); the others are its base tests.
  """

  entry_point: str
  signature: str
  tests: tuple[str, ...]
  setup: str = ''
  extra: int = 0


@dataclasses.dataclass(frozen=True)
class Answers:
  """A checker of replies in words: a metric on the right answers.

  Attributes:
    outputs: the right answers, any of which will do.
    metric: one of `rewards.text.METRICS` that reads texts.
    labels: all labels of a classification task, sorted; otherwise empty.
  """

  outputs: tuple[str, ...]
  metric: str = 'em'
  labels: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Example:
  """An input and the outputs that are right for it.

  Attributes:
    input: the text that an instruction is applied to; may be empty.
    outputs: at least one right answer.
  """

  input: str
  outputs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Examples:
  """A checker of instructions: the mean of a metric over many inputs.

  The reply to an instruction is one answer for each example.

  Attributes:
    template: the prompt, with `{instruction}` and `{input}` in it.
    examples: the inputs and their right outputs.
    metric, labels: as in `Answers`, the same for all examples.
  """

  template: str
  examples: tuple[Example, ...]
  metric: str = 'em'
  labels: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ProgramExamples:
  """A checker of instructions: the share of programming tasks that are solved.

  The reply to an instruction is one program for each task.

  Attributes:
    examples: the tasks, each checked by `UnitTests`.
  """

  examples: tuple[Task, ...]


Checker = UnitTests | Answers | Examples | ProgramExamples


class _UnitTestFields:
  """Read access to the fields of a `UnitTests` checker."""

  @property
  def entry_point(self) -> str:
    return self._unit_tests().entry_point

  @property
  def signature(self) -> str:
    return self._unit_tests().signature

  @property
  def setup(self) -> str:
    return self._unit_tests().setup

  def _checker(self) -> Checker:
    raise NotImplementedError

  def _unit_tests(self) -> UnitTests:
    checker = self._checker()
    if not isinstance(checker, UnitTests):
      raise TypeError(
        f'task {vars(self)["task_id"]} is checked by {type(checker).__name__}, '
        'which has no program: expected a task with UnitTests'
      )
    return checker


@dataclasses.dataclass(frozen=True)
class Task(_UnitTestFields):
  """One task with everything that is known about it.

  The properties `entry_point`, `signature`, `tests` and `setup` read a
  `UnitTests` checker and raise TypeError for any other.

  Attributes:
    task_id: unique name inside its task set, e.g. `mbpp/11`. The parts of an
      instruction's examples share one name.
    statement: the text that is rewritten and replied to: the description of a
      program, a question, or an instruction.
    checker: how replies are judged.
    split: `train`, `validation`, `test`, `prompt` (MBPP few-shot) or `ood`.
    reference: a program that passes every test, if one is known.
    register: wording of the statement (minicode only), else empty.
    canonical: the canonical statement (minicode only), else empty.
    family: problem family (minicode only), else empty.
    feedback: what the visible tests said of a failed program, where the task is
      to be rewritten after a failure, else empty.
  """

  task_id: str
  statement: str
  checker: Checker
  split: str = ''
  reference: str = ''
  register: str = ''
  canonical: str = ''
  family: str = ''
  feedback: str = ''

  @property
  def tests(self) -> tuple[str, ...]:
    return self._unit_tests().tests

  def _checker(self) -> Checker:
    return self.checker


@dataclasses.dataclass(frozen=True)
class Problem(_UnitTestFields):
  """The part of a task that a strategy or an environment may know.

  The properties read `UnitTests` checkers and raise TypeError for any other.

  Attributes:
    task_id, statement: as in `Task`.
    visible: the part of the checker that may be read, shown to a model, and
      run; it has no tests, answers or examples where none are visible.
    reward: the hidden part of the checker of a *training* task, which may be
      used for reward and never shown; None outside the training split.
    split: as in `Task`.
  """

  task_id: str
  statement: str
  visible: Checker
  reward: Checker | None = None
  split: str = ''

  @property
  def visible_tests(self) -> tuple[str, ...]:
    return self._unit_tests().tests

  @property
  def reward_tests(self) -> tuple[str, ...]:
    return self.reward.tests if isinstance(self.reward, UnitTests) else ()

  def _checker(self) -> Checker:
    return self.visible
