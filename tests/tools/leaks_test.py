"""The command that lists overlaps between splits."""

import json
import os
import pathlib

import pytest

from tests.experiments import commands

ROOT = pathlib.Path(__file__).parents[2]
DATA = pathlib.Path(
  os.environ.get('PROMPTRL_MBPP', ROOT / '../shared/data/mbpp/mbpp.jsonl')
)


def row(number, text, test):
  return {
    'task_id': number,
    'text': text,
    'code': 'def f(x):\n  return x',
    'test_list': [test],
  }


ROWS = [
  row(11, 'Write a function to sort a list.', 'assert f([]) == []'),
  row(511, 'Count the vowels of a word.', 'assert f("a") == 1'),
  row(601, 'Return the reverse of a text.', 'assert f("ab") == "ba"'),
]


def leaks(path, data='mbpp', *flags):
  return commands.run(
    'promptrl_jax.tools.leaks', f'--data={data}', f'--path={path}', *flags
  )


def write(path, rows):
  path.write_text(''.join(json.dumps(r) + '\n' for r in rows))
  return path


def test_splits_without_overlaps_are_clean(tmp_path):
  result = leaks(write(tmp_path / 'mbpp.jsonl', ROWS))
  assert result.returncode == 0, result.stderr
  for kind in ('task_id', 'same tests', 'same statement', 'near duplicate'):
    assert f'{kind}: 0\n' in result.stdout


def test_a_planted_duplicate_fails(tmp_path):
  planted = ROWS[0] | {'task_id': 602, 'text': ROWS[0]['text'].upper()}
  result = leaks(write(tmp_path / 'mbpp.jsonl', [*ROWS, planted]))
  assert result.returncode == 1
  assert 'same tests: mbpp/602 of train, mbpp/11 of test' in result.stdout
  assert 'two splits share a task' in result.stderr


def test_a_statement_of_two_splits_fails_unless_its_task_is_left_out(tmp_path):
  path = tmp_path / 'mbpp.jsonl'
  trained = ROWS[0] | {'task_id': 602, 'test_list': ['assert f([1]) == [1]']}
  result = leaks(write(path, [*ROWS, trained]))
  assert result.returncode == 0, result.stderr
  assert 'left out of training: 1 mbpp/602\n' in result.stdout
  result = leaks(write(path, [*ROWS, trained | {'task_id': 512}]))
  assert result.returncode == 1
  assert result.stderr == (
    'error: two splits share a statement, both tasks are kept: same statement: '
    'mbpp/512 of validation, mbpp/11 of test\n'
  )


@pytest.mark.slow
def test_humaneval_is_compared_with_the_mbpp_that_is_trained_on(tmp_path):
  row = {
    'task_id': 'HumanEval/0',
    'prompt': f'def f(x):\n    """{ROWS[2]["text"]}"""\n',
    'entry_point': 'f',
    'canonical_solution': '    return x[::-1]\n',
    'test': 'def check(candidate):\n    assert candidate("xy") == "yx"\n',
  }
  path = write(tmp_path / 'HumanEval.jsonl', [row])
  given = f'--options=mbpp={write(tmp_path / "mbpp.jsonl", ROWS)}'
  result = leaks(path, 'humaneval', given)
  assert result.returncode == 0, result.stderr
  assert 'train 1, validation 1, test 1\n' in result.stdout
  assert 'left out of training: 1 mbpp/601' in result.stdout
  result = leaks(path, 'humaneval')
  assert result.returncode == 1
  assert result.stderr.startswith("error: HumanEval has no split 'train'")
  result = leaks(path, 'humaneval', '--options=mbpp')
  assert 'error: --options=mbpp: expected NAME=VALUE' in result.stderr


def test_missing_data_is_an_error_of_one_line(tmp_path):
  result = leaks(tmp_path / 'none.jsonl')
  assert result.returncode == 1
  assert result.stderr.startswith('error: no MBPP file at')


@pytest.mark.skipif(not DATA.is_file(), reason='no MBPP file: PROMPTRL_MBPP')
def test_the_official_mbpp_shares_no_task_between_splits():
  result = leaks(DATA)
  assert result.returncode == 0, result.stderr
  assert 'task_id: 0\nsame tests: 0\nsame statement: 3\n' in result.stdout
