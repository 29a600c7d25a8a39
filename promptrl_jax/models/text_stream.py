"""Streams the text of a completion while the model generates it."""

from __future__ import annotations

from collections.abc import Sequence

from promptrl_jax.models.tokenizer import Tokenizer

_REPLACEMENT = (
  '\N{REPLACEMENT CHARACTER}'  # Incomplete characters decode to this.
)


class TextStream:
  """Converts token ids to pieces of text that are final.

  A character or a stop string may span several tokens. The stream therefore
  holds text back until it cannot be part of an incomplete character or of an
  incomplete stop string. The concatenated pieces equal `decode_after` of all
  ids, cut at the first stop string; only for invalid UTF-8, the number of
  replacement characters may differ.

  Attributes:
    stopped: whether a stop string was found; later text is dropped.
  """

  def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()):
    """Starts a completion that ends before the first of the `stop` strings."""
    if '' in stop:
      raise ValueError(f'stop={tuple(stop)!r}: an empty string ends every text')
    self.stopped = False
    self._tokenizer = tokenizer
    self._stop = tuple(stop)
    self._ids: list[int] = []  # ids of an incomplete character
    self._held = ''  # text that may be the start of a stop string

  def feed(self, ids: Sequence[int]) -> str:
    """Adds `ids` and returns the text that became final; it may be empty."""
    self._ids += ids
    text = self._tokenizer.decode_after([self._ids])[0]
    if text.endswith(_REPLACEMENT):
      return ''
    self._ids = []
    self._held += text
    return self._release(self._first_prefix())

  def close(self) -> str:
    """Ends the completion and returns the rest of its text."""
    self._held += self._tokenizer.decode_after([self._ids])[0]
    self._ids = []
    return self._release(len(self._held))

  def _first_prefix(self) -> int:
    """Returns the first index where an incomplete stop string may start."""
    held = self._held
    longest = max(map(len, self._stop), default=0)
    for i in range(max(0, len(held) - longest + 1), len(held)):
      rest = held[i:]
      if any(s != rest and s.startswith(rest) for s in self._stop):
        return i
    return len(held)

  def _release(self, limit: int) -> str:
    """Releases text up to `limit`, or up to a stop string before `limit`."""
    if self.stopped:
      self._held = ''
      return ''
    starts = [i for s in self._stop if (i := self._held.find(s)) >= 0]
    end = min(starts, default=limit)
    self.stopped = bool(starts) and end <= limit
    end = min(end, limit)
    text, self._held = self._held[:end], self._held[end:]
    return text
