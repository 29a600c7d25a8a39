"""What the loop learns from, by the names that a config gives."""

import dataclasses

import numpy as np
import pytest

from promptrl_jax.rewards import hybrid
from promptrl_jax.training.gpro.reward import Answer, learned, make_reward

# Critics expected half, the embeddings are orthogonal, 100 tokens.
ANSWER = Answer('Why?', 'word ' * 100, 0.5)


def embed(texts):
  return np.array([[1.0, 0.0] if text == 'Why?' else [0, 1] for text in texts])


def make(name, *, unsafe=0.0, **options):
  return make_reward(
    name,
    options,
    count_tokens=lambda text: len(text.split()),
    embed_fn=embed,
    safety_fn=lambda query, text: unsafe,
  )


@pytest.mark.parametrize(
  ('name', 'options', 'value', 'low', 'high'),
  [
    ('rating', {}, 1.0, 0.0, 1.0),
    # 1 + 0.8 * 0.5 + 0.3 * 0.5 - 0.1 * 100 / 600
    ('hybrid', {}, 1.55 - 0.1 / 6, -1.1, 2.1),
    ('hybrid', {'coherence': 0.0, 'safety': 0.0}, 1.4 - 0.1 / 6, -0.1, 1.8),
    ('hybrid_legacy', {}, 1.5491667, -1.001, 2.1),
    ('hybrid_legacy', {'tokens': 0.5}, 1.55 + 0.5 / 1.2, -1.0, 2.6),
  ],
)
def test_a_reward_is_the_formula_of_its_name_between_its_bounds(
  name, options, value, low, high
):
  reward = make(name, **options)(1.0, ANSWER)
  assert reward == pytest.approx((value - low) / (high - low), abs=1e-7)
  # Both ends can be reached: all good, short and safe, or the contrary.
  if name == 'hybrid' and not options:
    best, worst = Answer('Why?', 'Why?', 1.0), Answer('Why?', ' ' * 9, 0.0)
    assert make(name, tokens=0.0)(1.0, best) == pytest.approx(1.0)
    assert make(name, tokens=0.0, unsafe=1.0)(0.0, worst) == 0.0


@pytest.mark.parametrize(
  ('change', 'sign'),
  [
    ({'human': 0.5}, -1),
    ({'expected': 0.6}, 1),
    ({'text': 'Why?'}, 1),  # coherent, and short
    ({'text': 'word ' * 101}, -1),
    ({'unsafe': 0.1}, -1),
  ],
)
def test_each_term_moves_the_hybrid_reward_the_way_it_should(change, sign):
  human, unsafe = change.pop('human', 1.0), change.pop('unsafe', 0.0)
  answer = ANSWER._replace(**change)
  moved = make('hybrid', unsafe=unsafe)(human, answer)
  assert np.sign(moved - make('hybrid')(1.0, ANSWER)) == sign


def test_a_weight_of_zero_leaves_a_term_out():
  terms = ('human', 'critic', 'coherence', 'tokens', 'safety')
  assert set(terms) < {f.name for f in dataclasses.fields(hybrid.HybridReward)}
  for term in terms:
    reward = make('hybrid', **{one: float(one == term) for one in terms})
    moves = {
      'human': reward(0.5, ANSWER),
      'critic': reward(1.0, ANSWER._replace(expected=0.6)),
      'coherence': reward(1.0, ANSWER._replace(query='Why not?')),
      'tokens': reward(1.0, ANSWER._replace(text='word ' * 101)),
      'safety': make(
        'hybrid', unsafe=0.1, **{one: float(one == term) for one in terms}
      )(1.0, ANSWER),
    }
    before = reward(1.0, ANSWER)
    assert {k for k, v in moves.items() if abs(v - before) > 1e-9} == {term}


def test_a_thumb_stays_one_under_the_rating_alone():
  assert learned(make('rating'), 1.0, 'thumbs', [ANSWER]) == (1.0, 'thumbs')
  assert learned(make('hybrid'), 1.0, 'thumbs', [ANSWER])[1] == 'rating'
  long = ANSWER._replace(text='word ' * 900)
  pair = learned(make('hybrid'), 0.5, 'pair', [ANSWER, long])
  assert pair[0] > 0.5 and pair[1] == 'pair'  # The shorter one of two equals.
  assert learned(make('rating'), 0.25, 'pair', [ANSWER, long])[0] == 0.25


@pytest.mark.parametrize(
  ('name', 'options', 'message'),
  [
    ('stars', {}, "^reward='stars': expected one of rating, hybrid, hybrid_le"),
    ('scalar', {}, "reward='scalar' has no bounds, .* expected one of rating"),
    ('hybrid', {'joy': 1}, "reward 'hybrid' has no option 'joy'; expected hum"),
    ('hybrid', {'tokens': -1}, 'tokens=-1: expected 0 or more, as a cost'),
    (
      'hybrid_legacy',
      dict.fromkeys(('human', 'critic', 'coherence', 'tokens', 'safety'), 0.0),
      "reward='hybrid_legacy' is 0 whatever is said",
    ),
  ],
)
def test_what_cannot_be_learned_from_is_refused(name, options, message):
  with pytest.raises(ValueError, match=message) as error:
    make(name, **options)
  assert '\n' not in str(error.value)
