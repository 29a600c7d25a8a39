"""Replies that are worth a try beside those that a rewriter gave."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from promptrl_jax.operators import lexical
from promptrl_jax.training.supervised.edits import to_reply
from promptrl_jax.training.supervised.values import restored
from promptrl_jax.types import Task


def widened(
  task: Task,
  replies: Sequence[str],
  mutations: int,
  lexical_config: lexical.LexicalConfig,
  template: str,
  seed: int,
) -> Iterator[str]:
  """Yields the replies of a rewriter, and others that are worth a try.

  Each reply with the values back that it lost, so that words are not thrown
  away for a number; and the statement with other words, which a rewriter can
  learn from the lexical operator.

  Args:
    task: what was rewritten.
    replies: about it.
    mutations: statements with other words.
    lexical_config: how words are replaced.
    template: how replies are written; see `prompts.templates`.
    seed: of the mutations, with the task.
  """
  for reply in replies:
    yield reply
    yield from restored(task.statement, reply)
  rng = random.Random(f'{seed}/{task.task_id}')
  for _ in range(mutations):
    mutated = lexical.mutate(
      task.statement, rng, lexical_config, (task.entry_point,)
    )
    if mutated != task.statement:
      yield to_reply(mutated, template)
