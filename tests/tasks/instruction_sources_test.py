import json

import pytest

from promptrl_jax.tasks import instruction_sources, instructions
from promptrl_jax.tasks.mbpp import DataError

CONSTANTS = {'instruction': 'Rate it.', 'task': 'classification'}


def rows(kind, path):
  return list(instruction_sources.read(kind, str(path)))


@pytest.fixture
def table(tmp_path):
  path = tmp_path / 'x.csv'
  path.write_text('id,review,stars\n1,"Good, it is",1\n2,"two\nlines",0\n')
  return path


def test_a_csv_becomes_lines_by_its_mapping(table):
  lines = instruction_sources.convert(
    rows('csv', table),
    {'input': 'review', 'output': 'stars'},
    CONSTANTS,
    drop=('id',),
    labels=('bad', 'good'),
  )
  assert lines == [
    CONSTANTS | {'input': 'Good, it is', 'output': 'good'},
    CONSTANTS | {'input': 'two\nlines', 'output': 'bad'},
  ]


def test_a_text_of_seven_lines_becomes_seven_records(tmp_path):
  path = tmp_path / 'x.txt'
  path.write_text('\n\n'.join(f'Prompt {i}.' for i in range(7)) + '\n')
  lines = instruction_sources.convert(
    rows('text', path), {'instruction': 'line'}, {'output': 'ok'}
  )
  assert [line['instruction'] for line in lines] == [
    f'Prompt {i}.' for i in range(7)
  ]


def test_json_lines_keep_lists_of_outputs(tmp_path):
  path = tmp_path / 'x.jsonl'
  path.write_text(json.dumps({'q': 'Who?', 'a': ['me', 'I']}))
  lines = instruction_sources.convert(
    rows('jsonl', path), {'input': 'q', 'output': 'a'}, {'instruction': 'Say.'}
  )
  (task,) = instructions.group([('x', line) for line in lines])
  assert task.checker.examples[0].outputs == ('me', 'I')


@pytest.mark.parametrize(
  ('columns', 'drop', 'message'),
  [
    ({'input': 'review', 'output': 'stars'}, (), "column 'id' is neither"),
    (
      {'input': 'text', 'output': 'stars'},
      ('id',),
      "no column 'text' for field",
    ),
    ({'input': 'review'}, ('id', 'stars'), "what field 'output' is"),
    ({'label': 'stars'}, (), "field 'label': expected instruction, input"),
    ({'task': 'stars', 'output': 'id'}, (), "'task' is both mapped and given"),
  ],
)
def test_what_is_not_mapped_is_refused_and_not_guessed(
  table, columns, drop, message
):
  with pytest.raises(DataError, match=message):
    instruction_sources.convert(rows('csv', table), columns, CONSTANTS, drop)


def test_a_bad_row_is_refused_with_its_line(table):
  columns = {'input': 'review', 'output': 'stars'}
  with pytest.raises(
    DataError, match=r'x\.csv:2: label .1.: expected a number'
  ):
    instruction_sources.convert(
      rows('csv', table), columns, CONSTANTS, ('id',), ('bad',)
    )
  with pytest.raises(DataError, match=r"x\.csv:2: unknown task 'poem'"):
    instruction_sources.convert(
      rows('csv', table), columns, CONSTANTS | {'task': 'poem'}, ('id',)
    )
  table.write_text('a,b\n1,2\n3\n')
  with pytest.raises(DataError, match=r'x\.csv:3: not as many values'):
    rows('csv', table)


def test_sources_that_are_not_there_are_refused(tmp_path):
  with pytest.raises(DataError, match='no csv file at'):
    instruction_sources.read('csv', str(tmp_path / 'none'))
  with pytest.raises(DataError, match="source 'xls': expected one of csv"):
    instruction_sources.read('xls', 'x')
  (tmp_path / 'x').write_text('')
  with pytest.raises(DataError, match='has no rows'):
    instruction_sources.convert(
      rows('text', tmp_path / 'x'), {'output': 'line'}, {'instruction': 'x'}
    )
