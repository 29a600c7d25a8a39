"""What can be wrong with feedback or with the file that keeps it.

Every message is one line for a person. Whatever raises one of these has stored
nothing of what it was given, and lost nothing of what was there.
"""

from __future__ import annotations


class FeedbackError(ValueError):
  """An event, a response or a store cannot be accepted."""


class MalformedFeedback(FeedbackError):
  """A field is missing, unknown, of another type, or contradicts another."""


class OutOfScale(FeedbackError):
  """A value is not on the scale that it names, or there is no such scale."""


class UnknownResponse(FeedbackError):
  """An event is about a response that the store does not hold."""


class UnknownEvent(FeedbackError):
  """An event takes back another one that the store does not hold."""


class IdTaken(FeedbackError):
  """An id was used before, for other content."""


class StoreError(FeedbackError):
  """The store cannot be opened, read or written."""


class NotAStore(StoreError):
  """The file holds something else."""


class NewerSchema(StoreError):
  """The file was written by a newer version of this package."""


class DamagedStore(StoreError):
  """The file was a store, and is truncated or damaged."""


class StoreBusy(StoreError):
  """Other processes kept the file locked for longer than is waited."""


class StoreClosed(StoreError):
  """The store was closed, or belongs to the process that this one forked."""
