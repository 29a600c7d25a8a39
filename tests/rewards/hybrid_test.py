"""Rewards of a refinement: golden values, signs and names."""

import math

import hypothesis
import pytest
from hypothesis import strategies as st

from promptrl_jax.rewards import hybrid

INFO = {
  'human_feedback': 1.0,
  'critic_score': 0.5,
  'response_coherence': 0.5,
  'token_efficiency': 100,
  'safety_penalty': 0.0,
}


def value(name, info, **options):
  return hybrid.REFINEMENT_REWARDS[name](**options)('', '', info)


def test_golden_values():
  # 1 + 0.4 + 0.15 - 0.001 / 1.2
  legacy = value('hybrid_legacy', INFO)
  assert legacy == pytest.approx(1.5491667, abs=5e-8)
  # 1 + 0.4 + 0.15 - 0.1 * 100 / 600, and minus half of a penalty
  assert value('hybrid', INFO) == pytest.approx(1.55 - 0.1 / 6)
  unsafe = INFO | {'safety_penalty': 0.5}
  assert value('hybrid', unsafe) == pytest.approx(1.05 - 0.1 / 6)
  assert value('hybrid_legacy', unsafe) == pytest.approx(1.0491667, abs=5e-8)
  assert value('hybrid', {}) == 0.0
  assert value('rating', INFO) == 1.0
  # Half of the weight at `token_scale` tokens.
  assert value('hybrid', {'token_efficiency': 500}) == pytest.approx(-0.05)
  assert value('hybrid_legacy', {'token_efficiency': -1}) == 0.0


@hypothesis.given(
  tokens=st.integers(0, 10**6),
  more=st.integers(1, 10**6),
  weight=st.floats(0, 10),
  scale=st.floats(1, 10**4),
)
def test_more_tokens_never_raise_the_reward(tokens, more, weight, scale):
  options = {'tokens': weight, 'token_scale': scale}
  few = value('hybrid', INFO | {'token_efficiency': tokens}, **options)
  many = value('hybrid', INFO | {'token_efficiency': tokens + more}, **options)
  assert many <= few


def test_the_legacy_form_pays_for_tokens():
  many = value('hybrid_legacy', INFO | {'token_efficiency': 5000})
  assert many > value('hybrid_legacy', INFO)


def test_scalar_length_and_composite():
  assert value('scalar', {'score': 0.25}) == 0.25
  assert value('scalar', {}, key='votes', default=0.5) == 0.5
  penalty = hybrid.LengthPenalty()
  assert penalty('', 'x' * 2100, {}) == pytest.approx(-0.1)
  assert penalty('', 'x' * 2000, {}) == 0.0
  both = hybrid.composite(hybrid.ScalarReward(), penalty, weights=(2.0, 1.0))
  assert both('', 'x' * 2100, {'score': 1.0}) == pytest.approx(1.9)
  assert hybrid.composite()('', '', {}) == 0.0
  with pytest.raises(ValueError, match='1 weights for 2 rewards'):
    hybrid.composite(penalty, penalty, weights=(1.0,))


@pytest.mark.parametrize('name', ['hybrid', 'hybrid_legacy', 'scalar'])
def test_a_number_that_is_not_finite_is_refused(name):
  key = {'scalar': 'score'}.get(name, 'critic_score')
  with pytest.raises(ValueError, match=f'{key}=nan'):
    value(name, {key: math.nan})


def test_negative_costs_and_unknown_names_are_refused():
  with pytest.raises(ValueError, match=r'tokens=-0.1: .* always subtracted'):
    hybrid.HybridReward(tokens=-0.1)
  with pytest.raises(ValueError, match='token_efficiency=-1'):
    value('hybrid', {'token_efficiency': -1})
  with pytest.raises(ValueError, match='expected one of rating, hybrid'):
    value('five_terms', {})
  with pytest.raises(TypeError, match=r'previous, new, info'):
    hybrid.register('own', lambda: lambda text: 0.0)
