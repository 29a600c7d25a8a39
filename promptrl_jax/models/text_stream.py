"""Text of a completion while it is being written."""

from __future__ import annotations

from collections.abc import Sequence

from promptrl_jax.models.tokenizer import Tokenizer

_REPLACEMENT = '\N{REPLACEMENT CHARACTER}'  # What half a character decodes to.


class TextStream:
  """Token ids in, text out that will not change any more.

  Characters may be made of several tokens, and a stop string may begin in one
  token and end in another: text is held back until neither can be the case.
  The pieces make up what `decode_after` gives for all ids, cut at the first
  stop string. (Bytes that are no UTF-8 may be shown as another number of
  replacement characters.)

  Attributes:
    stopped: whether a stop string was found; what follows it is dropped.
  """

  def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()):
    """Begins a completion; `stop`: strings that end it, not part of it."""
    if '' in stop:
      raise ValueError(f'stop={tuple(stop)!r}: an empty string ends every text')
    self.stopped = False
    self._tokenizer = tokenizer
    self._stop = tuple(stop)
    self._ids: list[int] = []  # that end within a character
    self._held = ''  # that may be the beginning of a stop string

  def feed(self, ids: Sequence[int]) -> str:
    """Text that becomes final with the next `ids`; may be empty."""
    self._ids += ids
    text = self._tokenizer.decode_after([self._ids])[0]
    if text.endswith(_REPLACEMENT):
      return ''
    self._ids = []
    self._held += text
    return self._release(self._first_prefix())

  def close(self) -> str:
    """The rest, when no ids follow."""
    self._held += self._tokenizer.decode_after([self._ids])[0]
    self._ids = []
    return self._release(len(self._held))

  def _first_prefix(self) -> int:
    """The first place where an unfinished stop string may begin."""
    held = self._held
    longest = max(map(len, self._stop), default=0)
    for i in range(max(0, len(held) - longest + 1), len(held)):
      rest = held[i:]
      if any(s != rest and s.startswith(rest) for s in self._stop):
        return i
    return len(held)

  def _release(self, limit: int) -> str:
    """Cuts at a stop string that begins before `limit`, else at `limit`."""
    if self.stopped:
      self._held = ''
      return ''
    found = [i for s in self._stop if (i := self._held.find(s)) >= 0]
    place = min(found, default=limit)
    self.stopped = bool(found) and place <= limit
    place = min(place, limit)
    text, self._held = self._held[:place], self._held[place:]
    return text
