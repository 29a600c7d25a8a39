"""What actor and critic see."""

import numpy as np
import pytest

from promptrl_jax.evolution import diversity
from promptrl_jax.rewards import intent
from promptrl_jax.training.gpro.features import FeatureMap
from tests.training.gpro.small import BANK


@pytest.mark.parametrize('components', [0, 3])
def test_a_question_has_marks_and_components(components):
  features = FeatureMap(diversity.word_vectors, BANK, components)
  rows = features.query(BANK)
  assert rows.shape == (len(BANK), features.context)
  assert features.context == components + len(intent.CATEGORIES)
  np.testing.assert_allclose(rows.mean(0), 0, atol=1e-5)
  answers = features.candidates(rows[0], ['- one\n- two', 'In short: no.'])
  assert answers.shape == (2, features.size)


def test_the_system_prompt_is_seen_if_that_is_wanted():
  prompts = [f'Write {n} lines in a {t} tone.' for n in '123' for t in 'abcd']
  plain = FeatureMap(diversity.word_vectors, BANK)
  wide = FeatureMap(
    diversity.word_vectors, BANK, prompts=prompts, prompt_components=2
  )
  (query,), answers = plain.query(BANK[:1]), ['One.', 'One.', 'Two and three.']
  np.testing.assert_array_equal(wide.query(BANK[:1]), [query])
  assert wide.size == plain.size + 2 * (1 + plain.context)
  same = plain.candidates(query, answers, prompts[:3])
  np.testing.assert_array_equal(same, plain.candidates(query, answers))
  np.testing.assert_array_equal(same[0], same[1])
  seen = wide.candidates(query, answers, prompts[::4])
  assert seen.shape == (3, wide.size) and np.abs(seen[0] - seen[1]).max() > 0.1
  with pytest.raises(ValueError, match='0 prompts of 3 answers'):
    wide.candidates(query, answers)
  with pytest.raises(ValueError, match='0 prompts for 2 components'):
    FeatureMap(diversity.word_vectors, BANK, prompt_components=2)


def test_questions_of_one_form_are_nearer_than_those_on_one_topic():
  features = FeatureMap(diversity.word_vectors, BANK, 2)
  asked, same_form, same_topic = features.query(
    ['How do I grow tomatoes?', 'How do I keep bees?', 'What are tomatoes?']
  )
  distance = lambda other: np.linalg.norm(asked - other)
  assert distance(same_form) < distance(same_topic)
