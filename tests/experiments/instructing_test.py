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


def test_embedded_tasks_to_train_on_are_of_other_splits():
  c = prewrite.get_config('smoke')
  dev, test, *_ = instructing.load_tasks(c.data, 0)
  train, validation = instructing.load_training(c.data, dev, 0)
  assert (len(train), len(validation), len(dev)) == (16, 6, 12)
  ids = [{task.task_id for task in some} for some in (train, validation, dev)]
  assert not ids[0] & ids[1] and not (ids[0] | ids[1]) & ids[2]
  # Dev and test examples are one pool to train on, and stay apart in the end.
  assert len(train[0].examples) > len(dev[0].examples)
  for mine, theirs in zip(dev, test, strict=True):
    assert not {e.input for e in mine.examples} & {
      e.input for e in theirs.examples
    }


def test_files_give_the_labels_of_all_splits(tmp_path):
  c = prewrite.get_config('jsonl')
  c.data.train = write(tmp_path / 'train', 'a', 'b', output='yes')
  c.data.dev = write(tmp_path / 'dev', 'c', output='no')
  dev, *_ = instructing.load_tasks(c.data, 0)
  (train,), (validation,) = instructing.load_training(c.data, dev, 0)
  assert train.labels == ('no', 'yes')
  assert [e.input for e in train.examples] == ['a', 'b']
  assert [e.input for e in validation.examples] == ['c']


def test_instructions_without_dev_examples_may_be_trained_on(tmp_path):
  c = prewrite.get_config('jsonl')
  c.data.train = write(tmp_path / 'train', 'a', instruction='Say.')
  c.data.dev = write(tmp_path / 'dev', 'a')
  dev, *_ = instructing.load_tasks(c.data, 0)
  (train,), _ = instructing.load_training(c.data, dev, 0)
  assert train.instruction.text == 'Say.'


def test_an_input_in_training_and_dev_is_refused(tmp_path):
  c = prewrite.get_config('jsonl')
  c.data.train = write(tmp_path / 'train', 'a', 'same')
  c.data.dev = write(tmp_path / 'dev', 'same')
  dev, *_ = instructing.load_tasks(c.data, 0)
  with pytest.raises(ValueError, match="train and dev share the input 'same'"):
    instructing.load_training(c.data, dev, 0)


def test_a_missing_training_file_is_named(tmp_path):
  c = prewrite.get_config('jsonl')
  c.data.dev = write(tmp_path / 'dev', 'a')
  dev, *_ = instructing.load_tasks(c.data, 0)
  with pytest.raises(ValueError, match=r'--config\.data\.train='):
    instructing.load_training(c.data, dev, 0)


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
