"""An operator of one's own: drop what stands in parentheses, then ask.

python -m docs.examples.my_operator
"""

import re

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation.evaluate import evaluate
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.llm.load import BackendConfig, load_backend
from promptrl_jax.operators import Operator, Question, register
from promptrl_jax.strategies import base, policies
from promptrl_jax.tasks.minicode.suite import SUITE


def drop_asides(episode, tools):
  episode.edit(re.sub(r'\s*\([^)]*\)', '', episode.statement))
  return Question(episode.prompt())


register(
  Operator(
    'drop_asides',
    calls=1,
    apply=drop_asides,
    available=lambda episode: '(' in episode.statement,
  )
)

if __name__ == '__main__':
  config = EditingConfig(actions=('keep', 'drop_asides'))
  strategies = {
    name: base.OverOperators(policies.fixed(name, config.actions), config)
    for name in config.actions
  }
  tasks = SUITE.load('test')[:24]
  model = load_backend(BackendConfig(backend='jax', model='minicode_coder'))
  with ExecutionPool(workers=2) as pool:
    for cell in evaluate(strategies, tasks, coder=model, pool=pool, budget=1):
      print(f'{cell.strategy}: {cell.passed.mean():.3f}')
