"""The similarity reward by hand, and what it refuses."""

import numpy as np
import pytest

from promptrl_jax.rewards.similarity import similarity_rewards

VECTORS = {
  'east': [2.0, 0.0],
  'north': [0.0, 0.5],
  'west': [-3.0, 0.0],
  'north-east': [1.0, 1.0],
  'odd': [0.1234567, 9.87654],
  'nothing': [0.0, 0.0],
  'broken': [np.nan, 1.0],
}


def embed_fn(texts):
  return np.array([VECTORS[text] for text in texts], np.float32)


def test_the_cosine_is_mapped_to_the_unit_interval():
  rewards = similarity_rewards(
    embed_fn, ['east'] * 4, ['east', 'north', 'west', 'north-east']
  )
  expected = [1.0, 0.5, 0.0, (1 + 0.5**0.5) / 2]
  np.testing.assert_allclose(rewards, expected, atol=1e-7)
  assert rewards.min() >= 0


def test_identical_texts_score_exactly_one():
  texts = ['east', 'north-east', 'odd']
  assert similarity_rewards(embed_fn, texts, texts).tolist() == [1.0, 1.0, 1.0]


def test_identical_texts_score_one_even_if_embedding_is_not_repeatable():
  rng = np.random.default_rng(0)
  noisy_fn = lambda texts: rng.normal(size=(len(texts), 4))
  assert similarity_rewards(noisy_fn, ['east'], ['east']).tolist() == [1.0]


def test_each_distinct_text_is_embedded_once():
  seen = []

  def counting_fn(texts):
    seen.extend(texts)
    return embed_fn(texts)

  similarity_rewards(counting_fn, ['east', 'north', 'east'], ['north'] * 3)
  assert sorted(seen) == ['east', 'north']


def test_no_texts_are_refused():
  with pytest.raises(ValueError, match='texts is empty'):
    similarity_rewards(embed_fn, [], [])


def test_a_mismatch_names_both_lengths():
  with pytest.raises(ValueError, match='2 texts and 1 references'):
    similarity_rewards(embed_fn, ['east', 'west'], ['east'])


def test_one_string_is_no_list_of_texts():
  with pytest.raises(TypeError, match="references is 'east'"):
    similarity_rewards(embed_fn, ['east'], 'east')


@pytest.mark.parametrize('text', ['nothing', 'broken'])
def test_an_embedding_without_direction_is_named(text):
  with pytest.raises(ValueError, match=f"'{text}' has norm"):
    similarity_rewards(embed_fn, ['east', text], ['east', 'east'])


def test_embeddings_of_another_count_are_refused():
  with pytest.raises(ValueError, match=r'shape \(1, 2\) for 2 texts'):
    similarity_rewards(lambda texts: np.ones((1, 2)), ['east'], ['west'])
