"""Our own tokenizer: text to ids and back."""

import hypothesis
import pytest
from hypothesis import strategies as st

from promptrl_jax.llm.load import ASSETS
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
  tokens, mask = tokenizer_lib.pad_left([[5, 6], [], [7]], 3, 0)
  assert tokens.tolist() == [[0, 5, 6], [0, 0, 0], [0, 0, 7]]
  assert mask.tolist() == [
    [False, True, True],
    [False] * 3,
    [False, False, True],
  ]


def test_a_row_that_is_too_long_is_refused():
  with pytest.raises(ValueError, match='more than 1'):
    tokenizer_lib.pad_left([[5, 6]], 1, 0)


def test_a_missing_file_is_named(tmp_path):
  with pytest.raises(FileNotFoundError, match='nothing.json'):
    tokenizer_lib.load(tmp_path / 'nothing.json')


@hypothesis.given(st.lists(st.integers(3, TOKENIZER.vocab_size - 1)))
def test_bytes_decode_after_a_text_as_they_do_alone(ids):
  assert TOKENIZER.decode_after([ids]) == TOKENIZER.decode([ids])


def test_without_a_template_contents_follow_each_other_behind_bos():
  messages = [('system', 'a + b'), ('user', 'c')]
  (ids,) = TOKENIZER.encode(['a + b\nc'])
  assert TOKENIZER.render(messages) == [TOKENIZER.bos_id, *ids]


@pytest.mark.parametrize('name', ['minicode_coder', 'minicode_rewriter'])
def test_the_folder_of_an_embedded_model_is_read_as_its_file_was(name):
  folder = ASSETS / name
  file = tokenizer_lib.load(folder / 'tokenizer.json')
  read = tokenizer_lib.load(folder)
  special = lambda t: (t.pad_id, t.bos_id, t.eos_id, t.eos_ids, t.start, t.end)
  assert special(read) == special(file) == (0, 1, 2, (2,), (1,), ())
  assert read.chat is None
  assert read.backend.to_str() == file.backend.to_str()


def test_our_own_tokenizer_is_saved_as_one_file(tmp_path):
  tokenizer_lib.save(tmp_path, TOKENIZER)
  assert [path.name for path in tmp_path.iterdir()] == ['tokenizer.json']
  again = tokenizer_lib.load(tmp_path)
  assert again.render([('user', 'add')]) == TOKENIZER.render([('user', 'add')])


def test_tokens_are_found_by_what_is_in_their_text():
  found = TOKENIZER.ids_with('e')
  texts = [TOKENIZER.decode([[i]])[0] for i in range(TOKENIZER.vocab_size)]
  assert 0 < len(found) < TOKENIZER.vocab_size
  assert [i in found for i in range(len(texts))] == ['e' in t for t in texts]
