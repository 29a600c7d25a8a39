"""Tasks to train on, and settings that are refused before any work."""

import json

import pytest

from configs import prewrite
from experiments import instructing
from promptrl_jax import settings
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.training.rewriter.algorithms import make_config


def write(path, *words, instruction='Spell.', output=None):
  rows = [
    {
      'instruction': instruction,
      'input': word,
      'output': output or word[::-1],
      'task': 'classification' if output else 'qa',
    }
    for word in words
  ]
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  return str(path)


def inputs(task):
  return {example.input for example in task.checker.examples}


def load(c, training=True):
  config = settings.from_mapping(prewrite.Config, c.to_dict())
  return instructing.load_tasks(config, training)


def test_embedded_instructions_have_three_sets_of_inputs():
  c = prewrite.get_config('smoke')
  tasks = load(c)
  assert len(tasks.train) == len(tasks.dev) == len(tasks.test) == 8
  assert [t.checker for t in tasks.validation] == [t.checker for t in tasks.dev]
  for parts in zip(tasks.train, tasks.dev, tasks.test, strict=True):
    assert len({task.task_id for task in parts}) == 1
    assert [len(inputs(task)) for task in parts] == [8, 8, 8]
    assert len(set.union(*map(inputs, parts))) == 24
  assert len(tasks.registers) == len(tasks.canonical) == 8


@pytest.mark.slow
def test_other_embedded_problems_may_be_trained_on():
  c = prewrite.get_config('smoke')
  c.data.options.train_examples = c.data.train_limit = 0
  c.data.validation_limit = 6
  tasks = load(c)
  assert len(tasks.train) > 900 and len(tasks.validation) == 6
  ids = [
    {task.task_id for task in part}
    for part in (tasks.train, tasks.validation, tasks.dev)
  ]
  assert not ids[0] & ids[1] and not (ids[0] | ids[1]) & ids[2]
  # Dev and test inputs are one pool to train on.
  assert len(inputs(tasks.train[0])) == 16


def test_files_give_the_labels_of_all_splits(tmp_path):
  c = prewrite.get_config('jsonl')
  c.data.options.train = write(tmp_path / 'train', 'a', 'b', output='yes')
  c.data.options.dev = write(tmp_path / 'dev', 'c', output='no')
  tasks = load(c)
  (train,), (validation,) = tasks.train, tasks.validation
  assert train.checker.labels == validation.checker.labels == ('no', 'yes')
  assert [e.input for e in train.checker.examples] == ['a', 'b']
  assert [e.input for e in validation.checker.examples] == ['c']
  assert not tasks.test and not tasks.registers and not tasks.canonical


def test_instructions_without_dev_examples_may_be_trained_on(tmp_path):
  c = prewrite.get_config('jsonl')
  c.data.options.train = write(tmp_path / 'train', 'a', instruction='Say.')
  c.data.options.dev = write(tmp_path / 'dev', 'a')
  (train,) = load(c).train
  assert train.statement == 'Say.'


@pytest.mark.parametrize('other', ['dev', 'test'])
def test_an_input_to_train_on_is_in_no_other_file(tmp_path, other):
  c = prewrite.get_config('jsonl')
  c.data.options.train = write(tmp_path / 'train', 'a', 'same')
  c.data.options.dev = write(tmp_path / 'dev', 'b')
  c.data.options.test = write(tmp_path / 'test', 'c')
  c.data.options[other] = write(tmp_path / other, 'same')
  message = f"train and {other} share the input 'same'"
  with pytest.raises(ValueError, match=message):
    load(c)


def test_a_missing_training_file_is_named(tmp_path):
  c = prewrite.get_config('jsonl')
  c.data.options.dev = write(tmp_path / 'dev', 'a')
  with pytest.raises(ValueError, match=r'--config\.data\.options\.train='):
    load(c)
  assert len(load(c, training=False).dev) == 1  # Not needed to choose.


def test_examples_are_drawn_with_the_seed(tmp_path):
  c = prewrite.get_config('jsonl')
  c.data.options.train = write(tmp_path / 'train', 'a')
  c.data.options.dev = write(tmp_path / 'dev', 'b', 'c', 'd')
  c.eval.dev_examples = 2
  (dev,) = load(c).dev
  assert len(inputs(dev)) == 2


