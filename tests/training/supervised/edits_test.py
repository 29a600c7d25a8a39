"""Fail -> pass edits of hand-written traces."""

import dataclasses
import json

import pytest

from promptrl_jax.prompts import templates
from promptrl_jax.testing import tiny
from promptrl_jax.training.supervised import edits

TASKS = tiny.tasks(6)
SIGNATURE = 'def add(x):'


def row(step, statement, passed, *, k=2, attempt='', code='', **changes):
  return {
    'strategy': 'ppo',
    'protocol': 'visible1',
    'budget': 8,
    'seed': 0,
    'row': 0,
    'task_id': f'tiny/train/{k}',
    'step': step,
    'action': 'semantic',
    'prompt': {
      'statement': statement,
      'signature': SIGNATURE,
      'tests': [],
      'attempt': attempt,
      'feedback': '',
    },
    'code': code or f'def add(x):\n  return x + {k if passed else 77}',
    'visible_passed': passed,
    'feedback': f'TEST_PASS_MASK: ({passed},)\nFAILED: add(1) returned 78, '
    'expected 3',
  } | changes


def pairs(rows):
  return [(e.before, e.after) for e in edits.find(rows)]


def test_each_wording_that_failed_is_paired_with_the_one_that_passed():
  rows = [row(0, 'A', False), row(1, 'B', False), row(2, 'C', True)]
  assert pairs(rows) == [('A', 'C'), ('B', 'C')]
  found = edits.find(rows)[0]
  assert found.function_name == 'add'
  assert found.code == 'def add(x):\n  return x + 2'
  assert 'expected 3' in found.feedback


@pytest.mark.parametrize(
  'rows',
  [
    [row(0, 'A', True)],
    [row(0, 'A', True), row(1, 'B', True)],
    [row(0, 'A', False), row(1, 'B', False)],
    [row(0, 'A', False), row(1, 'A', True)],  # another sample
    [row(0, 'A', False), row(1, 'B', False), row(2, 'B', True)][1:],
    [row(0, 'A', False), row(1, 'B', True, attempt='def add(x): 0')],
    [row(0, 'A', False, attempt='def add(x): 0'), row(1, 'B', True)],
    [row(0, 'A', False), row(0, 'B', True, k=3)],  # another problem
    [row(0, 'A', False), row(0, 'B', True, strategy='random')],
    [row(0, 'A', False), row(0, 'B', True, seed=1)],
    [row(0, 'A', False), row(0, 'B', True, row=1)],
    [row(3, 'A', False), row(1, 'B', True)],  # a run appended to another
    [row(0, 'A', False), row(1, '', True, prompt=None)],  # submit
  ],
)
def test_what_is_no_edit(rows):
  assert pairs(rows) == []


def test_a_wording_that_failed_before_is_not_learned_from():
  rows = [row(0, 'A', False), row(1, 'B', False), row(2, 'B', True)]
  assert pairs(rows) == []


def test_episodes_may_be_interleaved():
  rows = [
    row(0, 'A', False),
    row(0, 'X', False, k=3, row=1),
    row(1, 'B', True),
    row(1, 'Y', True, k=3, row=1),
  ]
  assert pairs(rows) == [('A', 'B'), ('X', 'Y')]


def test_equal_edits_count_once():
  rows = [row(0, 'A', False), row(1, 'B', True)]
  again = [{**r, 'seed': 1} for r in rows]
  assert len(edits.find(rows + again)) == 1


def rewritten(after, code, k=2):
  return edits.Edit(f'tiny/train/{k}', 'add', 'A', 'FAILED: x', after, code)


def test_only_edits_that_are_true_and_clean_are_kept(pool):
  right = 'def add(x):\n  return x + 2'
  lucky = 'def add(x):\n  return 3 if x == 1 else 0'  # the visible test alone
  good = rewritten('Please add 2 to the number.', right)
  found = edits.keep_true(
    [
      good,
      rewritten('Please add a number to it.', lucky),
      rewritten('Please add 2: return x + 2', right),
      rewritten('Please add 2 to the number.', right, k=99),
    ],
    TASKS,
    pool,
  )
  assert found == [good]


