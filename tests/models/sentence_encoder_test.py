"""The table of hashed features: rows, weights, files, and what is refused."""

import json
import math
import time
import zlib

import numpy as np
import pytest

from promptrl_jax.models import sentence_encoder
from promptrl_jax.models.sentence_encoder import TableConfig

TINY = TableConfig(rows=50, size=4, grams=(3,), shortest=4)


def row(name):
  return 1 + zlib.crc32(name.encode()) % (TINY.rows - 1)


def test_rows_and_weights_are_those_worked_out_by_hand():
  rows, weights = sentence_encoder.features('Sums, sums of 12', TINY)
  # Row 0; "sums" twice with <su sum ums ms>; a mark, "of" and a number alone.
  expected = {
    'wsums': 1 + math.log(2),
    **dict.fromkeys(
      ('g<su', 'gsum', 'gums', 'gms>'), (1 + math.log(2)) / math.sqrt(4)
    ),
    'w,': 1.0,
    'wof': 1.0,
    'w12': 1.0,
  }
  assert rows == [0, *map(row, expected)]
  np.testing.assert_allclose(weights, [1.0, *expected.values()])


def test_a_vector_is_the_direction_of_the_weighed_sum():
  table = np.zeros((50, 4), np.float32)
  table[0] = [0, 0, 0, 1]
  table[row('wof')] = [2, 0, 0, 0]
  (vector,) = sentence_encoder.make_embed_fn(TINY, table)(['of of'])
  expected = np.array([2 * (1 + math.log(2)), 0, 0, 1])
  np.testing.assert_allclose(
    vector, expected / np.linalg.norm(expected), rtol=1e-6
  )


def test_a_folder_gives_back_the_table_up_to_rounding(tmp_path):
  table = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
  table[7] = 0
  sentence_encoder.save_table(tmp_path, TINY, table)
  config, read = sentence_encoder.load_table(tmp_path)
  assert config == TINY
  bound = np.abs(table).max(axis=1, keepdims=True) / 127
  assert np.all(np.abs(read - table) <= 0.6 * bound + 1e-7)
  texts = ['one text', 'another one']
  np.testing.assert_array_equal(
    sentence_encoder.embed(texts, str(tmp_path)),
    sentence_encoder.make_embed_fn(config, read)(texts),
  )


@pytest.mark.parametrize(
  'text', ['', ' ', 'ß', '日本語', '\udc80', 'a\0b', '🙂']
)
def test_any_text_has_a_unit_vector_of_its_own(text):
  together = sentence_encoder.embed([text, 'Explain gravity.'])
  assert together.dtype == np.float32
  np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-5)
  np.testing.assert_array_equal(together[:1], sentence_encoder.embed([text]))


def test_no_texts_are_no_rows():
  assert sentence_encoder.embed([]).shape == (
    0,
    sentence_encoder.load_table(sentence_encoder.FOLDER)[0].size,
  )


def test_what_cannot_be_embedded_is_named(tmp_path):
  with pytest.raises(TypeError, match="one text, 'abc': expected a list"):
    sentence_encoder.embed('abc')
  with pytest.raises(TypeError, match=r'texts\[1\] is None'):
    sentence_encoder.embed(['a', None])
  with pytest.raises(ValueError, match=r'shape \(3, 4\).*\(50, 4\)'):
    sentence_encoder.make_embed_fn(TINY, np.zeros((3, 4), np.float32))
  (tmp_path / 'config.json').write_text(json.dumps({'format': 'other'}))
  with pytest.raises(ValueError, match='expected "format": "hashed'):
    sentence_encoder.load_table(tmp_path)
  with pytest.raises(ValueError, match='rows=1, size=192'):
    TableConfig(rows=1)
  with pytest.raises(ValueError, match=r'grams=\(0,\)'):
    TableConfig(grams=(0,))


def test_texts_take_milliseconds():
  embed_fn = sentence_encoder.load()
  texts = [f'How do I bake bread with {n} grams of flour?' for n in range(64)]
  embed_fn(texts)

  def least(batch):
    seconds = []
    for _ in range(5):
      start = time.perf_counter()
      embed_fn(batch)
      seconds.append(time.perf_counter() - start)
    return min(seconds)

  assert least(texts[:1]) < 2e-3
  assert least(texts) < 30e-3
