from __future__ import annotations

from promptrl_jax.llm.backend import Completion
from promptrl_jax.llm.ledger import Ledger, Usage


def test_tokens_and_seconds_are_counted_for_each_role():
  ledger = Ledger()
  answers = [Completion('x', 100, 10, 'stop'), Completion('y', 200, 20, 'stop')]
  ledger.reserve('generate', 2)
  ledger.record('generate', answers, seconds=1.5)
  ledger.reserve('reflect')
  ledger.record('reflect', answers[:1], seconds=0.5)
  assert ledger.roles['generate'] == Usage(2, 300, 30, 1.5)
  assert ledger.roles['reflect'] == Usage(1, 100, 10, 0.5)
