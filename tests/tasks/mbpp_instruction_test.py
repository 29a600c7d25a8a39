"""One instruction for all tasks of MBPP."""

import pytest

from promptrl_jax.tasks import instructions, load
from promptrl_jax.tasks.task_set import DataConfig
from promptrl_jax.types import ProgramExamples
from tests.tasks.mbpp_test import DATA, needs_data


@needs_data
def test_the_tasks_of_a_split_are_the_examples():
  config = DataConfig('mbpp_instruction', str(DATA))
  parts = load.load_tasks(config)
  counts = {}
  for split, (task,) in parts.items():
    assert isinstance(task.checker, ProgramExamples)
    assert task.statement == 'Write a Python function.'
    assert instructions.kind_of(task) == 'code'
    counts[split] = len(task.checker.examples)
  # Seven training tasks are worded like ones of other splits.
  assert counts == {'train': 367, 'validation': 90, 'test': 500}
  assert len({task.task_id for (task,) in parts.values()}) == 1


@needs_data
def test_another_instruction_is_another_task():
  options = {'instruction': 'Be brief.'}
  config = DataConfig('mbpp_instruction', str(DATA), options=options)
  (task,) = load.load_tasks(config, ('validation',))['validation']
  assert task.statement == 'Be brief.'
  (first, *_) = task.checker.examples
  part = instructions.subsample(task, 5, seed=1)
  assert len(part.checker.examples) == 5 and part.task_id == task.task_id
  assert instructions.subsample(task, 5, seed=1) == part
  other = instructions.with_instruction(task, 'Be long.')
  assert other.task_id != task.task_id
  assert other.checker.examples[0] == first


def test_a_blank_instruction_is_refused():
  config = DataConfig('mbpp_instruction', 'x', options={'instruction': ' '})
  with pytest.raises(ValueError, match='instruction is blank'):
    load.load_tasks(config)
