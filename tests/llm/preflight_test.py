from __future__ import annotations

import pytest

from promptrl_jax.llm import preflight
from promptrl_jax.llm.ledger import Price
from promptrl_jax.llm.preflight import CandidateCost
from promptrl_jax.strategies import base

COSTS = {
  'direct': CandidateCost(most=1),
  'repair': CandidateCost(),
  'reflexion': CandidateCost(2, fixed=1),
  'looks': CandidateCost(4),
}


def test_a_budget_buys_what_is_left_after_the_fixed_calls():
  bought = preflight.check(COSTS, 12)
  assert bought == {'direct': 1, 'repair': 12, 'reflexion': 5, 'looks': 3}
  assert preflight.describe(bought, 12) == (
    'candidates that 12 calls per problem buy: direct 1, repair 12, reflexion '
    '5, looks 3'
  )
  assert CandidateCost(2, fixed=3).candidates(2) == 0
  # A quarter of the calls, rounded down, goes to tests.
  cost = CandidateCost(share=0.25)
  assert [cost.candidates(budget) for budget in (3, 4, 8)] == [3, 3, 6]
  assert cost.budget(4) == 5


def test_the_calls_of_a_table_have_a_bound():
  # Of one greedy call and of all calls, at 2 and at 8 calls per problem.
  costs = [COSTS['direct'], COSTS['looks']]
  assert preflight.most_calls(costs, (2, 8), runs=30) == 30 * (1 + 2 + 1 + 8)
  assert preflight.most_calls([CandidateCost(2, most=2)], (3, 9), 1) == 3 + 4
  tested = CandidateCost(share=0.25, most=1)  # and tests
  assert preflight.most_calls([tested], (8,), 1) == 8


def test_fewer_than_three_candidates_are_refused_unless_told_otherwise():
  message = (
    r'6 calls .* fewer than 3 candidates: reflexion 2 \(needs 7 calls\), looks '
    r'1 \(needs 12 calls\)'
  )
  with pytest.raises(ValueError, match=message):
    preflight.check(COSTS, 6)
  assert preflight.check(COSTS, 6, least=1)['looks'] == 1
  with pytest.raises(ValueError, match=r'direct 0 \(needs 1 calls\)'):
    preflight.check(COSTS, 0, least=1)


def test_dollars_are_those_of_the_dearest_model():
  prices = [Price(0.1, 0.6), Price(0.15, 0.4), Price()]
  assert preflight.describe_dollars(10_000, 200, prices) == (
    'which cost $1.20 for answers of 200 tokens, and $0.15 for each 100 tokens '
    'of a prompt'
  )
  assert preflight.describe_dollars(10_000, 200, [Price()]) == ''
  assert preflight.describe_dollars(10_000, 200, []) == ''


def test_what_takes_any_of_others_may_take_the_dearest_parts_of_all():
  assert preflight.dearest(COSTS.values()) == CandidateCost(4, fixed=1)
  assert preflight.dearest([]) == CandidateCost()


def test_a_cost_that_makes_no_sense_is_refused():
  for settings in ({'calls': 0}, {'fixed': -1}, {'most': 0}, {'share': 1.0}):
    with pytest.raises(ValueError, match='at least 1 call per candidate'):
      CandidateCost(**settings)


def test_a_strategy_declares_its_cost_where_it_is_registered(monkeypatch):
  monkeypatch.setattr(base.STRATEGIES, '_plugins', {})

  def play(attempt, tools):
    yield

  with pytest.raises(TypeError, match='cost'):
    base.register('forgotten', play)
  base.register('plain', play, CandidateCost())
  base.register('costly', play, CandidateCost(2, fixed=1))
  assert {name: known.cost for name, known in base.STRATEGIES.items()} == {
    'plain': CandidateCost(),
    'costly': CandidateCost(2, fixed=1),
  }
