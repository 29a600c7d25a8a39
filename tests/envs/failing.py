"""Strategies that fail: one raises, one overspends, one submits nothing."""

from promptrl_jax.llm.ask import coder_prompt


def raises(attempt, tools):
  yield from tools.write_program(attempt, coder_prompt(attempt))
  raise KeyError('lost my notes')


def overspends(attempt, tools):
  while True:
    yield from tools.write_program(
      attempt, coder_prompt(attempt), resample=True
    )


def submits_nothing(attempt, tools):
  yield from tools.write_program(attempt, coder_prompt(attempt))
