import json

import pytest

from promptrl_jax.tasks import instructions
from promptrl_jax.tasks.mbpp import DataError
from promptrl_jax.types import Example

ROW = {'instruction': 'Name the capital.', 'input': 'France', 'output': 'Paris'}


def write(path, *rows):
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  return path


def prompt(task, instruction):
  checker = task.checker
  return instructions.prompt(checker, instruction, checker.examples[0])


def test_lines_of_one_instruction_are_one_task(tmp_path):
  other = {'instruction': 'Add.', 'input': '1 2', 'output': '3', 'task': 'math'}
  more = ROW | {'input': 'Peru', 'output': ['Lima', 'Ciudad de los Reyes']}
  first, second = instructions.load(write(tmp_path / 'x', ROW, other, more))
  assert first.statement == 'Name the capital.'
  assert instructions.kind_of(first) == 'qa'  # the default
  assert first.checker.metric == 'em'
  assert first.checker.examples == (
    Example('France', ('Paris',)),
    Example('Peru', ('Lima', 'Ciudad de los Reyes')),
  )
  assert instructions.kind_of(second) == 'math'
  assert len(second.checker.examples) == 1
  assert first.task_id != second.task_id


def test_a_task_written_and_read_again_is_the_same(tmp_path):
  rows = [ROW, ROW | {'input': 'Peru', 'output': ['Lima', 'a\u2028b']}]
  (task,) = instructions.load(write(tmp_path / 'x', *rows))
  again = write(tmp_path / 'y', *instructions.to_rows(task))
  assert instructions.load(again) == (task,)


def test_labels_are_the_outputs_of_a_classification_task(tmp_path):
  rows = [
    ROW | {'task': 'classification', 'input': str(i), 'output': label}
    for i, label in enumerate(('b', 'a', 'b'))
  ]
  (task,) = instructions.load(write(tmp_path / 'x', *rows))
  assert task.checker.labels == ('a', 'b')


def test_a_template_replaces_the_text_of_the_prompt(tmp_path):
  rows = [ROW, ROW | {'template': 'Q: {input}\n{instruction}\nA:'}]
  plain, own = instructions.load(write(tmp_path / 'x', *rows))
  new = 'Say {input}.'
  assert prompt(plain, new) == 'Say {input}.\nInput: France'
  assert prompt(own, new) == 'Q: France\nSay {input}.\nA:'


def test_without_input_the_prompt_is_the_instruction(tmp_path):
  row = {'instruction': 'Say hi.', 'output': 'hi'}
  (task,) = instructions.load(write(tmp_path / 'x', row))
  assert prompt(task, task.statement) == 'Say hi.'


def test_a_blank_instruction_is_refused():
  with pytest.raises(ValueError, match="instruction ' ': expected a text"):
    instructions.make_task(' ', 'qa', '{instruction}', [Example('', ('x',))])


def test_the_name_of_a_task_is_the_same_in_every_split(tmp_path):
  path = write(tmp_path / 'x', ROW)
  names = {instructions.load(path, s)[0].task_id for s in ('train', 'test')}
  assert len(names) == 1


def make_task(count):
  examples = [Example(str(i), ('x',)) for i in range(count)]
  return instructions.make_task(
    'Spell.', 'qa', '{instruction} {input}', examples
  )


def test_a_subsample_depends_on_task_and_seed_alone():
  task = make_task(50)
  draw = lambda seed: instructions.subsample(task, 10, seed).checker.examples
  assert draw(0) == draw(0) != draw(1)
  assert len(set(draw(0))) == 10
  assert instructions.subsample(task, 0) is task
  assert instructions.subsample(task, 99) is task
  with pytest.raises(ValueError, match='limit=-1'):
    instructions.subsample(task, -1)


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (
      {'task': 'poem'},
      "unknown task 'poem': expected qa, classification, math",
    ),
    ({'instruction': ' '}, '"instruction" is blank'),
    ({'instruction': 3}, "'instruction' must be a text, got 3"),
    ({'input': None}, "'input' must be a text, got None"),
    ({'output': 3}, '"output" must be a text or a list of texts, got 3'),
    ({'output': []}, '"output" must be a text or a list'),
    ({'task': 'math'}, "output 'Paris' of a math task has no number"),
    ({'task': 'classification', 'output': ''}, 'label .* is blank'),
    ({'template': '{input}'}, 'expected {instruction} once'),
    ({'template': '{instruction}'}, "would drop the input 'France'"),
    ({'label': 'x'}, "unknown field 'label'"),
  ],
)
def test_a_bad_line_is_refused_with_file_and_line(tmp_path, change, message):
  path = write(tmp_path / 'dev.jsonl', ROW, ROW | change)
  with pytest.raises(DataError, match=rf'dev\.jsonl:2: .*{message}'):
    instructions.load(path)


@pytest.mark.parametrize('field', ['instruction', 'output'])
def test_a_missing_field_is_named(tmp_path, field):
  row = {k: v for k, v in ROW.items() if k != field}
  with pytest.raises(DataError, match=f"x:1: field '{field}' is missing"):
    instructions.load(write(tmp_path / 'x', row))


def test_files_without_lines_or_json_are_refused(tmp_path):
  with pytest.raises(DataError, match='no instruction file at'):
    instructions.load(tmp_path / 'none')
  (tmp_path / 'x').write_text('\n\n')
  with pytest.raises(DataError, match='x is empty'):
    instructions.load(tmp_path / 'x')
  (tmp_path / 'x').write_text('\n[1]\n')
  with pytest.raises(DataError, match='x:2: expected an object, got list'):
    instructions.load(tmp_path / 'x')
  (tmp_path / 'x').write_text('{"a"')
  with pytest.raises(DataError, match='x:1: not JSON'):
    instructions.load(tmp_path / 'x')


def tasks(tmp_path, *rows):
  return instructions.load(write(tmp_path / 'x', *rows))


def test_splits_are_matched_by_instruction_and_share_labels(tmp_path):
  label = ROW | {'task': 'classification'}
  dev = tasks(tmp_path, ROW, label)
  test = tasks(
    tmp_path,
    label | {'input': 'Peru', 'output': 'Lima'},
    ROW | {'input': 'Peru'},
  )
  pairs = instructions.match(dev, test)
  kinds = [tuple(map(instructions.kind_of, pair)) for pair in pairs]
  assert kinds == [('qa', 'qa'), ('classification', 'classification')]
  for task in pairs[1]:
    assert task.checker.labels == ('Lima', 'Paris')


def test_an_input_in_both_splits_is_refused(tmp_path):
  with pytest.raises(DataError, match="share the input 'France'"):
    instructions.match(tasks(tmp_path, ROW), tasks(tmp_path, ROW))


def test_a_task_of_one_split_alone_is_refused(tmp_path):
  other = ROW | {'instruction': 'Other.', 'input': 'Peru'}
  with pytest.raises(DataError, match="'Other.'.* is in the test file alone"):
    instructions.match(
      tasks(tmp_path, ROW), tasks(tmp_path, other, ROW | {'input': 'Chad'})
    )
