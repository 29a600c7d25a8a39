"""A plug-in whose strategy wants to read the tests that score it."""

from promptrl_jax.llm.attempt import Execute
from promptrl_jax.llm.preflight import CandidateCost
from promptrl_jax.strategies.base import register


def peeking(attempt, tools):
  code = yield from tools.write_program(attempt, attempt.problem.reward.tests)
  yield Execute(code)
  return code


register('peeking', peeking, CandidateCost())
