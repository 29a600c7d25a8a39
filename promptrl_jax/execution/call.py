"""Expressions to evaluate after a program, and the values they have."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from promptrl_jax.execution import fields
from promptrl_jax.execution.limits import Limits


@dataclasses.dataclass(frozen=True)
class Call:
  """A program, and the expressions whose values are wanted.

  The program, its setup and every expression are untrusted: all of them run in
  the program's process, and the expressions see what the program has defined or
  changed. So the value of `f(3)` is what a test of `f(3)` would be judged by,
  while the value of `f(3) == 9` is only what the program says about itself: ask
  for `f(3)` and compare outside.

  Fields of the wrong type are handled as those of a `Program` are.

  Attributes:
    code: the program, any text; may be blank.
    expressions: Python expressions, evaluated in order. They share one process,
      as tests do, so an earlier one can change what a later one sees. After a
      crash or a time-out the program is loaded again for the next expression.
    setup: statements that run after the program and before the expressions.
    entry_point: name that the program or its setup has to define; a builtin of
      that name does not count. Without it every expression has a `NameError`.
    limits, malformed: as of a `Program`.
  """

  code: str
  expressions: Sequence[str]
  setup: str = ''
  entry_point: str | None = None
  limits: Limits | None = None
  malformed: str = dataclasses.field(default='', init=False)

  def __post_init__(self):
    fields.check(self, 'expression')


@dataclasses.dataclass(frozen=True)
class ExpressionResult:
  """How the evaluation of one expression ended.

  Attributes:
    status: one of
      `ok`       there is a value;
      `error`    the program or the expression raised an exception, or the
                 expression does not compile;
      `invalid`  the value is not plain data (see `codec.encode`), or too large;
      `timeout`, `memory`, `crash`, `not_run`  as of a `TestResult`.
    value: with `ok`, the `repr` of the value as plain data: a subclass counts
      as its built-in base type, and an iterator or a view of a dict reads
      `an iterator over [...]`. At most 10,000 characters. None otherwise.
    value_is_cut, output_is_cut: whether there is only the beginning.
    output: text that was written to `sys.stdout` meanwhile, at most 10,000
      bytes; fewer where `Limits.answer_kb` is below 80. Empty if the process
      ended.
    error_type: name of the exception's class, with `error` and `memory`.
    message: text of the exception, or the reason for the status. At most 200
      characters, untrusted.
  """

  status: str
  value: str | None = None
  value_is_cut: bool = False
  output: str = ''
  output_is_cut: bool = False
  error_type: str = ''
  message: str = ''


@dataclasses.dataclass(frozen=True)
class CallResult:
  """How one call did.

  Attributes:
    status: `ok` if every expression has a value, otherwise the first other
      status in their order; or `syntax_error`, `refused` or `infra_error`, as
      of a `ProgramResult`.
    expressions: one result per expression, in order; none if `expressions` was
      malformed.
    output, output_is_cut: what loading (the program and its setup) wrote,
      bounded as the output of an expression is.
    cpu_s, wall_s, message: as of a `ProgramResult`.
  """

  status: str
  expressions: tuple[ExpressionResult, ...]
  output: str = ''
  output_is_cut: bool = False
  cpu_s: float = 0.0
  wall_s: float = 0.0
  message: str = ''

  @property
  def ok(self) -> bool:
    return self.status == 'ok'
