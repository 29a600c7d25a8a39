"""Tasks to train on, and settings that are refused before any work."""

import json

import pytest

from configs import prewrite
from experiments import instructing, rewriters


def write(path, *words, instruction='Spell.', output=None):
  rows = [
    {
      'instruction': instruction, 'input': word,
      'output': output or word[::-1],
      'task': 'classification' if output else 'qa',
    }
    for word in words
  ]  # fmt: skip
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  return str(path)


def inputs(task):
  return {example.input for example in task.examples}


def test_embedded_instructions_have_three_sets_of_inputs():
  c = prewrite.get_config('smoke')
  dev, test, *_ = instructing.load_tasks(c.data, 0)
  train, validation = instructing.load_training(c.data, dev, test)
  assert len(train) == len(dev) == len(test) == 8
  assert validation is dev
  for some in zip(train, dev, test, strict=True):
    assert len({task.task_id for task in some}) == 1
    assert [len(task.examples) for task in some] == [8, 8, 8]
    assert len(set.union(*map(inputs, some))) == 24


def test_other_embedded_problems_may_be_trained_on():
  c = prewrite.get_config('smoke')
  c.data.train_examples, c.data.validation_limit = 0, 6
  dev, test, *_ = instructing.load_tasks(c.data, 0)
  train, validation = instructing.load_training(c.data, dev, test)
  assert len(train) > 900 and len(validation) == 6
  ids = [{task.task_id for task in some} for some in (train, validation, dev)]
  assert not ids[0] & ids[1] and not (ids[0] | ids[1]) & ids[2]
  # Dev and test inputs are one pool to train on.
  assert len(train[0].examples) == 16


def test_files_give_the_labels_of_all_splits(tmp_path):
  c = prewrite.get_config('jsonl')
  c.data.train = write(tmp_path / 'train', 'a', 'b', output='yes')
  c.data.dev = write(tmp_path / 'dev', 'c', output='no')
  dev, test, *_ = instructing.load_tasks(c.data, 0)
  (train,), (validation,) = instructing.load_training(c.data, dev, test)
  assert train.labels == ('no', 'yes')
  assert [e.input for e in train.examples] == ['a', 'b']
  assert [e.input for e in validation.examples] == ['c']


def test_instructions_without_dev_examples_may_be_trained_on(tmp_path):
  c = prewrite.get_config('jsonl')
  c.data.train = write(tmp_path / 'train', 'a', instruction='Say.')
  c.data.dev = write(tmp_path / 'dev', 'a')
  dev, test, *_ = instructing.load_tasks(c.data, 0)
  (train,), _ = instructing.load_training(c.data, dev, test)
  assert train.instruction.text == 'Say.'


@pytest.mark.parametrize('other', ['dev', 'test'])
def test_an_input_to_train_on_is_in_no_other_file(tmp_path, other):
  c = prewrite.get_config('jsonl')
  c.data.train = write(tmp_path / 'train', 'a', 'same')
  c.data.dev = write(tmp_path / 'dev', 'b')
  c.data.test = write(tmp_path / 'test', 'c')
  c.data[other] = write(tmp_path / other, 'same')
  dev, test, *_ = instructing.load_tasks(c.data, 0)
  message = f"train and {other} share the input 'same'"
  with pytest.raises(ValueError, match=message):
    instructing.load_training(c.data, dev, test)


def test_a_missing_training_file_is_named(tmp_path):
  c = prewrite.get_config('jsonl')
  c.data.dev = write(tmp_path / 'dev', 'a')
  dev, test, *_ = instructing.load_tasks(c.data, 0)
  with pytest.raises(ValueError, match=r'--config\.data\.train='):
    instructing.load_training(c.data, dev, test)


def test_unknown_names_are_told_the_known_ones():
  c = prewrite.get_config('smoke')
  with pytest.raises(ValueError, match="'sarsa'.*reinforce.*ppo"):
    rewriters.with_algorithm(c, 'sarsa')
  with pytest.raises(ValueError, match="'T'.*I, S"):
    instructing.check_strategies(('T',))


def test_every_algorithm_sets_fields_that_there_are():
  for stem in ('smoke', 'jsonl'):
    c = prewrite.get_config(stem).lock()
    assert rewriters.with_algorithm(c, 'ppo').train.value_head
    assert not rewriters.with_algorithm(c, 'grpo').train.value_head
    for row in prewrite.get_hyper():
      changed = c.copy_and_resolve_references()
      changed.update_from_flattened_dict(row)
      for name in changed.algorithms:
        rewriters.with_algorithm(changed, name)
