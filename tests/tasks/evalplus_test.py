"""HumanEval+ and MBPP+: files in their formats made for this."""

import json

import pytest

from promptrl_jax.execution import Program
from promptrl_jax.tasks import load, splits
from promptrl_jax.tasks.json_lines import DataError
from promptrl_jax.tasks.task_set import DataConfig

MEAN = {
  'task_id': 'HumanEval/4',
  'prompt': 'def mean(numbers: list) -> float:\n    """ The mean. """\n',
  'entry_point': 'mean',
  'canonical_solution': '    return sum(numbers) / len(numbers)\n',
  'test': 'def check(candidate):\n'
  '    assert candidate([2]) == 2\n    assert candidate([1, 3]) == 2\n',
  'contract': '\n    assert numbers, "invalid inputs" # $_CONTRACT_$\n',
  'base_input': [[[2]], [[1, 3]]],
  'plus_input': [[[0.1, 0.2]], [[1e300, 1e300]], [[-7, 1]]],
  'atol': 1e-06,
}
PAIRS = {
  'task_id': 'Mbpp/63',
  'prompt': '"""\nFind the largest difference in a list of pairs.\n'
  'assert largest([(3, 5), (1, 7)]) == 6\n"""\n',
  'entry_point': 'largest',
  'canonical_solution': '\ndef largest(pairs):\n'
  '  return max(b - a for a, b in set(pairs))\n',
  'base_input': [[[[3, 5], [1, 7]]], [[[0, 1]]]],
  'atol': 0,
  'plus_input': [[[[1, 1]]], [[[0, 9], [0, 9]]]],
  'contract': '',
  'assertion': '\nassert largest([(3, 5), (1, 7)]) == 6\n'
  'assert largest([(0, 1)]) == 1\n',
}
LOOP = """\
import numpy as np

def assertion(out, exp, atol):
    assert out == exp

{head}inputs = {inputs}
{indent}results = {results}
{indent}for i, (inp, exp) in enumerate(zip(inputs, results)):
{indent}    assertion({call}(*inp), exp, {atol})
"""
MEAN_OF_HUB = {
  **{k: MEAN[k] for k in ('task_id', 'prompt', 'entry_point')},
  'canonical_solution': MEAN['canonical_solution'],
  'test': LOOP.format(
    head='def check(candidate):\n    ',
    indent='    ',
    inputs=MEAN['base_input'] + MEAN['plus_input'],
    results=[2, 2, 0.15, float('inf'), -3.0],
    call='candidate',
    atol=1e-6,
  ),
}
PAIRS_OF_HUB = {
  'task_id': 63,
  'code': PAIRS['canonical_solution'],
  'prompt': 'Find the largest difference in a list of pairs.',
  'source_file': 'x.ipynb',
  'test_imports': [],
  'test_list': PAIRS['assertion'].strip().split('\n'),
  'test': LOOP.format(
    head='',
    indent='',
    inputs=[[[(3, 5), (1, 7)]], [[(0, 1)]], [[(1, 1)]], [[(0, 9), (0, 9)]]],
    results=[6, 1, 0, 9],
    call='largest',
    atol=0,
  ),
}


def read(tmp_path, name, row, protocol='blind'):
  path = tmp_path / f'{name}.jsonl'
  path.write_text(json.dumps(row) + '\n')
  config = DataConfig(name, str(path), protocol)
  (task,) = load.load_tasks(config, ['test'])['test']
  return task


def verdicts(pool, task, code):
  (result,) = pool.run(
    [Program(code, task.tests, task.setup, task.entry_point)]
  )
  return ''.join('01'[test.status == 'passed'] for test in result.tests)


def test_base_tests_are_visible_and_further_inputs_hidden(tmp_path):
  task = read(tmp_path, 'mbpp_plus', PAIRS, 'visible_all')
  assert task.task_id == 'mbpp_plus/63'
  assert task.statement == 'Find the largest difference in a list of pairs.'
  assert task.signature == 'def largest(pairs):'
  assert task.checker.extra == 2
  problem = splits.reveal(task, 'visible_all')
  assert problem.visible_tests == (
    'assert largest([(3, 5), (1, 7)]) == 6',
    'assert largest([(0, 1)]) == 1',
  )
  # Arguments are tuples as in the base assertions; JSON has lists.
  assert splits.hidden(task, 'visible_all').tests == (
    'assert largest([(1, 1)]) == 0',
    'assert largest([(0, 9), (0, 9)]) == 9',
  )


