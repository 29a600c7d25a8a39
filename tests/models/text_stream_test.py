"""Streamed pieces of text add up to the text decoded at once."""

import hypothesis
import pytest
from hypothesis import strategies as st

from promptrl_jax.models.text_stream import TextStream
from promptrl_jax.testing import tiny

TOKENIZER = tiny.tokenizer()


def stream(ids, cuts, stop=()):
  """Pieces of a text whose ids come in runs that end at `cuts`."""
  out = TextStream(TOKENIZER, stop)
  edges = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
  pieces = [
    out.feed(ids[a:b]) for a, b in zip(edges[:-1], edges[1:], strict=True)
  ]
  return [*pieces, out.close()], out.stopped


def cut(text, stop):
  places = [text.find(s) for s in stop if s in text]
  return text[: min(places)] if places else text


@hypothesis.given(
  st.text(alphabet='abé你🙂 \n', max_size=30),
  st.lists(st.integers(0, 60), max_size=30),
  st.lists(st.text(alphabet='abé你\n', min_size=1, max_size=4), max_size=3),
)
def test_pieces_make_up_the_text_up_to_the_first_stop(text, cuts, stop):
  (ids,) = TOKENIZER.encode([text])
  pieces, stopped = stream(ids, cuts, stop)
  assert ''.join(pieces) == cut(text, stop)
  assert stopped == any(s in text for s in stop)


@hypothesis.given(
  st.lists(st.integers(3, TOKENIZER.vocab_size - 1), max_size=40),
  st.lists(st.integers(0, 40), max_size=20),
)
def test_any_ids_give_what_decoding_at_once_gives(ids, cuts):
  pieces, _ = stream(ids, cuts)
  assert ''.join(pieces) == TOKENIZER.decode([ids])[0]


def test_half_a_character_is_held_back():
  (ids,) = TOKENIZER.encode(['🙂'])
  assert len(ids) == 4
  out = TextStream(TOKENIZER)
  assert [out.feed([i]) for i in ids] == ['', '', '', '🙂']


def test_what_may_begin_a_stop_string_is_held_back_until_it_does_not():
  out = TextStream(TOKENIZER, ('\n###',))
  feed = lambda text: out.feed(TOKENIZER.encode([text])[0])
  assert [feed(t) for t in ('a\n', '#', 'b', '\n##', '#c', 'd')] == [
    'a',
    '',
    '\n#b',
    '',
    '',
    '',
  ]
  assert out.stopped
  assert out.close() == ''


def test_an_empty_stop_string_is_refused():
  with pytest.raises(ValueError, match='an empty string ends every text'):
    TextStream(TOKENIZER, ('',))
