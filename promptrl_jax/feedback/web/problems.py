"""What is answered to a request that is refused: a status and one line.

`PROBLEMS` is the whole table for errors of the store. `Refused` is for what is
wrong with the request itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from promptrl_jax.feedback import errors

# Of a class and its subclasses, the first that fits.
PROBLEMS: tuple[tuple[type[errors.FeedbackError], int], ...] = (
  (errors.MalformedFeedback, 400),
  (errors.UnknownResponse, 404),
  (errors.UnknownEvent, 404),
  (errors.IdTaken, 409),
  (errors.OutOfScale, 422),
  (errors.StoreBusy, 503),
  (errors.StoreClosed, 503),
  (errors.StoreError, 500),
  (errors.FeedbackError, 400),
)
_BUSY_S = 1  # seconds after which a client may ask a busy store again


class Refused(Exception):
  """A request that is not served.

  Attributes:
    status: of HTTP.
    type: what is wrong, as one word.
    message: what is wrong and what was expected, in one line.
    headers: further ones of the answer.
  """

  def __init__(
    self,
    status: int,
    type: str,
    message: str,
    headers: Mapping[str, str] | None = None,
  ):
    super().__init__(message)
    self.status = status
    self.type = type
    self.message = message
    self.headers = dict(headers or {})

  @property
  def fields(self) -> dict[str, Any]:
    """The body of the answer, as JSON data."""
    return {'error': self.type, 'message': self.message}


def of_store(error: errors.FeedbackError) -> Refused:
  """Returns what is answered for an error of the store."""
  status = next(status for cls, status in PROBLEMS if isinstance(error, cls))
  headers = {'retry-after': str(_BUSY_S)} if status == 503 else None
  message = ' '.join(str(error).split())
  return Refused(status, type(error).__name__, message, headers)
