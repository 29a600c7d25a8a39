import ast
import collections

import pytest

from promptrl_jax.tasks.minicode import instruct


@pytest.fixture(scope='module')
def pairs():
  return instruct.load('validation')


def test_inputs_of_dev_and_test_are_disjoint_and_not_the_worked_example(pairs):
  assert len(pairs) > 80
  for pair in pairs:
    dev = {e.input for e in pair.dev.examples}
    test = {e.input for e in pair.test.examples}
    assert not dev & test
    assert 4 <= len(dev) <= 8 and 4 <= len(test) <= 8
    assert not any(f'solve({x}) ==' in pair.dev.template for x in dev | test)
    assert pair.dev.key == pair.test.key


def test_every_register_is_there(pairs):
  counts = collections.Counter(pair.register for pair in pairs)
  assert counts.keys() == {'canonical', 'paraphrased', 'terse', 'noisy'}
  assert min(counts.values()) > 10


def test_outputs_are_numbers_or_truth_values(pairs):
  for pair in pairs:
    outputs = {o for e in pair.dev.examples for o in e.outputs}
    if pair.dev.task == 'math':
      assert all(o.lstrip('-').isdigit() for o in outputs)
    else:
      assert outputs <= {'True', 'False'} == set(pair.dev.labels)


def test_one_task_by_hand(pairs):
  (pair,) = (
    p for p in pairs if p.task_id == 'minicode/filter_sum_scale/a=6,b=7'
  )
  prompt = pair.dev.prompt(pair.dev.instruction, pair.dev.examples[0])
  assert prompt.split('\n') == [
    'Write a function to add up the numbers of a list that are at least 6 and '
    'multiply the sum by 7.',
    'assert solve([14, 7, 9, 6, 5, 5]) == 252',
    '###',
    'def solve(nums):',
    f'Input: {pair.dev.examples[0].input}',
  ]
  for example in (*pair.dev.examples, *pair.test.examples):
    numbers = ast.literal_eval(example.input)
    expected = 7 * sum(x for x in numbers if x >= 6)
    assert example.outputs == (str(expected),)


def test_it_is_deterministic_and_the_seed_changes_the_inputs(pairs):
  assert instruct.load('validation') == pairs
  assert instruct.load('validation', seed=1) != pairs


def test_a_third_of_the_inputs_may_be_for_training(pairs):
  found = instruct.load('validation', 8, 8, train_examples=8)
  assert len(found) > 80 and pairs[0].train is None
  for pair in found:
    assert pair.train is not None and pair.train.key == pair.test.key
    some = [
      {example.input for example in task.examples}
      for task in (pair.train, pair.dev, pair.test)
    ]
    assert min(map(len, some)) >= 4
    assert len(set.union(*some)) == sum(map(len, some)) <= 24
  with pytest.raises(ValueError, match='train_examples=2'):
    instruct.load('validation', train_examples=2)


def test_bad_sizes_and_splits_are_refused():
  with pytest.raises(ValueError, match='dev_examples=3'):
    instruct.load('test', 3)
  with pytest.raises(ValueError, match="'dev': minicode has train"):
    instruct.load('dev')
