"""Prints expected errors as one line instead of a traceback.

The module defines no flags, so that any command can import it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from absl import app, logging

from promptrl_jax.execution import SystemFailure, TooWeakError
from promptrl_jax.llm.backend import BackendError

# Errors of bad settings, bad data or an unreachable endpoint.
USER_ERRORS: tuple[type[Exception], ...] = (
  ValueError,
  OSError,
  ImportError,
  BackendError,
  SystemFailure,
  TooWeakError,
)


@contextlib.contextmanager
def in_one_line(
  interrupted: str = (
    'interrupted: the same command goes on from the last checkpoint'
  ),
  errors: tuple[type[Exception], ...] = USER_ERRORS,
) -> Iterator[None]:
  """Ends the process with one line and status 1 if an expected error is raised.

  Args:
    interrupted: message that is printed after Ctrl-C.
    errors: expected errors; all others keep their traceback.
  """
  try:
    yield
  except KeyboardInterrupt:
    sys.exit(interrupted)
  except errors as error:
    logging.debug('raised here', exc_info=True)
    sys.exit(f'error: {error} (--verbosity=1 shows where)')


def without_arguments(run: Callable[[], None]) -> Callable[[list[str]], None]:
  """Returns the `main` of a command that takes flags and no arguments."""

  def main(argv: list[str]) -> None:
    if len(argv) > 1:
      raise app.UsageError(f'unknown arguments: {argv[1:]}')
    with in_one_line(interrupted='interrupted'):
      run()

  return main


def log_warnings_alone() -> None:
  """Hides messages below WARNING unless --verbosity is set.

  Orbax logs to absl, too, and warns about each read-only checkpoint, so absl's
  own logger prints errors only.
  """
  if logging.get_verbosity() == logging.INFO:  # the default
    logging.set_verbosity(logging.WARNING)
    logging.get_absl_logger().setLevel('ERROR')
