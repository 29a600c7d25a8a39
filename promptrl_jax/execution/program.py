"""What goes into the execution pool and what comes out of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from promptrl_jax.execution.limits import Limits


@dataclasses.dataclass(frozen=True)
class Program:
  """One program to run against its tests.

  Attributes:
    code: the untrusted program.
    tests: trusted test code; each one or more statements with an `assert`. A
      sequence of strings, kept as a tuple.
    setup: trusted statements that run after the program and before the tests,
      in the program's process: what they hold is known to the program, so
      expected values belong into `tests`.
    entry_point: the function under test. Needed only when it bears the name of
      a builtin that a test also uses for itself, or when a test passes the
      function on (`check(f)`).
    limits: replaces the limits of the pool.
  """

  code: str
  tests: Sequence[str]
  setup: str = ''
  entry_point: str | None = None
  limits: Limits | None = None

  def __post_init__(self):
    if isinstance(self.tests, str):
      raise TypeError(f'tests is one string, {self.tests!r}; give a tuple')
    object.__setattr__(self, 'tests', tuple(self.tests))
    for name, text in (
      ('code', self.code),
      ('setup', self.setup),
      *(('each test', test) for test in self.tests),
    ):
      if not isinstance(text, str):
        raise TypeError(f'{name} must be a str, got {type(text).__name__}')


@dataclasses.dataclass(frozen=True)
class TestResult:
  """How one test ended.

  Attributes:
    status: one of
      `passed`   the assertion holds for the values that the program returned;
      `failed`   it does not hold;
      `error`    the program or the assertion raised an exception;
      `timeout`  the time limit was reached, or the program sat idle;
      `memory`   the memory limit was reached;
      `crash`    the program's process ended or broke the protocol;
      `invalid`  nothing to judge by: the program returned something that is
                 not plain data, or the assertion cannot be judged;
      `not_run`  never started.
    error_type: name of the exception's class, with `error` and `memory`.
    message: call, actual and expected value, or what went wrong. At most 200
      characters, and untrusted text where the program had a say in it.
  """

  __test__ = False  # Not a test class, whatever its name tells pytest.

  status: str
  error_type: str = ''
  message: str = ''


@dataclasses.dataclass(frozen=True)
class ProgramResult:
  """How one program did.

  Attributes:
    status: `passed` if there is at least one test and all passed, otherwise the
      first other status in test order; or
      `syntax_error`  the program does not compile (tests: `error`);
      `no_code`       the program is blank (tests: `not_run`);
      `refused`       there are no tests;
      `infra_error`   our failure, twice: says nothing about the program.
    score: share of the tests that passed, in [0, 1]; None with `refused` and
      `infra_error`, which must not be counted as a zero.
    tests: one result per test, in order.
    cpu_s: processor seconds of the program's processes.
    wall_s: seconds from start to verdict.
    message: the reason, where it concerns the program as a whole.
  """

  status: str
  score: float | None
  tests: tuple[TestResult, ...]
  cpu_s: float = 0.0
  wall_s: float = 0.0
  message: str = ''

  @property
  def passed(self) -> bool:
    return self.status == 'passed'
