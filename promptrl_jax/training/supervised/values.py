"""Other values in the same words, so that copying is learned and not values.

A small model that has learned from a few thousand rewrites knows their words,
and writes numbers that it has seen instead of the one that it was given. Where
request and reply share a value, any other one makes as good an example; where
the reply lost one, what it says may be right once the value is put back.
"""

from __future__ import annotations

import collections
import itertools
import random
import string
from collections.abc import Iterable, Iterator, Mapping

from promptrl_jax.rewards.values import VALUE
from promptrl_jax.training.supervised.chat import Chat

_LEAST_RANGE = 20
_MARKS = string.punctuation.replace('"', '')
_MOST_ORDERS = 6  # tried to put the values of one statement back


def exchange_values(chat: Chat, rng: random.Random) -> Chat:
  """Returns the chat with other values for those that both sides share.

  A value is exchanged wherever it occurs, the feedback included; numbers for
  numbers up to twice as large, quoted texts for letters where they have
  letters, and for punctuation where they have that.
  Where the two sides share none, the chat comes back as it is.
  """
  request = {v for _, text in chat.messages for v in VALUE.findall(text)}
  shared = [v for v in dict.fromkeys(VALUE.findall(chat.reply)) if v in request]
  drawn: dict[str, str] = {}
  for value in shared:
    # Two values that differ stay different.
    taken = request.difference(shared).union(drawn.values())
    drawn[value] = _draw(value, taken, rng)

  def exchange(text: str) -> str:
    return VALUE.sub(lambda found: drawn.get(found[0], found[0]), text)

  messages = tuple((role, exchange(text)) for role, text in chat.messages)
  return Chat(messages, exchange(chat.reply))


def _draw(value: str, taken: set[str], rng: random.Random) -> str:
  """Draws a value of the same kind that is not taken; else the same one."""
  for _ in range(_LEAST_RANGE):
    if _is_text(value):
      new = f'"{"".join(rng.choice(_like(c)) for c in value[1:-1])}"'
    else:
      new = str(rng.randint(0, max(2 * int(value), _LEAST_RANGE)))
    if new not in taken:
      return new
  return value


def _like(character: str) -> str:
  """The characters that may stand for this one."""
  if character.isalpha():
    return string.ascii_lowercase
  return _MARKS if character in _MARKS else character


def by_values(chats: Iterable[Chat]) -> list[list[Chat]]:
  """Groups chats by the values of their replies: texts, numbers or none.

  Where one kind is seldom, a model that draws from each group as often learns
  to copy it as well as the others. Groups without a chat are left out.
  """
  groups: dict[str, list[Chat]] = {'text': [], 'number': [], 'none': []}
  for chat in chats:
    values = VALUE.findall(chat.reply)
    if any(map(_is_text, values)):
      kind = 'text'
    else:
      kind = 'number' if values else 'none'
    groups[kind].append(chat)
  return [group for group in groups.values() if group]


def restored(before: str, after: str) -> Iterator[str]:
  """Yields a rewrite with the values back that it lost, in each possible order.

  A value is put in the place of one that the statement does not have, a number
  in that of a number. A rewrite that lost none is yielded as it is; one without
  enough places is not.
  """
  missing = collections.Counter(VALUE.findall(before))
  places = []
  for found in VALUE.finditer(after):
    if missing[found[0]]:
      missing[found[0]] -= 1
    else:
      places.append(found)
  lost = list(missing.elements())
  orders = itertools.permutations(places, len(lost))
  for order in itertools.islice(orders, _MOST_ORDERS):
    pairs = list(zip(order, lost, strict=True))
    if all(_is_text(place[0]) == _is_text(value) for place, value in pairs):
      yield _put({place.start(): value for place, value in pairs}, after)


def _put(values: Mapping[int, str], text: str) -> str:
  """The text with other values, by where they start."""
  return VALUE.sub(lambda found: values.get(found.start(), found[0]), text)


def _is_text(value: str) -> bool:
  return value.startswith('"')
