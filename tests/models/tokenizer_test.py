"""Text to ids and back."""

import hypothesis
import pytest
from hypothesis import strategies as st

from promptrl_jax.models import tokenizer as tokenizer_lib
from promptrl_jax.testing import tiny

TOKENIZER = tiny.tokenizer()


@hypothesis.given(st.text(max_size=60))
def test_any_text_survives(text):
  assert TOKENIZER.decode(TOKENIZER.encode([text])) == [text]


def test_each_digit_is_a_token_of_its_own():
  (ids,) = TOKENIZER.encode(['2048'])
  assert [TOKENIZER.backend.id_to_token(i) for i in ids] == list('2048')


def test_left_padding():
  tokens, mask = TOKENIZER.pad_left([[5, 6], [], [7]], 3)
  assert tokens.tolist() == [[0, 5, 6], [0, 0, 0], [0, 0, 7]]
  assert mask.tolist() == [
    [False, True, True],
    [False] * 3,
    [False, False, True],
  ]


def test_a_row_that_is_too_long_is_refused():
  with pytest.raises(ValueError, match='more than 1'):
    TOKENIZER.pad_left([[5, 6]], 1)


def test_a_missing_file_is_named(tmp_path):
  with pytest.raises(FileNotFoundError, match='nothing.json'):
    tokenizer_lib.load(tmp_path / 'nothing.json')
