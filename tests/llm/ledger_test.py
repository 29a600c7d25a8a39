from __future__ import annotations

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
  assert ledger.roles['generate'].calls == 3
  assert 'rewrite' not in ledger.roles


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
  reserved = sum(usage.calls for usage in ledger.roles.values())
  assert sum(ledger.problems.values()) == reserved


def test_without_a_cap_everything_is_counted():
  ledger = Ledger()
  ledger.reserve('generate', 10**6)
  assert ledger.remaining() == float('inf')
  assert ledger.roles['generate'].calls == 10**6


def test_tokens_and_seconds_are_counted_for_each_role():
  ledger = Ledger()
  answers = [Completion('x', 100, 10, 'stop'), Completion('y', 200, 20, 'stop')]
  ledger.reserve('generate', 2)
  ledger.record('generate', answers, seconds=1.5)
  ledger.reserve('reflect')
  ledger.record('reflect', answers[:1], seconds=0.5)
  assert ledger.roles['generate'] == Usage(2, 300, 30, 1.5)
  assert ledger.roles['reflect'] == Usage(1, 100, 10, 0.5)


def test_negative_numbers_are_refused():
  with pytest.raises(ValueError, match='calls_per_problem is -1'):
    Ledger(calls_per_problem=-1)
  with pytest.raises(ValueError, match='number of calls is -1'):
    Ledger().reserve('generate', -1)
