"""Hints from a critic's gradient and from comments."""

import jax
import numpy as np
import pytest

from promptrl_jax.evolution import hints
from promptrl_jax.evolution.diversity import word_vectors
from promptrl_jax.evolution.hints import Hint

# Directions of a small space of meanings.
MEANINGS = {
  'rude': [-1.0, 0.0],
  'polite': [1.0, 0.0],
  'very polite': [2.0, 0.0],
  'long': [0.0, -1.0],
  'short': [0.0, 1.0],
}


def embed(texts):
  return np.array([MEANINGS[text] for text in texts])


def gradient_hint(weights, **changes):
  """The hint of a critic that values tone and format by these weights."""
  vectors = embed(['rude', 'long'])

  def critic(x):
    return jax.numpy.sum(jax.numpy.tanh(x) * np.array(weights))

  arguments = {
    'gradient': jax.jit(jax.grad(critic))(vectors),
    'vectors': vectors,
    'sections': ['tone', 'format'],
    'phrases': {'tone': ['polite', 'very polite'], 'format': ['short', 'long']},
    'embed_fn': embed,
  } | changes
  return hints.from_gradient(**arguments)


def test_a_critic_hints_at_what_it_expects_most_of():
  slope = 1 - np.tanh(1.0) ** 2  # of tanh at -1
  # From rude to very polite are 3 steps, from long to short 2.
  hint = gradient_hint([[1.0, 0.0], [0.0, 1.0]])
  assert (hint.text, hint.section) == ('very polite', 'tone')
  assert np.isclose(hint.weight, 3 * slope, rtol=1e-5)
  hint = gradient_hint([[1.0, 0.0], [0.0, 2.0]])
  assert (hint.text, hint.section) == ('short', 'format')
  assert np.isclose(hint.weight, 4 * slope, rtol=1e-5)


def test_a_critic_that_nothing_pleases_gives_no_hint():
  assert gradient_hint([[-1.0, 0.0], [0.0, -1.0]]) is None
  assert gradient_hint([[0.0, 0.0], [0.0, 0.0]]) is None
  assert gradient_hint([[1.0, 0.0], [0.0, 1.0]], phrases={}) is None


def test_gradients_that_do_not_fit_are_refused():
  with pytest.raises(ValueError, match='for 1 sections: expected'):
    gradient_hint([[1.0, 0.0], [0.0, 1.0]], sections=['tone'])
  with pytest.raises(ValueError, match='is not finite'):
    gradient_hint([[1.0, 0.0]] * 2, gradient=np.full((2, 2), np.nan))


COMMENTS = [
  'far too long',
  'I like it',
  'too long again',
  'this is too long',
  'the tone is rude',
  '  ',
]
ABOUT = {'tone': 'style and manner', 'limits': 'how long and how short'}


def comment_hint(comments=COMMENTS, **options):
  return hints.from_comments(
    comments, word_vectors, about=ABOUT, similarity=0.4, **options
  )


def test_most_comments_make_the_hint_in_the_words_of_the_middle_one():
  hint = comment_hint()
  assert hint.text in {COMMENTS[0], COMMENTS[2], COMMENTS[3]}
  assert (hint.section, hint.weight) == ('limits', 3.0)


def test_weights_say_who_is_heard():
  hint = comment_hint(weights=[0.1, 0, 0.1, 0.1, 1.0, 1.0])
  assert hint == Hint('the tone is rude', 'tone', 1.0)


def test_nobody_and_one_alone():
  assert comment_hint([]) is None and comment_hint([' ']) is None
  assert comment_hint(['too long'], weights=[0.0]) is None
  assert comment_hint(['too long']) == Hint('too long', 'limits', 1.0)
  with pytest.raises(ValueError, match='expected 1 numbers of 0 or more'):
    comment_hint(['too long'], weights=[-1.0])


def test_groups_are_those_within_a_cosine():
  angles = np.radians([0, 10, 20, 90, 100, 200])
  vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
  groups = hints.clusters(vectors, 0.9)
  assert [groups.tolist().index(g) for g in groups] == [0, 0, 0, 3, 3, 5]
  assert len(set(hints.clusters(vectors, -1.0))) == 1
  assert hints.clusters(np.zeros((0, 2))).tolist() == []


def test_a_hint_says_something():
  with pytest.raises(ValueError, match="text=' ', section='tone': expected"):
    Hint(' ', 'tone')