def test_test_problems_are_not_learned_from(pool):
  with pytest.raises(ValueError, match="of split 'test'"):
    edits.keep_true([], tiny.tasks(1, 'test'), pool)


def test_chats_are_what_the_rewriter_is_asked():
  edit = rewritten('Add 2 to the number.', '')
  chats = edits.to_chats([edit, edit], 'both')
  assert len(chats) == 2 and set(chats.values()) == {'tiny/train/2'}
  texts = [chat.messages[0][1] for chat in chats]
  assert texts == ['A\nname: add\n=>', 'A\nname: add\n# x\n=>']
  for kind, count in (('with', 1), ('without', 0)):
    (chat,) = edits.to_chats([edit], kind)
    assert chat.messages[0][1].count('# x') == count


@pytest.mark.parametrize('name', sorted(templates.TEMPLATES))
def test_the_template_reads_the_reply_as_the_statement(name):
  statement = 'Write a Python function add that adds 2 to the number.'
  (chat,) = edits.to_chats([rewritten(statement, '')], 'without', name)
  template = templates.TEMPLATES[name]
  prompt = templates.RewritePrompt('A', 'add')
  assert template.rewriter(prompt) == chat.messages
  assert template.rewritten(prompt, chat.reply) == statement


def test_unknown_names_are_refused():
  with pytest.raises(ValueError, match="feedback 'some'"):
    edits.to_chats([], 'some')
  with pytest.raises(ValueError, match="template 'xml'"):
    edits.to_chats([], 'both', 'xml')


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    ('{"task_id": ', 'no JSON'),
    ('[1]', 'expected an object, got list'),
    (json.dumps({'step': 3}), "'task_id' must be str, got None"),
    (json.dumps(row('x', 'A', True)), "'step' must be int, got 'x'"),
    (json.dumps(row(0, 'A', True, prompt='A')), "got 'A'"),
    (json.dumps(row(0, 'A', True, prompt={'statement': 'A'})), 'signature'),
  ],
)
def test_a_broken_line_is_named(tmp_path, line, message):
  path = tmp_path / 'trace.jsonl'
  path.write_text(f'{json.dumps(row(0, "A", False))}\n{line}\n')
  with pytest.raises(ValueError, match=message) as error:
    list(edits.read_trace(path))
  assert f'{path}:2' in str(error.value)


def test_a_missing_trace_is_named(tmp_path):
  with pytest.raises(FileNotFoundError, match='no trace at'):
    list(edits.read_trace(tmp_path / 'trace.jsonl'))


def test_what_passes_as_it_is_is_an_edit_that_changes_nothing():
  rows = [
    row(0, 'A', True, action='keep'),
    row(0, 'B', False, action='keep', k=1),
    row(1, 'C', True, action='keep', k=1),  # edited before
    row(0, 'D', True, action='semantic', k=3),  # edited now
    row(0, 'A', True, action='resample', seed=4),
    row(0, '', True, action='keep', prompt=None),
  ]
  (kept,) = edits.find_kept(rows)
  assert (kept.before, kept.after, kept.feedback) == ('A', 'A', '')
  (chat,) = edits.to_chats([kept], 'both')
  assert chat.reply == ' A'


def test_rewrites_that_solve_a_task_are_edits_of_it():
  first, second = tiny.tasks(2)
  first = dataclasses.replace(
    first, statement='those that top 7', feedback='FAILED: it returned 1'
  )
  found = edits.from_rewrites((first, second), (['above 7', 'over 7'], []))
  assert [e.after for e in found] == ['above 7', 'over 7']
  for edit in found:
    assert (edit.task_id, edit.before) == (first.task_id, first.statement)
    assert edit.feedback == first.feedback
    assert edit.function_name == first.entry_point


@pytest.mark.parametrize('template', ['plain', 'chat'])
def test_a_reply_is_read_as_its_statement(template):
  statement = 'Write a Python function add that adds 7.'
  prompt = templates.RewritePrompt('Add 7.', 'add')
  read = templates.TEMPLATES[template].rewritten(
    prompt, edits.to_reply(statement, template)
  )
  assert read == statement