@pytest.mark.parametrize(
  ('name', 'row'),
  [
    ('humaneval_plus', MEAN),
    ('humaneval_plus', MEAN_OF_HUB),
    ('mbpp_plus', PAIRS),
    ('mbpp_plus', PAIRS_OF_HUB),
  ],
)
def test_references_pass_all_tests(tmp_path, pool, name, row):
  task = read(tmp_path, name, row)
  assert set(verdicts(pool, task, task.reference)) == {'1'}
  assert set(verdicts(pool, task, f'{task.signature}\n  return "x"')) == {'0'}


def test_the_layout_of_the_hub_has_the_same_tests(tmp_path):
  task = read(tmp_path, 'mbpp_plus', PAIRS)
  assert read(tmp_path, 'mbpp_plus', PAIRS_OF_HUB).tests == task.tests
  mean = read(tmp_path, 'humaneval_plus', MEAN)
  assert (
    read(tmp_path, 'humaneval_plus', MEAN_OF_HUB).tests[2:] == (mean.tests[2:])
  )


def test_base_tests_of_humaneval_plus_on_the_hub_are_not_known(tmp_path):
  with pytest.raises(ValueError, match=r"'visible_all' does not fit"):
    read(tmp_path, 'humaneval_plus', MEAN_OF_HUB, 'visible_all')


def test_floats_are_compared_within_the_tolerance(tmp_path, pool):
  task = read(tmp_path, 'humaneval_plus', MEAN)
  nearly = 'def mean(x):\n  return sum(x) / len(x) + {}'
  assert verdicts(pool, task, nearly.format(5e-7)) == '00111'
  assert verdicts(pool, task, nearly.format(1e-5)) == '00010'
  # A number of another type is not close, and infinity equals itself.
  whole = 'def mean(x):\n  return round(sum(x) / len(x)) if x[0] < 1 else 2'
  assert verdicts(pool, task, whole) == '11001'


def test_what_has_no_order_is_compared_as_a_set(tmp_path, pool):
  row = PAIRS | {
    'entry_point': 'similar_elements',
    'canonical_solution': 'def similar_elements(a, b):\n'
    '  return tuple(sorted(set(a) & set(b)))',
    'assertion': 'assert similar_elements((3, 4, 5), (5, 4)) == (4, 5)',
    'base_input': [[[3, 4, 5], [5, 4]]],
    'plus_input': [[[1, 2, 3], [3, 2]], [[], []]],
  }
  task = read(tmp_path, 'mbpp_plus', row)
  assert task.tests[0] == (
    'assert set(similar_elements((3, 4, 5), (5, 4))) == set((4, 5))'
  )
  turned = 'def similar_elements(a, b):\n  return [x for x in b if x in a]'
  assert verdicts(pool, task, turned) == '111'
  first = 'def similar_elements(a, b):\n  return a'
  assert verdicts(pool, task, first) == '001'


def test_a_pattern_may_return_a_match_or_a_truth_value(tmp_path, pool):
  row = PAIRS | {
    'entry_point': 'check_str',
    'canonical_solution': 'import re\ndef check_str(text):\n'
    '  return re.search("^[aeiou]", text)',
    'assertion': 'assert check_str("annie")\nassert not check_str("dawood")',
    'base_input': [['annie'], ['dawood']],
    'plus_input': [['else'], ['x']],
  }
  task = read(tmp_path, 'mbpp_plus', row)
  assert verdicts(pool, task, task.reference) == '1111'
  code = 'def check_str(text):\n  return text[0] in "aeiou"'
  assert verdicts(pool, task, code) == '1111'
  assert verdicts(pool, task, code.replace(' in ', ' not in ')) == '0000'


