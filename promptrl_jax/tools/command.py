"""What a person sees of a command: an error is one line. No flags here."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from absl import logging

from promptrl_jax.evaluation import protocol
from promptrl_jax.execution import TooWeakError
from promptrl_jax.llm.backend import BackendError

# What bad settings, bad data or a dead endpoint raise.
USER_ERRORS: tuple[type[Exception], ...] = (
  ValueError,
  OSError,
  ImportError,
  BackendError,
  protocol.SystemFailure,
  TooWeakError,
)


@contextlib.contextmanager
def in_one_line(
  interrupted: str = (
    'interrupted: the same command goes on from the last checkpoint'
  ),
  errors: tuple[type[Exception], ...] = USER_ERRORS,
) -> Iterator[None]:
  """Ends the process with one line instead of a traceback.

  Args:
    interrupted: what Ctrl-C leaves behind.
    errors: that a person can mend; others pass through.
  """
  try:
    yield
  except KeyboardInterrupt:
    sys.exit(interrupted)
  except errors as error:
    logging.debug('raised here', exc_info=True)
    sys.exit(f'error: {error} (--verbosity=1 shows where)')


def log_warnings_alone() -> None:
  """Unless --verbosity says something else.

  Orbax logs to absl, too, and warns of each read-only checkpoint.
  """
  if logging.get_verbosity() == logging.INFO:  # the default
    logging.set_verbosity(logging.WARNING)
    logging.get_absl_logger().setLevel('ERROR')
