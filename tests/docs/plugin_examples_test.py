"""The examples of a task set and a reward of one's own run as documented."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def run(name):
  result = subprocess.run(
    [sys.executable, '-m', f'docs.examples.{name}'],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert result.returncode == 0, result.stderr[-3000:]
  return result.stdout.splitlines()


@pytest.mark.parametrize('name', ['my_task_set', 'my_reward'])
def test_an_example_has_at_most_forty_lines(name):
  text = (ROOT / 'docs' / 'examples' / f'{name}.py').read_text()
  assert len(text.splitlines()) <= 40


def test_a_task_set_of_questions_is_rewarded_with_the_embedded_model():
  lines = run('my_task_set')
  assert [line.split(':')[0] for line in lines] == ['trivia/0', 'trivia/1']
  assert all(0 <= float(line.split(': ')[1]) <= 1 for line in lines)


def test_a_reward_of_ones_own_rewards_embedded_rewrites():
  lines = run('my_reward')
  assert len(lines) == 4
  assert all(re.match(r'[01]\.\d\d \w+', line) for line in lines)


def test_experiments_import_the_plug_in_that_a_config_names():
  script = """
from configs import mbpp_grpo
from experiments import data
c = mbpp_grpo.get_config('smoke').lock()
c.data.plugin, c.data.name = 'docs.examples.my_task_set', 'trivia'
c.data.path = 'docs/examples/trivia.jsonl'
parts = data.load_tasks(c.data)
print({split: len(tasks) for split, tasks in parts.items()})
print(data.describe(c.data).split()[0])
"""
  result = subprocess.run(
    [sys.executable, '-c', script], cwd=ROOT, capture_output=True, text=True
  )
  assert result.returncode == 0, result.stderr[-3000:]
  assert result.stdout.splitlines() == [
    "{'train': 2, 'validation': 1, 'test': 1}",
    'trivia',
  ]
