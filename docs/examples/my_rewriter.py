"""Train a rewriter on a model of one's own with a reward of one's own.

  python -m docs.examples.my_rewriter [MODEL [FOLDER]]

MODEL is a folder in Hugging Face's layout; the trained one goes to FOLDER.
"""

import pathlib
import sys

import promptrl_jax as pr
from docs.examples.my_reward import short  # registers the reward `short`
from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.tasks.task_set import DataConfig
from promptrl_jax.training.rewriter import algorithms, build
from promptrl_jax.training.rewriter.collect import Collector
from promptrl_jax.training.rewriter.config import TrainConfig
from promptrl_jax.training.rewriter.packing import PackingConfig
from promptrl_jax.training.rewriter.rollout import RolloutConfig


def main(model='minicode_rewriter', folder='runs/my_rewriter'):
  tasks = pr.load_tasks(DataConfig(name='minicode', train_limit=16))['train']
  start = build.load_start(pr.BackendConfig(backend='jax', model=model))
  packing = PackingConfig(prompt_size=256, lanes=4, lane_size=32, sequences=8)
  rollout = RolloutConfig(prompts=4, group=4, new_tokens=32)
  settings = TrainConfig(iterations=2, packing=packing, rollout=rollout)
  config = algorithms.make_config(settings, 'grpo')
  learner = build.make_learner(start, config, mesh_lib.make_data_mesh(), seed=0)
  coder = pr.load_backend(pr.BackendConfig('jax', 'minicode_coder'))
  with pr.ExecutionPool(workers=2) as pool:
    env = pr.RewritingEnv(coder, pool, RewritingConfig(reward=short.__name__))
    collector, state = Collector(learner, env, tasks, seed=0), learner.initial
    for _ in range(config.iterations):
      rollout, rewards, row = collector.reward(state, collector.sample(state))
      state, _ = learner.update(state, rollout, rewards)
      print(f'update {int(state.step)}: reward {row["reward/mean"]:.3f}')
  print('model', learner.save(state, pathlib.Path(folder)))


if __name__ == '__main__':
  main(*sys.argv[1:])
