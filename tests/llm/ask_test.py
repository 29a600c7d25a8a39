"""How strategies ask."""

import logging

import pytest

from promptrl_jax.llm import ask
from promptrl_jax.llm.attempt import CODER, REWRITER, Attempt
from promptrl_jax.prompts import templates
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.types import Problem, UnitTests

PROBLEM = Problem(
  'long/1', 'Add it.', UnitTests('f', 'def f(x):', ('assert f(1) == 1',))
)


def test_a_prompt_without_room_has_no_answer_and_is_told_once(caplog):
  backend = ScriptedBackend(str, prompt_limit=1)
  tools = ask.Tools(templates.PLAIN, {CODER: backend}, ask.AskConfig())
  caplog.set_level(logging.WARNING)
  for seed in range(3):
    attempt = Attempt(PROBLEM, seed)
    with pytest.raises(StopIteration) as ended:
      next(tools.ask(attempt, CODER, ask.coder_prompt(attempt)))
    assert ended.value.value is None and attempt.calls == 0
  assert caplog.text.count('long/1: the prompt is longer than the model') == 1
  assert not backend.batches


def test_a_rewrite_of_a_base_model_ends_with_its_line():
  tools = ask.make_tools(
    ask.AskConfig(template='base'), {REWRITER: ScriptedBackend(str)}
  )
  prompt = templates.RewritePrompt('Add it.', 'f')
  asked = next(tools.rewrite(Attempt(PROBLEM, 0), prompt))
  assert asked.request.stop == ('\n',)
