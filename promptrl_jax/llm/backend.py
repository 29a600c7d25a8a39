"""The protocol of language models: requests in, completions out.

One call carries a whole batch, so that a backend can run the requests together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable


class BackendError(RuntimeError):
  """A failure of the system, which is never scored as the model's failure."""


@dataclasses.dataclass(frozen=True)
class Message:
  """One turn of a conversation."""

  role: str
  content: str


@dataclasses.dataclass(frozen=True)
class Request:
  """A request for one completion; hashable, compared by content.

  Attributes:
    temperature: sampling temperature; 0 decodes greedily and ignores the seed.
    top_p: probability mass of nucleus sampling, in (0, 1].
    seed: seed of the sample; n samples of one prompt need n seeds.
    stop: strings that end the completion and are not part of its text.
    scope: a cache answers it only with what was asked in the same scope: the
      split of the problem, so that what was chosen on one split is asked anew
      on another. The model does not see it.
  """

  messages: tuple[Message, ...]
  temperature: float = 0.0
  top_p: float = 1.0
  seed: int = 0
  max_tokens: int = 128
  stop: tuple[str, ...] = ()
  scope: str = ''

  @property
  def is_text(self) -> bool:
    """Whether a text is continued as it stands, not a conversation."""
    return [message.role for message in self.messages] == ['text']

  def to_fields(self) -> dict[str, Any]:
    """JSON data, as `dataclasses.asdict` gives, in a tenth of its time."""
    messages = tuple(dict(vars(message)) for message in self.messages)
    return {**vars(self), 'messages': messages}


@dataclasses.dataclass(frozen=True)
class Confidence:
  """How sure a model was of a completion, at temperature 1 without filters.

  All tokens of the completion count, not those of the program alone, so that
  words and fences around it do under the template `chat`. A backend does not
  know which function is looked for in a reply, and a cache keeps these three
  numbers, not one for each token.

  Attributes:
    mean_logp: mean log-prob of its tokens, in nats.
    least_logp: that of its least probable token.
    entropy: mean entropy, in nats, of the distributions of its tokens.
  """

  mean_logp: float
  least_logp: float
  entropy: float


@dataclasses.dataclass(frozen=True)
class Completion:
  """A completion and its token counts.

  Attributes:
    finish_reason: `stop`, or `length` if `max_tokens` cut the text.
    confidence: None where the backend does not measure it.
  """

  text: str
  prompt_tokens: int
  completion_tokens: int
  finish_reason: str
  confidence: Confidence | None = None

  def to_fields(self) -> dict[str, Any]:
    """JSON data for `from_fields`; without a confidence if there is none."""
    fields = dict(vars(self))
    del fields['confidence']
    if self.confidence is not None:
      fields['confidence'] = dict(vars(self.confidence))
    return fields

  @classmethod
  def from_fields(cls, fields: Mapping[str, Any]) -> Completion:
    """Reads what `to_fields` wrote.

    Raises:
      TypeError: a field is missing or unknown.
    """
    fields = dict(fields)
    confidence = fields.pop('confidence', None)
    if confidence is not None:
      confidence = Confidence(**confidence)
    return cls(**fields, confidence=confidence)


class Backend(Protocol):
  """A language model."""

  @property
  def name(self) -> str:
    """Name of the model in reports and cache keys."""
    ...

  def complete(self, requests: Sequence[Request]) -> list[Completion]:
    """Returns the completions of a batch in order, or raises a BackendError."""
    ...

  def fits(self, request: Request) -> bool:
    """Returns whether prompt and `max_tokens` fit the context window."""
    ...

  def count_tokens(self, text: str) -> int:
    """Returns the number of tokens of a text."""
    ...

  def close(self) -> None:
    """Frees the resources of the backend; calling it again has no effect."""
    ...


@runtime_checkable
class Incremental(Protocol):
  """A backend that hands out completions before a batch is done, or fails."""

  def complete_each(
    self, requests: Sequence[Request]
  ) -> Iterator[tuple[int, Completion]]:
    """Yields (index, completion) pairs as they come in; may end in an error."""
    ...
