"""APPS: calls, standard input, splits; files in its format made for this."""

import json

import pytest

from promptrl_jax.execution import Program
from promptrl_jax.tasks import apps, load, standard_input
from promptrl_jax.tasks.json_lines import DataError
from promptrl_jax.tasks.task_set import DataConfig

SUM = """\
import sys
read = sys.stdin.readline
total: int = 0
count = int(read())
def add(value):
  global total
  total += value
for _ in range(count):
  add(int(read()))
if __name__ == '__main__':
  print(total)
  print('done ', end='')
  sys.exit(0)
"""
LETTERS = """\
class Solution:
    def letters(self, words: List[str]) -> List[int]:
        return tuple(len(word) for word in words)
"""


def row(number, difficulty='introductory', **changes):
  """A problem with a function, in the form of the training file."""
  cases = {
    'fn_name': 'twice',
    'inputs': [[number], ['ab'], [{'1': 2}]],
    'outputs': [[2 * number], ['abab'], [None]],
  }
  code = (
    'def twice(x):\n    return None if isinstance(x, dict) and x[1] else 2 * x'
  )
  return {
    'problem_id': number,
    'question': f'Return the argument twice, variant {number}.\n',
    'solutions': json.dumps([code]),
    'input_output': json.dumps(cases),
    'difficulty': difficulty,
    'url': '',
    'starter_code': 'def twice(x):\n\t',
    **changes,
  }


def cases(**fields):
  return json.dumps(fields)


TEST = [
  row(0),
  row(
    1,
    'interview',
    question='Count the letters of each word.',
    solutions=json.dumps(['print "two"', LETTERS]),
    starter_code=(
      'class Solution:\n    def letters(self, words: List[str]) -> List[int]:\n'
      '        '
    ),
    input_output=cases(
      fn_name='letters',
      inputs=[[['a', 'bb']], [['ccc']]],
      outputs=[[1, 2], [3]],
    ),
  ),
  row(
    2,
    'competition',
    question='Add the numbers.',
    solutions=json.dumps([SUM]),
    starter_code='',
    input_output=cases(
      inputs=['2\n3\n4\n', ['1', '5'], '2\n3\n4\n'],
      outputs=['7\ndone\n', ['5', 'done'], '7\ndone\n'],
    ),
  ),
]


def write(folder, test=TEST, train=None):
  for name, rows in (('test', test), ('train', train)):
    if rows is not None:
      lines = ''.join(json.dumps(one) + '\n' for one in rows)
      (folder / f'{name}.jsonl').write_text(lines)
  return str(folder)


def tasks(path, split='test', protocol='blind', **options):
  config = DataConfig('apps', path, protocol, options=options)
  return load.load_tasks(config, [split])[split]


def verdicts(pool, task, *codes):
  programs = [
    Program(code, task.tests, task.setup, task.entry_point) for code in codes
  ]
  return [result.status for result in pool.run(programs)]


def test_a_task_has_statement_signature_and_tests(tmp_path):
  twice, letters, numbers = tasks(write(tmp_path))
  assert twice.task_id == 'apps/test/0' and twice.split == 'test'
  assert twice.statement == 'Return the argument twice, variant 0.'
  assert twice.signature == 'def twice(x):'
  # An output may be the value, or the value in a list.
  assert twice.tests == (
    'assert twice(0) in (0, [0])',
    "assert twice('ab') in ('abab', ['abab'])",
    'assert twice({1: 2}) in (None, [None])',
  )
  assert (letters.entry_point, letters.signature) == (
    'Solution',
    'from typing import List\n\n\nclass Solution:\n'
    '  def letters(self, words: List[str]) -> List[int]:',
  )
  assert letters.tests[0] == (
    "assert Solution().letters(['a', 'bb']) in ([1, 2], (1, 2))"
  )
  assert letters.reference.startswith('from typing import List\n\nclass')
  assert numbers.signature == 'def main():'
  assert 'Write a function main()' in numbers.statement
  assert numbers.tests == (  # A case that stands there twice is one test.
    "assert printed('2\\n3\\n4\\n') == ['7', 'done']",
    "assert printed('1\\n5') == ['5', 'done']",
  )


def test_references_pass_and_other_programs_do_not(tmp_path, pool):
  for task in tasks(write(tmp_path)):
    wrong = f'{task.signature}\n    return None'
    status = verdicts(pool, task, task.reference, wrong)
    assert status[0] == 'passed' and status[1] != 'passed'


@pytest.mark.parametrize(
  ('code', 'status'),
  [
    ('def main():\n  n = int(input())\n  {sum}', 'passed'),
    ('from sys import stdin\ndef main():\n  next(stdin)\n  {lines}', 'passed'),
    (
      'import sys\nread = sys.stdin.buffer.read\ndef main():\n  {all}',
      'passed',
    ),
    (
      'import sys\nwrite = sys.stdout.write\ndef main():\n'
      '  write("7 ") if "3" in sys.stdin.read() else write("5 ")\n'
      '  sys.stdout.buffer.write(b" done")',
      'passed',
    ),
    ('def main():\n  print(7, "done")', 'failed'),
    ('def main():\n  print(int("x"))', 'error'),
    ('def solve():\n  pass', 'error'),
    ('def main():\n  return ["7", "done"]', 'failed'),
  ],
)
def test_a_program_reads_its_own_input_in_each_test(
  tmp_path, pool, code, status
):
  task = tasks(write(tmp_path))[2]
  parts = {
    'sum': 'print(sum(int(input()) for _ in range(n)), "done")',
    'lines': 'print(sum(map(int, stdin)), "done")',
    'all': 'print(sum(map(int, read().split()[1:])), "done")',
  }
  for name, text in parts.items():
    code = code.replace(f'{{{name}}}', text)
  assert verdicts(pool, task, code) == [status]


