"""MBPP sanitized: a file in its format made for this, and the ids of MBPP."""

import json

import pytest

from promptrl_jax.execution import Program
from promptrl_jax.tasks import load
from promptrl_jax.tasks.json_lines import DataError
from promptrl_jax.tasks.task_set import DataConfig


def row(number, **changes):
  return {
    'source_file': 'Questions.ipynb',
    'task_id': number,
    'prompt': f'Write a function that adds {number} to the root of x.',
    'code': f'import math\ndef add(x):\n  return math.sqrt(x) + {number}',
    'test_imports': ['import math'],
    'test_list': [
      f'assert math.isclose(add({x * x}), {x + number})' for x in (2, 3, 4)
    ],
    **changes,
  }


def write(tmp_path, rows):
  path = tmp_path / 'sanitized-mbpp.json'
  path.write_text(json.dumps(rows, indent=2))
  return str(path)


def test_splits_are_those_of_mbpp_and_references_pass(tmp_path, pool):
  path = write(tmp_path, [row(number) for number in (2, 11, 510, 511, 974)])
  parts = load.load_tasks(DataConfig('mbpp_sanitized', path))
  assert {s: [t.task_id for t in part] for s, part in parts.items()} == {
    'train': ['mbpp_sanitized/974'],
    'validation': ['mbpp_sanitized/511'],
    'test': ['mbpp_sanitized/11', 'mbpp_sanitized/510'],
  }
  task = parts['test'][0]
  assert (task.signature, task.setup) == ('def add(x):', 'import math')
  code = task.reference.replace('11', '12')
  results = pool.run(
    [
      Program(source, task.tests, task.setup, task.entry_point)
      for source in (task.reference, code)
    ]
  )
  assert [r.passed for r in results] == [True, False]


def test_a_search_may_return_its_match(pool):
  code = 'import re\ndef find(text):\n  return re.search("a+", text)'
  tests = ['assert find("baa")', 'assert not find("b")', 'assert find("b")']
  (result,) = pool.run([Program(code, tests)])
  assert [t.status for t in result.tests] == ['passed', 'passed', 'failed']


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'test_imports': None}, r"entry 1: field 'test_imports' must be list"),
    ({'test_list': []}, r'entry 1: task 11 has no tests'),
    ({'code': 'def add(x'}, r'entry 1: task 11: '),
  ],
)
def test_a_malformed_entry_is_named(tmp_path, change, message):
  config = DataConfig('mbpp_sanitized', write(tmp_path, [row(11, **change)]))
  with pytest.raises(DataError, match=message):
    load.load_tasks(config, ['test'])
