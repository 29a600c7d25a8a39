import ast
import collections

import pytest

from promptrl_jax.tasks import instructions
from promptrl_jax.tasks.minicode import instruct


@pytest.fixture(scope='module')
def pairs():
  return instruct.load('validation')


def inputs(task):
  return {example.input for example in task.checker.examples}


def test_inputs_of_dev_and_test_are_disjoint_and_not_the_worked_example(pairs):
  assert len(pairs) > 80
  for pair in pairs:
    dev, test = inputs(pair['dev']), inputs(pair['test'])
    assert not dev & test
    assert 4 <= len(dev) <= 8 and 4 <= len(test) <= 8
    template = pair['dev'].checker.template
    assert not any(f'solve({x}) ==' in template for x in dev | test)
    assert pair['dev'].task_id == pair['test'].task_id
    assert [task.split for task in pair.values()] == ['dev', 'test']


def test_every_register_is_there(pairs):
  counts = collections.Counter(pair['dev'].register for pair in pairs)
  assert counts.keys() == {'canonical', 'paraphrased', 'terse', 'noisy'}
  assert min(counts.values()) > 10


def test_outputs_are_numbers_or_truth_values(pairs):
  for pair in pairs:
    checker = pair['dev'].checker
    outputs = {o for e in checker.examples for o in e.outputs}
    if checker.metric == 'numeric':
      assert all(o.lstrip('-').isdigit() for o in outputs)
    else:
      assert outputs <= {'True', 'False'} == set(checker.labels)


def test_one_task_by_hand(pairs):
  (pair,) = (
    p
    for p in pairs
    if p['dev'].family == 'filter_sum_scale'
    and 'at least 6 and multiply the sum by 7' in p['dev'].canonical
  )
  dev = pair['dev']
  prompt = instructions.prompt(
    dev.checker, dev.statement, dev.checker.examples[0]
  )
  assert prompt.split('\n') == [
    'Write a function to add up the numbers of a list that are at least 6 and '
    'multiply the sum by 7.',
    'assert solve([14, 7, 9, 6, 5, 5]) == 252',
    '###',
    'def solve(nums):',
    f'Input: {dev.checker.examples[0].input}',
  ]
  for task in pair.values():
    for example in task.checker.examples:
      numbers = ast.literal_eval(example.input)
      expected = 7 * sum(x for x in numbers if x >= 6)
      assert example.outputs == (str(expected),)


def test_it_is_deterministic_and_the_seed_changes_the_inputs(pairs):
  assert instruct.load('validation') == pairs
  assert instruct.load('validation', seed=1) != pairs


def test_a_third_of_the_inputs_may_be_for_training(pairs):
  found = instruct.load('validation', 8, 8, train_examples=8)
  assert len(found) > 80 and 'train' not in pairs[0]
  for parts in found:
    assert list(parts) == ['train', 'dev', 'test']
    assert len({task.task_id for task in parts.values()}) == 1
    some = [inputs(task) for task in parts.values()]
    assert min(map(len, some)) >= 4
    assert len(set.union(*some)) == sum(map(len, some)) <= 24
  with pytest.raises(ValueError, match='train_examples=2'):
    instruct.load('validation', train_examples=2)


def test_bad_sizes_and_splits_are_refused():
  with pytest.raises(ValueError, match='dev_examples=3'):
    instruct.load('test', 3)
  with pytest.raises(ValueError, match="'dev': minicode has train"):
    instruct.load('dev')
