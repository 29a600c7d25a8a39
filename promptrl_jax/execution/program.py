"""What goes into the execution pool and what comes out of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from promptrl_jax.execution import fields
from promptrl_jax.execution.limits import Limits


@dataclasses.dataclass(frozen=True)
class Program:
  """One program to run against its tests.

  Anything can be made into one, as jobs come from files and from models. Where
  a field is not what it should be, `malformed` says so, the field is replaced
  by an empty one, and the verdict is `refused`. So every program can be hashed
  and sent.

  Attributes:
    code: the untrusted program, any text.
    tests: trusted test code; each one or more statements with an `assert`. A
      sequence of strings, kept as a tuple.
    setup: trusted statements that run after the program and before the tests,
      in the program's process: what they hold is known to the program, so
      expected values belong into `tests`.
    entry_point: the function under test. Needed only when it bears the name of
      a builtin that a test also uses for itself, or when a test passes the
      function on (`check(f)`).
    limits: replaces the limits of the pool.
    isolate_tests: run each test in a confined process of its own, which calls
      the program through the judge; for tests that were written by a model.
      Needs `entry_point`. Trusted tests that the judge cannot split (a class,
      an `except`, a module that it does not offer) are run so in any case, if
      there is an `entry_point`.
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
    faults: list[str] = []
    checked = {
      'code': fields.text('code', self.code, faults),
      'tests': fields.encodables('tests', 'test', self.tests, faults),
      'setup': fields.encodable('setup', self.setup, faults),
      'entry_point': fields.entry_point(self.entry_point, faults),
      'limits': fields.limits(self.limits, faults),
    }
    checked['malformed'] = faults[0] if faults else ''
    for name, value in checked.items():
      object.__setattr__(self, name, value)


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
      `refused`       the job is malformed or has no tests; `message` says what
                      was expected;
      `infra_error`   our failure, twice: says nothing about the program.
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