def test_any_root_is_right(tmp_path, pool):
  row = MEAN | {
    'entry_point': 'find_zero',
    'prompt': 'def find_zero(xs: list):\n  """ A root of 1 or -1. """\n',
    'canonical_solution': '  return 1.0\n',
    'test': 'def check(candidate):\n  assert candidate([-1, 1]) == 1',
    'plus_input': [[[-1, 0, 1]], [[-3, 3]]],
    'atol': 0.0001,
  }
  task = read(tmp_path, 'humaneval_plus', row)
  assert verdicts(pool, task, task.reference) == '111'
  assert verdicts(pool, task, 'def find_zero(xs):\n  return -1.0') == '010'


def test_a_long_output_is_computed_by_the_test(tmp_path, pool):
  row = PAIRS | {
    'entry_point': 'spread',
    'canonical_solution': 'def spread(n):\n  return list(range(n))',
    'assertion': 'assert spread(2) == [0, 1]',
    'base_input': [[2]],
    'plus_input': [[9000], [3]],
  }
  task = read(tmp_path, 'mbpp_plus', row)
  assert all(len(test) < 2000 for test in task.tests)
  assert verdicts(pool, task, task.reference) == '111'
  short = 'def spread(n):\n  return list(range(min(n, 8000)))'
  assert verdicts(pool, task, short) == '101'


def test_an_output_that_no_program_may_return_is_left_out(tmp_path, caplog):
  row = PAIRS | {
    'entry_point': 'spread',
    'canonical_solution': 'def spread(n):\n  while n < 0: pass\n'
    '  return list(range(n))',
    'assertion': 'assert spread(2) == [0, 1]',
    'base_input': [[2]],
    'plus_input': [[300000], [-1], [3]],
  }
  task = read(tmp_path, 'mbpp_plus', row)
  assert task.tests[1:] == ('assert spread(3) == [0, 1, 2]',)
  assert '2 of 3 further inputs are left out' in caplog.text


def test_outputs_are_computed_once(tmp_path, monkeypatch, caplog):
  monkeypatch.setenv('PROMPTRL_COMPILATION_CACHE', str(tmp_path / 'cache'))
  first = read(tmp_path, 'mbpp_plus', PAIRS)
  assert 'what 1 references return for 2 inputs' in caplog.text
  caplog.clear()
  assert read(tmp_path, 'mbpp_plus', PAIRS) == first
  assert not caplog.text
  monkeypatch.setenv('PROMPTRL_COMPILATION_CACHE', '')
  assert read(tmp_path, 'mbpp_plus', PAIRS) == first


@pytest.mark.parametrize(
  ('name', 'row', 'change', 'message'),
  [
    (
      'mbpp_plus',
      PAIRS,
      {'atol': 'x'},
      r":1: field 'atol' must be int | float",
    ),
    (
      'mbpp_plus',
      PAIRS,
      {'plus_input': [3]},
      r':1: Mbpp/63: "plus_input" must',
    ),
    (
      'mbpp_plus',
      PAIRS,
      {'prompt': 'x y'},
      r':1: Mbpp/63: prompt must be a doc',
    ),
    ('mbpp_plus', PAIRS, {'assertion': ''}, r':1: Mbpp/63: no assertion'),
    (
      'mbpp_plus',
      PAIRS,
      {'plus_input': [[[]]]},
      r':1: the reference has no output for largest\(\[\]\): error ValueError',
    ),
    (
      'mbpp_plus',
      PAIRS_OF_HUB,
      {'test': 'x = 1'},
      r':1: 63: .* no list of inp',
    ),
    (
      'humaneval_plus',
      MEAN_OF_HUB,
      {'test': MEAN['test']},
      r':1: HumanEval/4: the test has no list of inputs',
    ),
    (
      'humaneval_plus',
      MEAN,
      {'test': 3},
      r":1: field 'test' must be str, got 3",
    ),
  ],
)
def test_a_malformed_row_is_named(tmp_path, name, row, change, message):
  with pytest.raises(DataError, match=message):
    read(tmp_path, name, row | change)
