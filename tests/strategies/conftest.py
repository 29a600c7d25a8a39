"""Plays a strategy on tiny tasks with a scripted model and a real pool."""

import pytest

from promptrl_jax.envs.runner import Runner
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.llm.ask import AskConfig, make_tools
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.strategies.base import TextStrategy, named
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny
from promptrl_jax.testing.instructed import InstructedBackend


@pytest.fixture
def play(pool):
  """Returns the plays that have ended, and the model that was asked."""
  memo = MemoPool(pool)  # Seeds and settings share most programs.

  def run(
    play_fn,
    answers,
    *,
    budget=16,
    tasks=tiny.tasks(4, 'test')[3:],  # to add 3
    seed=0,
    cut=(),
    options=None,
    template='chat',
    strict=True,
  ):
    model = InstructedBackend(answers, cut)
    backends = {REWRITER: model, CODER: model}
    config = AskConfig(template=template, max_tokens=200)
    is_name = isinstance(play_fn, str)
    strategy = named(play_fn) if is_name else play_fn
    if callable(strategy):
      strategy = TextStrategy(strategy)
    plays = strategy.start(
      [splits.reveal(task, 'visible1') for task in tasks],
      make_tools(config, backends, options),
      budget=budget,
      seed=seed,
    )
    runner = Runner(backends, memo, strict=strict)
    return runner.run(plays), model

  return run
