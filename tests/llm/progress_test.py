"""Answers are put in order, whoever hands them out."""

import pytest

from promptrl_jax.llm import progress
from promptrl_jax.llm.backend import Completion, Message, Request
from promptrl_jax.testing.scripted import ScriptedBackend


class OneByOne(ScriptedBackend):
  """Hands out its completions one by one, the last one first."""

  def complete_each(self, requests):
    for i, request in reversed(list(enumerate(requests))):
      yield i, Completion(request.messages[0].content, 1, 1, 'stop')


@pytest.mark.parametrize('kind', [ScriptedBackend, OneByOne])
def test_completions_are_in_the_order_of_the_requests(kind):
  backend = kind(lambda request: request.messages[0].content)
  requests = [Request((Message('user', text),)) for text in 'abc']
  completions = progress.complete(backend, requests)
  assert [completion.text for completion in completions] == ['a', 'b', 'c']
