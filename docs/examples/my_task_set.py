"""A task set of one's own: a JSONL file of questions and answers.

  python -m docs.examples.my_task_set

`--config.data.plugin=docs.examples.my_task_set --config.data.name=trivia
--config.data.path=FILE` gives it to the experiments.
"""

import json
import pathlib

from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.llm.load import BackendConfig, load_backend
from promptrl_jax.tasks import load
from promptrl_jax.tasks.task_set import DataConfig
from promptrl_jax.types import Answers, Task


def load_split(split, config):
  lines = pathlib.Path(config.path).read_text().splitlines()
  return [
    Task(f'trivia/{i}', row['question'], Answers((row['answer'],), 'f1'))
    for i, row in enumerate(map(json.loads, lines))
    if row['split'] == split
  ]


load.register('trivia', load=load_split)

if __name__ == '__main__':
  path = pathlib.Path(__file__).with_name('trivia.jsonl')
  tasks = load.load_tasks(DataConfig(name='trivia', path=str(path)))['train']
  model = load_backend(BackendConfig(backend='jax', model='minicode_coder'))
  env = RewritingEnv(model, None, RewritingConfig(reward='score'))
  rewrites = [f'Answer in one word. {task.statement}' for task in tasks]
  rewards = env.rewards(tasks, rewrites, seed=0).rewards
  for task, reward in zip(tasks, rewards, strict=True):
    print(f'{task.task_id}: {reward:.2f}')
