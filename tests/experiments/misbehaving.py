"""A plug-in of strategies that break the rules, and of a task set without one.

One wants to read the tests that score it, one never asks again, one raises, one
asks over its budget, one submits nothing.
"""

import time

from promptrl_jax.envs import step_limit
from promptrl_jax.llm.ask import coder_prompt
from promptrl_jax.llm.attempt import Execute
from promptrl_jax.llm.preflight import CandidateCost
from promptrl_jax.strategies.base import register
from promptrl_jax.tasks import load
from promptrl_jax.testing import tiny
from tests.envs.failing import overspends, raises, submits_nothing

step_limit.LIMIT_S = 2.0


def peeking(attempt, tools):
  code = yield from tools.write_program(attempt, attempt.problem.reward.tests)
  yield Execute(code)
  return code


def looping(attempt, tools):
  code = yield from tools.write_program(attempt, coder_prompt(attempt))
  while True:
    time.sleep(60)
  return code


def train_alone(split, config):
  return tiny.tasks(3) if split == 'train' else []


register('peeking', peeking, CandidateCost())
register('looping', looping, CandidateCost())
register('raising', raises, CandidateCost())
register('overspending', overspends, CandidateCost())
register('silent', submits_nothing, CandidateCost())
load.register('train_alone', load=train_alone)