def test_training_examples_may_choose_too(tmp_path):
  c = prewrite.get_config('jsonl')
  c.data.options.train = write(tmp_path / 'train', 'a', 'b')
  c.data.options.dev = write(tmp_path / 'dev', 'c')
  c.rewrite.choose_on = 'train_and_dev'
  for training in (False, True):
    tasks = load(c, training)
    assert inputs(tasks.dev[0]) == {'a', 'b', 'c'}
    assert inputs(tasks.validation[0]) == {'c'}
  c.data.options.train = write(tmp_path / 'train', 'a', instruction='Say.')
  with pytest.raises(ValueError, match="'Spell.' has no training examples"):
    load(c)


def test_candidates_are_halved_while_their_examples_are_doubled(tmp_path):
  c = prewrite.get_config('jsonl')
  words = [f'{first}{second}' for first in 'abcd' for second in 'wxyz']
  c.data.options.dev = write(tmp_path / 'dev', *words)
  c.rewrite.rounds = 3
  config = settings.from_mapping(prewrite.Config, c.to_dict())
  tasks = instructing.load_tasks(config)

  def reverse(request):
    instruction, word = request.messages[-1].content.rsplit('\n', 1)
    word = word.removeprefix('Input: ')
    # The longer the instruction, the fewer words are spelt backwards.
    is_right = words.index(word) % 8 >= len(instruction) - len('Spell.')
    return word[::-1] if is_right else word

  model = CachedBackend(ScriptedBackend(reverse))
  env = RewritingEnv(model, None, config.rewriting, config.ask)
  texts = [f'Spell.{"!" * i}' for i in (3, 1, 5, 2, 0, 4, 6, 7)]
  left = instructing.halve(
    env, tasks.dev, {'S': [texts], 'initial': [texts[:1]]}, config
  )
  assert len(left['S'][0]) == 2 and left['initial'] == [texts[:1]]
  assert left['S'][0] == [texts[0], 'Spell.']
  # Eight are asked four words, four of them another four.
  assert model.misses == 8 * 4 + 4 * 4


def test_dev_and_test_are_the_same_instructions():
  c = prewrite.get_config('smoke')
  c.data.test_limit = 4
  c.data.options.train_examples = 0
  c.data.name = 'minicode_instructions'
  assert len(load(c).dev) == len(load(c).test) == 4


def test_questions_and_answers_are_examples_of_one_instruction(tmp_path):
  rows = [{'question': f'{i} + 1?', 'answer': i + 1} for i in range(20)]
  path = tmp_path / 'x.jsonl'
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  c = prewrite.get_config('questions')
  c.data.path = str(path)
  with pytest.raises(TypeError, match='checked by Answers: expected an inst'):
    load(c)
  c.data.options.instruction, c.data.options.metric = 'Add.', 'numeric'
  tasks = load(c)
  sizes = [len(inputs(t)) for t in (*tasks.train, *tasks.dev, *tasks.test)]
  assert sizes == [16, 2, 2]


def test_programs_are_no_instructions():
  c = prewrite.get_config('smoke')
  c.data.name, c.data.options = 'minicode', {}
  with pytest.raises(TypeError, match='checked by UnitTests: expected an inst'):
    load(c)


def test_unknown_names_are_told_the_known_ones():
  with pytest.raises(ValueError, match="'sarsa'.*reinforce.*ppo"):
    make_config(algorithm='sarsa')
  with pytest.raises(ValueError, match="'T'.*I, S"):
    instructing.check_strategies(('T',))


def test_every_algorithm_sets_fields_that_there_are():
  for stem in ('smoke', 'jsonl'):
    c = prewrite.get_config(stem).lock()
    config = settings.from_mapping(prewrite.Config, c.to_dict())
    assert make_config(config.train, 'ppo').value_head
    assert not make_config(config.train, 'grpo').value_head
    for row in prewrite.get_hyper():
      changed = c.copy_and_resolve_references()
      changed.update_from_flattened_dict(row)
      config = settings.from_mapping(prewrite.Config, changed.to_dict())
      for name in config.algorithms:
        make_config(config.train, name)
