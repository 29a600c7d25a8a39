from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptrl_jax.llm.backend import Completion
from promptrl_jax.llm.ledger import BudgetExceeded, Ledger, Usage


def test_refused_reservation_takes_nothing():
  ledger = Ledger(calls_per_problem=4)
  ledger.reserve('generate', 3, problem='a')
  with pytest.raises(BudgetExceeded, match="2 rewrite .* 'a', but 1 of 4"):
    ledger.reserve('rewrite', 2, problem='a')
  assert ledger.remaining('a') == 1
  assert ledger.total().calls == 3


def test_each_problem_has_its_own_budget_shared_by_all_roles():
  ledger = Ledger(calls_per_problem=2)
  ledger.reserve('generate', problem='a')
  ledger.reserve('rewrite', problem='a')
  assert ledger.remaining('a') == 0
  assert ledger.remaining('b') == 2
  ledger.reserve('generate', 2, problem='b')


@given(st.lists(st.tuples(st.sampled_from('ab'), st.integers(0, 4))))
def test_no_sequence_of_reservations_passes_the_cap(wishes):
  ledger = Ledger(calls_per_problem=5)
  for problem, n in wishes:
    try:
      ledger.reserve('generate', n, problem)
    except BudgetExceeded:
      assert n > ledger.remaining(problem)
  assert all(n <= 5 for n in ledger.problems.values())
  assert sum(ledger.problems.values()) == ledger.total().calls


def test_without_a_cap_everything_is_counted():
  ledger = Ledger()
  ledger.reserve('generate', 10**6)
  assert ledger.remaining() == float('inf')
  assert ledger.total().calls == 10**6


def test_roles_add_up_to_the_total_and_to_the_price():
  ledger = Ledger()
  answers = [Completion('x', 100, 10, 'stop'), Completion('y', 200, 20, 'stop')]
  ledger.reserve('generate', 2)
  ledger.record('generate', answers, seconds=1.5)
  ledger.reserve('reflect')
  ledger.record('reflect', answers[:1], seconds=0.5)
  assert ledger.roles['generate'] == Usage(2, 300, 30, 1.5)
  assert ledger.total() == Usage(3, 400, 40, 2.0)
  assert ledger.total().money(5.0, 50.0) == pytest.approx(0.004)


def test_released_calls_can_be_reserved_again():
  ledger = Ledger(calls_per_problem=1)
  ledger.reserve('generate', problem='a')
  ledger.release('generate', problem='a')
  ledger.reserve('rewrite', problem='a')
  assert ledger.roles['generate'].calls == 0
  with pytest.raises(ValueError, match='at most 0 are reserved'):
    ledger.release('generate', problem='a')


def test_state_survives_json_and_the_budget_goes_on_from_it():
  ledger = Ledger(calls_per_problem=3)
  ledger.reserve('generate', 2, problem='a')
  ledger.record('generate', [Completion('x', 5, 6, 'stop')], seconds=0.1)
  resumed = Ledger(calls_per_problem=3)
  resumed.load(json.loads(json.dumps(ledger.state_dict())))
  assert resumed.state_dict() == ledger.state_dict()
  with pytest.raises(BudgetExceeded):
    resumed.reserve('generate', 2, problem='a')


def test_negative_numbers_are_refused():
  with pytest.raises(ValueError, match='calls_per_problem is -1'):
    Ledger(calls_per_problem=-1)
  with pytest.raises(ValueError, match='number of calls is -1'):
    Ledger().reserve('generate', -1)
