"""Which replies are tried beside those of a rewriter."""

import dataclasses

from promptrl_jax.operators import lexical
from promptrl_jax.testing import tiny
from promptrl_jax.training.supervised.widen import widened


def test_replies_are_widened_by_lost_values_and_by_other_words():
  task = dataclasses.replace(
    tiny.tasks(1)[0], statement='Find the biggest number below 7.'
  )
  words = lexical.LexicalConfig(probability=1.0)
  replies = [' the largest below 9', ' the largest below 7']
  tried = list(widened(task, replies, 3, words, 'plain', 0))
  assert tried[:4] == [
    ' the largest below 9',
    ' the largest below 7',
    ' the largest below 7',
    ' the largest below 7',
  ]
  mutated = tried[4:]
  assert len(mutated) == 3
  assert all(text.startswith(' ') and '7' in text for text in mutated)
  assert ' Find the biggest number below 7.' not in mutated
  assert tried == list(widened(task, replies, 3, words, 'plain', 0))
  assert not list(widened(task, [], 0, words, 'plain', 0))
