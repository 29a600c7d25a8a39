"""A reward of one's own: the share of tests that pass, minus a cost of words.

  python -m docs.examples.my_reward

A config names it `rewriting.reward = 'short'` once this module is imported, for
instance by `--config.plugins`.
"""

from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.llm.load import BackendConfig, load_backend
from promptrl_jax.rewards import registry
from promptrl_jax.strategies import prewrite
from promptrl_jax.tasks.load import load_tasks
from promptrl_jax.tasks.task_set import DataConfig


def short(task, text, outcome, *, cost=0.01):
  return max(0.0, outcome.score - cost * len(text.split()))


registry.register('short', short)

if __name__ == '__main__':
  tasks = load_tasks(DataConfig(name='minicode', train_limit=4))['train']
  coder, rewriter = (
    load_backend(BackendConfig(backend='jax', model=name))
    for name in ('minicode_coder', 'minicode_rewriter')
  )
  config = RewritingConfig(reward='short', reward_options={'cost': 0.02})
  with ExecutionPool(workers=2) as pool:
    env = RewritingEnv(coder, pool, config)
    rewrites = prewrite.rewrite_greedily(rewriter, env, tasks)
    result = env.rewards(tasks, [r.reply for r in rewrites], seed=0)
  for rewrite, reward in zip(rewrites, result.rewards, strict=True):
    print(f'{reward:.2f} {rewrite.statement}')
