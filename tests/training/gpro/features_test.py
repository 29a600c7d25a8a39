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


def test_questions_of_one_form_are_nearer_than_those_on_one_topic():
  features = FeatureMap(diversity.word_vectors, BANK, 2)
  asked, same_form, same_topic = features.query(
    ['How do I grow tomatoes?', 'How do I keep bees?', 'What are tomatoes?']
  )
  distance = lambda other: np.linalg.norm(asked - other)
  assert distance(same_form) < distance(same_topic)
