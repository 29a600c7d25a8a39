"""The guard of replies in words, and the semantic operator behind it."""

import pytest

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation import refusals
from promptrl_jax.evaluation.play import LineUp, rivals
from promptrl_jax.llm import replies
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.backend import Completion
from promptrl_jax.prompts.templates import CHAT, CODE, RewritePrompt
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

TASK = tiny.tasks(4, 'test')[3]  # to add 3
TOLD = 'Reword what follows, and keep every number as it is.'
SAID = 'Rewritten task: Write a Python function add that adds 3 to x.'
STATEMENT = SAID.removeprefix('Rewritten task: ')


def reply(text, finish_reason='stop'):
  return Completion(text, 10, 5, finish_reason)


@pytest.mark.parametrize(
  ('completion', 'text', 'reason'),
  [
    (None, '', 'no_room'),
    (reply('Add 3', 'length'), 'Add 3', 'cut'),
    (reply('Add 3', 'length'), '', 'cut'),
    (reply('?'), '', 'malformed'),
    (reply(''), 'Sure: Keep EVERY number as it is.', 'instruction'),
    # Five words in a row may be anybody's.
    (reply(''), 'Sure: keep every number as is.', ''),
    (reply(''), 'Add 3.', ''),
  ],
)
def test_a_reply_is_refused_for_its_first_reason(completion, text, reason):
  assert replies.refusal(completion, text, TOLD) == reason


def test_words_of_the_task_are_not_those_of_the_instruction_alone():
  assert replies.refusal(reply(''), TOLD, TOLD, (f'Task: {TOLD}',)) == ''


class Rewriter(ScriptedBackend):
  """Answers a request for a rewrite with one completion, again and again."""

  def __init__(self, completion):
    super().__init__(lambda request: completion.text)
    self._completion = completion

  def complete(self, requests):
    super().complete(requests)
    return [self._completion] * len(requests)


def play(pool, completion, template='chat', program='return 0'):
  """One episode of `semantic` alone; its run and the rewriter."""
  shown = '```python\ndef add(x):\n  {}\n```' if template != 'plain' else (
    '\n  {}'
  )  # fmt: skip
  coder = ScriptedBackend(lambda request: shown.format(program))
  rewriter = Rewriter(completion)
  line_up = LineUp(
    {'rewriter': rewriter, 'coder': coder}, pool, AskConfig(template=template)
  )
  run = line_up.run(
    rivals(EditingConfig())['semantic'],
    [TASK],
    protocol='visible1',
    budget=2,
    seed=0,
  )
  (row,) = run.trace
  return row, coder.batches[-1][0].messages[-1].content


@pytest.mark.parametrize(
  ('text', 'finish_reason', 'reason'),
  [
    (SAID, 'stop', ''),
    (SAID, 'length', 'cut'),
    ('I cannot do that.', 'stop', 'malformed'),
    (
      'Rewritten task: For add, answer with one sentence that begins well.',
      'stop',
      'instruction',
    ),
  ],
)
@pytest.mark.parametrize('template', ['chat', 'code'])
def test_a_template_stands_in_for_a_rewrite_that_is_refused(
  text, finish_reason, reason, template, pool
):
  row, _ = play(pool, reply(text, finish_reason), template)
  assert row.get('refused', '') == reason
  asked = RewritePrompt(TASK.statement, 'add')
  stand_in = (CHAT if template == 'chat' else CODE).stand_in(asked)
  assert row['prompt']['statement'] == (stand_in if reason else STATEMENT)
  assert TASK.statement.rstrip('.') in stand_in
  label = {'strategy': 'semantic', 'protocol': 'visible1'}
  rewrite, program = refusals.Replies([row | label]).rows()
  assert (rewrite['kind'], rewrite['replies']) == ('rewrite', 1)
  assert rewrite['refused'] == ({reason: 1} if reason else {})
  assert (program['kind'], program['refused']) == ('program', {})


def test_models_that_complete_texts_have_no_instruction_to_repeat(pool):
  row, shown = play(pool, reply('Please add 3 to the number.'), 'plain')
  assert 'refused' not in row and 'Please add 3 to the number.' in shown
  row, shown = play(pool, reply('add', 'stop'), 'plain')
  assert row['refused'] == 'malformed' and TASK.statement in shown


def test_the_table_has_what_was_refused_alone():
  label = {'strategy': 's', 'protocol': 'visible1', 'budget': 4}
  rows = [
    label | {'kind': 'rewrite', 'replies': 9, 'refused': {}},
    label | {'kind': 'program', 'replies': 9, 'refused': {'cut': 2}},
  ]
  table = refusals.to_markdown(rows)
  assert '| s | 4 | program | 9 | 2 (2 cut) |' in table
  assert 'rewrite' not in table
  assert refusals.to_markdown(rows[:1]) == ''