@pytest.mark.parametrize(
  ('script', 'words'),
  [
    ('def main():\n  global n\n  n = 1\n  print(input())\nmain()', ['x']),
    ('from math import *\nprint(floor(2.5), input())', ['2', 'x']),
    ('n = 0\nn += 1\nprint(n)', ['1']),
    ('import math as m\nclass A:\n  b = m.floor(1.5)\nprint(A.b)', ['1']),
  ],
)
def test_each_call_of_a_script_is_a_run_of_its_own(script, words, pool):
  code = standard_input.to_function(script)
  tests = [standard_input.test('x', ' '.join(words))] * 2
  program = Program(code, tests, standard_input.SETUP, 'main')
  assert pool.run([program])[0].status == 'passed'


@pytest.mark.parametrize('script', ['print "two"', 'return 3', 'a\x00b'])
def test_what_is_no_script_has_no_function(script):
  assert standard_input.to_function(script) is None


def test_validation_is_drawn_from_the_training_file(tmp_path):
  path = write(tmp_path, TEST[1:], train=[row(n) for n in range(20)])
  parts = load.load_tasks(DataConfig('apps', path, 'blind'))
  ids = {split: {t.task_id for t in part} for split, part in parts.items()}
  assert len(ids['validation']) == 2 and len(ids['train']) == 18
  assert not ids['train'] & ids['validation']
  # The files number their problems alike.
  assert 'apps/test/1' in ids['test']
  assert 'apps/train/1' in ids['train'] | ids['validation']
  drawn = tasks(path, 'validation', seed=1)
  assert {t.task_id for t in drawn} != ids['validation']


def test_hashes_are_those_of_the_files_and_of_the_draw(tmp_path):
  def digest(path, **options):
    return load.describe(DataConfig('apps', path, options=options))

  path = write(tmp_path)
  alone = digest(path)
  assert alone.startswith('apps test ')
  both = digest(write(tmp_path, train=[row(1)]))
  assert both.startswith('apps train ') and both.endswith(alone[5:])
  assert digest(path, seed=3) == f'{both}, seed=3'
  write(tmp_path, test=TEST[:2])
  assert digest(path) != both


def test_what_cannot_be_run_is_left_out_and_counted(tmp_path, caplog):
  rows = [
    *TEST,
    row(3, input_output=''),
    row(4, input_output=cases(inputs=['9' * 99], outputs=['1'])),
    row(5, input_output='{"inputs": ["1"], "outputs": [' + '9' * 5000 + ']}'),
    row(6, solutions=''),
  ]
  read = tasks(write(tmp_path, rows), longest_test=80)
  assert [task.task_id[-1] for task in read] == ['0', '1', '2', '6']
  assert read[3].reference == '' and read[3].signature == 'def twice(x):'
  assert (
    '3 of 7 problems of test are left out: 1 have no tests; 1 have no test of '
    'at most 80 characters; 1 have a number that is too long to be read'
  ) in caplog.text
  hard = tasks(write(tmp_path, rows), difficulty='competition')
  assert [task.task_id for task in hard] == ['apps/test/2']


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'input_output': '{'}, r'test\.jsonl:1: input_output is not JSON'),
    ({'input_output': '[1]'}, 'input_output must hold a JSON dict, got list'),
    (
      {'input_output': '{"inputs": [1, 2], "outputs": [1]}'},
      'as many outputs as inputs, got 2 inputs',
    ),
    ({'question': 3}, "'question' must be str, got 3: expected a row of APPS"),
  ],
)
def test_a_malformed_row_is_named(tmp_path, changes, message):
  with pytest.raises(DataError, match=message):
    tasks(write(tmp_path, [row(0, **changes)]))


def test_missing_files_and_wrong_settings_are_refused(tmp_path):
  path = write(tmp_path)
  with pytest.raises(DataError, match=r'no APPS file at .*train\.jsonl'):
    tasks(path, 'train')
  for missing in (str(tmp_path / 'test.jsonl'), str(tmp_path / 'none')):
    with pytest.raises(DataError, match=r'no folder with test\.jsonl'):
      tasks(missing)
  empty = tmp_path / 'empty'
  empty.mkdir()
  with pytest.raises(DataError, match=r'no folder with test\.jsonl'):
    apps.digest(DataConfig('apps', str(empty), options=apps.Options()))
  with pytest.raises(DataError, match="split 'ood': APPS has train, valid"):
    apps.load('ood', DataConfig('apps', path, options=apps.Options()))
  for options in (
    {'difficulty': 'easy'},
    {'validation_share': 1.0},
    {'longest_test': 0},
  ):
    with pytest.raises(ValueError, match=f'{next(iter(options))}='):
      tasks(path, **options)
  with pytest.raises(DataError, match='no usable problem for the split'):
    tasks(write(tmp_path, [row(0, input_output='')]))
