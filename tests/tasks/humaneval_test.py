"""HumanEval: prompts, tests, splits; a file in its format made for this."""

import json

import pytest

from promptrl_jax.execution import Program
from promptrl_jax.tasks import load, mbpp
from promptrl_jax.tasks.json_lines import DataError
from promptrl_jax.tasks.task_set import DataConfig

DOUBLE = {
  'task_id': 'HumanEval/0',
  'prompt': (
    'from typing import List\n\n\n'
    'def double_all(numbers: List[float]) -> List[float]:\n'
    '    """ Return all numbers, doubled.\n'
    '    >>> double_all([1.0])\n    [2.0]\n    """\n'
  ),
  'entry_point': 'double_all',
  'canonical_solution': '    return [2 * n for n in numbers]\n',
  'test': (
    "\n\nMETADATA = {\n    'author': 'x'\n}\n\n\ndef check(candidate):\n"
    '    assert candidate([]) == []\n'
    '    assert candidate([1.5]) == [3.0], "Error"\n'
    '    assert abs(candidate([0.1])[0] - 0.2) < 1e-6\n\n'
  ),
}
# The test calls a function of the prompt, in a loop, with random values.
DECODE = {
  'task_id': 'HumanEval/1',
  'prompt': (
    '\ndef encode(word: str):\n    """Reverse a word."""\n'
    '    return word[::-1]\n\n\ndef decode(word: str):\n'
    "    '''\n    Takes a word of encode. Returns the word before.\n    '''\n"
  ),
  'entry_point': 'decode',
  'canonical_solution': '    return encode(word)\n',
  'test': (
    'def check(candidate):\n    import random\n    for _ in range(20):\n'
    "        word = ''.join(random.choice('abc') for _ in range(5))\n"
    '        assert candidate(encode(word)) == word\n'
  ),
}
# Something stands before the docstring, as in HumanEval/115.
ROOT = {
  'task_id': 'HumanEval/2',
  'prompt': (
    'def root(n):\n    import math\n    """\n    The root, rounded down.\n'
    '    """\n'
  ),
  'entry_point': 'root',
  'canonical_solution': '    return math.floor(math.sqrt(n))\n',
  'test': (
    'def check(candidate):\n    # Simple cases\n'
    '    assert True, "This prints"\n    assert candidate(9) == 3\n'
    '    for n in range(5):\n        assert candidate(n * n) == n\n'
  ),
}
ROWS = [DOUBLE, DECODE, ROOT]


def write(tmp_path, rows=ROWS, name='HumanEval.jsonl'):
  path = tmp_path / name
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  return str(path)


def mbpp_file(tmp_path):
  rows = [
    {
      'task_id': number,
      'text': f'Write a function that returns number {number}.',
      'code': f'def f(x):\n  return {number}',
      'test_list': [f'assert f({x}) == {number}' for x in (1, 2)],
    }
    for number in (1, 11, 511, 601)
  ]
  return write(tmp_path, rows, 'mbpp.jsonl')


def tasks(path, protocol='blind'):
  config = DataConfig('humaneval', path, protocol)
  return load.load_tasks(config, ['test'])['test']


def test_a_task_has_statement_signature_and_single_tests(tmp_path):
  double, decode, root = tasks(write(tmp_path))
  assert double.task_id == 'HumanEval/0'
  assert double.statement == (
    'Return all numbers, doubled.\n>>> double_all([1.0])\n[2.0]'
  )
  assert double.signature == (
    'from typing import List\n\n\n'
    'def double_all(numbers: List[float]) -> List[float]:'
  )
  assert double.tests == (
    'assert double_all([]) == []',
    'assert double_all([1.5]) == [3.0]',
    'assert abs(double_all([0.1])[0] - 0.2) < 1e-06',
  )
  assert double.setup == ''
  assert decode.statement == 'Takes a word of encode. Returns the word before.'
  assert 'def encode(word: str):' in decode.setup
  assert decode.signature.endswith('def decode(word: str):')
  assert (root.statement, root.signature) == (
    'The root, rounded down.',
    'def root(n):',
  )
  assert [test.count('assert') for test in root.tests] == [1, 1]


def test_references_pass_and_other_programs_do_not(tmp_path, pool):
  read = tasks(write(tmp_path))
  programs = [
    Program(code, task.tests, task.setup, task.entry_point)
    for task in read
    for code in (task.reference, f'{task.signature}\n    return None')
  ]
  assert [r.passed for r in pool.run(programs)] == [True, False] * 3


def test_a_program_needs_no_helpers_of_the_prompt_of_its_own(tmp_path, pool):
  decode = tasks(write(tmp_path))[1]
  code = 'def decode(word):\n  return encode(word)'
  program = Program(code, decode.tests, decode.setup, 'decode')
  assert pool.run([program])[0].passed


def test_a_task_with_one_test_is_left_out_where_none_would_be_hidden(
  tmp_path, caplog
):
  assert [t.task_id for t in tasks(write(tmp_path), 'visible1')] == [
    'HumanEval/0',
    'HumanEval/2',
  ]
  assert '1 of 3 tasks of test are left out (HumanEval/1)' in caplog.text
  with pytest.raises(ValueError, match=r"'visible_all' does not fit humaneval"):
    tasks(write(tmp_path), 'visible_all')


def test_there_is_no_training_split_of_its_own(tmp_path):
  config = DataConfig('humaneval', write(tmp_path))
  with pytest.raises(DataError, match=r"no split 'train'.*options\.mbpp="):
    load.load_tasks(config)
  with pytest.raises(DataError, match=r"split 'ood': HumanEval has test"):
    load.load_tasks(config, ['ood'])


def test_mbpp_is_trained_on_where_it_is_given(tmp_path):
  path = write(tmp_path)
  options = {'mbpp': mbpp_file(tmp_path)}
  config = DataConfig('humaneval', path, 'blind', options=options)
  parts = load.load_tasks(config)
  ids = {split: [t.task_id for t in part] for split, part in parts.items()}
  assert ids == {
    'train': ['mbpp/601'],
    'validation': ['mbpp/511'],
    'test': ['HumanEval/0', 'HumanEval/1', 'HumanEval/2'],
  }
  alone = load.describe(DataConfig('humaneval', path))
  digest = mbpp.MBPP.digest(options['mbpp'])
  assert load.describe(config) == f'{alone} + mbpp {digest}'


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'test': 'assert f(1)'}, r'jsonl:1: HumanEval/0: no function check'),
    ({'test': 'def check('}, r'jsonl:1: HumanEval/0: the tests do not parse'),
    ({'prompt': 'def g(x):\n  "Text."\n'}, r':1: .* defines double_all'),
    (
      {'prompt': 'def double_all(x):\n', 'canonical_solution': '  return x'},
      r'jsonl:1: HumanEval/0: double_all has no docstring',
    ),
    ({'plus_input': []}, r'jsonl:1: the row is one of HumanEval\+'),
  ],
)
def test_a_malformed_row_is_named(tmp_path, change, message):
  with pytest.raises(DataError, match=message):
    tasks(write(tmp_path, [DOUBLE | change]))
