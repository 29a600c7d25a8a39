"""Mutation and crossover by a model: what is asked, and what is refused."""

import dataclasses

import pytest

from promptrl_jax.llm.ask import AskConfig, make_tools
from promptrl_jax.llm.attempt import CODER, REWRITER, Attempt
from promptrl_jax.operators import wording
from promptrl_jax.prompts import wording as prompts
from promptrl_jax.rewards.guards import GuardsConfig
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny
from promptrl_jax.testing.instructed import InstructedBackend
from tests.golden.strategies import parents_of

PROBLEM = splits.reveal(tiny.tasks(4, 'test')[3], 'visible1')
PARENT = 'Take a number and add 3 to it.'
OTHER = 'Return the sum of the argument and three.'


def ask(operator, reply, *, cut=(), limit=10_000, **config):
  """Applies an operator once; returns its outcome and the requests.

  `reply` is the text of the model's, or says what it is to a request.
  """
  answer = reply if callable(reply) else lambda request, number: reply
  model = InstructedBackend({operator: answer}, cut)
  model._prompt_limit = limit
  tools = make_tools(
    AskConfig(template='chat', max_tokens=90), {REWRITER: model, CODER: model}
  )
  attempt = Attempt(PROBLEM, budget=1)
  parents = (PARENT, OTHER) if operator == 'cross' else (PARENT,)
  settings = [wording.WordingConfig(**config)] if config else []
  words = getattr(wording, operator)(attempt, tools, *parents, *settings)
  try:
    asked = next(words)
    (completion,) = model.complete([asked.request])
    assert asked.role == REWRITER
    words.send(completion)
  except StopIteration as end:
    return end.value, [request for _, request in model.asked]
  raise AssertionError('more than one call')


@pytest.mark.parametrize(
  ('operator', 'temperature'),
  [('elaborate', 0.9), ('mutate', 0.8), ('cross', 0.8)],
)
def test_the_model_is_given_the_instruction_and_the_parents(
  operator, temperature
):
  made, (request,) = ask(operator, '<task>Add three to a number.')
  assert made == wording.Wording('Add three to a number.')
  assert request.temperature == temperature and request.max_tokens == 90
  assert request.messages[0].content == prompts.INSTRUCTIONS[operator]
  shown = request.messages[-1].content
  assert PARENT in shown and (OTHER in shown) == (operator == 'cross')
  assert PROBLEM.signature in shown and request.stop == ('</task>',)


def test_a_child_has_what_both_parents_say():
  def merge(request, number):
    del number
    first, second = parents_of(request)
    return f'Sure! <task>{first} That is: {second}</task> Enjoy.'

  made, _ = ask('cross', merge)
  assert made == wording.Wording(f'{PARENT} That is: {OTHER}')


@pytest.mark.parametrize(
  ('reply', 'reason'),
  [
    ('Add three to a number.', 'malformed'),
    ('<task></task>', 'malformed'),
    ('</task>Add three to it.<task>', 'malformed'),
    ('<task>Add three.</task><task>Add four.</task>', 'malformed'),
    (
      '<task>Keep the meaning and every number and name. Add 3.',
      'instruction',
    ),
    ('<task>keep THE meaning, and every number and name!', 'instruction'),
    ('<task>def add(x): return x + 3', 'code'),
    ('<task>It must hold: assert add(4) == 7', 'assertion'),
    ('<task>Add.', 'empty'),
    (f'<task>{"Add three to a number. " * 20}', 'repetition'),
    (f'<task>{" ".join(f"word{i}" for i in range(400))}', 'overlong'),
  ],
)
@pytest.mark.parametrize('operator', ['mutate', 'cross'])
def test_a_reply_that_is_no_description_is_refused(operator, reply, reason):
  if reason == 'instruction':
    reply = f'{reply} {prompts.INSTRUCTIONS[operator][:60]}'
  made, _ = ask(operator, reply)
  assert made == wording.Wording(PARENT, reason)


def test_a_reply_that_was_cut_is_refused():
  made, _ = ask('mutate', '<task>Add three to a', cut=('mutate',))
  assert made == wording.Wording(PARENT, 'cut')


def test_a_parent_that_leaves_no_room_is_kept_without_a_call():
  made, requests = ask('mutate', '<task>Add three to a number.', limit=3)
  assert made == wording.Wording(PARENT, 'no_room') and not requests


def test_every_knob_has_an_effect():
  reply = '<task>Add three to a number, which is given.'
  knobs = {'temperature': 0.2, 'max_tokens': 30, 'words': 50}
  fields = {field.name for field in dataclasses.fields(wording.WordingConfig)}
  assert {*knobs, 'guards'} == fields
  _, (usual,) = ask('mutate', reply)
  _, (other,) = ask('mutate', reply, **knobs)
  assert (other.temperature, other.max_tokens) == (0.2, 30)
  assert 'at most 50 words' in other.messages[0].content
  assert 'at most' not in usual.messages[0].content
  made, _ = ask('mutate', reply, guards=GuardsConfig(min_words=20))
  assert made.refused == 'empty'
