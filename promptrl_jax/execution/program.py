"""Programs to judge by their tests, and the verdicts on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from promptrl_jax.execution import fields
from promptrl_jax.execution.limits import Limits


@dataclasses.dataclass(frozen=True)
class Program:
  """One program to run against its tests.

  Fields may hold anything, because jobs come from files and from models. A
  field of the wrong type is replaced by an empty value, `malformed` says so,
  and the verdict is `refused`, as it is for a program without tests.

  Attributes:
    code: the untrusted program, any text.
    tests: trusted test code; each test is one or more statements with an
      `assert`. Any sequence of strings, stored as a tuple.
    setup: trusted statements that run after the program and before the tests,
      in the program's process. The program can read them, so expected values
      belong in `tests`.
    entry_point: name of the function under test. Needed only if a test also
      uses a builtin of the same name, or passes the function as an argument
      (`check(f)`).
    limits: replaces the limits of the pool.
    isolate_tests: run each test in a separate confined process, which calls
      the program through the judge; for tests that were written by a model.
      Needs `entry_point`. Trusted tests that the judge cannot split (they
      define a class, use `except` or a module that the judge does not offer)
      always run this way if there is an `entry_point`.
    malformed: the first thing that is wrong with the fields, '' if nothing is.
  """

  code: str
  tests: Sequence[str]
  setup: str = ''
  entry_point: str | None = None
  limits: Limits | None = None
  isolate_tests: bool = False
  malformed: str = dataclasses.field(default='', init=False)

  def __post_init__(self):
    fields.check(self, 'test')


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
      `invalid`  no verdict is possible: the program returned something that
                 is not plain data, or the assertion cannot be judged;
      `not_run`  never started.
    error_type: name of the exception's class, with `error` and `memory`.
    message: call, actual and expected value, or the reason for the status. At
      most 200 characters; untrusted, because it may quote the program.
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
      `refused`       the job is malformed or has no tests; `message` says what
                      was expected;
      `infra_error`   the pool failed twice: says nothing about the program.
    score: share of the tests that passed, in [0, 1]; None with `refused` and
      `infra_error`, which must not be counted as a zero.
    tests: one result per test, in order; none if `tests` was malformed.
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
