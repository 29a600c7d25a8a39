"""The rewriter learns its words: GRPO, PPO, REINFORCE and their relatives.

  python -m experiments.mbpp_grpo --config=configs/mbpp_grpo.py:minicode \
    --workdir=runs/grpo

Trains rewriters on what the frozen code model makes of their rewrites, then
compares them with the one they started from and with the direct answer: one
rewrite and one program per problem, both greedy. In the workdir: results.json,
results.md and results.csv, curves.png, and per algorithm and seed a folder with
metrics, TensorBoard events, checkpoints and model/ (for
--config.rewriter.model). A run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import json
import pathlib
import sys

import jax
import numpy as np
from absl import app, flags
from ml_collections import config_flags

from experiments import data, distributed_flags, rewriters
from promptrl_jax.envs.rewriting.config import make_config
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.evaluation import cells, output, report, rewriter
from promptrl_jax.execution import ExecutionPool, Limits
from promptrl_jax.execution.header import ImportHeaderPool
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.llm import load
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.parallel import compilation, distributed, exchange
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.tools import command
from promptrl_jax.training import loop
from promptrl_jax.training import workdir as workdir_lib

_CONFIG = config_flags.DEFINE_config_file(
  'config', 'configs/mbpp_grpo.py', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where results go.')
flags.mark_flag_as_required('workdir')
distributed_flags.define()


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line():
    mesh_lib.use_cpu_cores()
    with distributed.session(distributed_flags.config()):
      run(_CONFIG.value, pathlib.Path(_WORKDIR.value))


def run(config, workdir):
  compilation.use_cache()
  command.log_warnings_alone()

  # --- Data and models --------------------------------------------------------
  settings = {
    name: rewriters.with_algorithm(config, name) for name in config.algorithms
  }
  for chosen in settings.values():  # the last one may be wrong, too
    rewriters.make_config(chosen)
  tasks = data.load_tasks(config.data)
  if config.eval.split not in ('validation', 'test'):
    raise ValueError(
      f'eval.split={config.eval.split!r}: expected validation or test'
    )
  mesh = mesh_lib.of_process(config.mesh)
  coder = load.load_backend(load.BackendConfig(**config.coder), mesh)
  start = rewriters.load_start(config.rewriter, config.reference.model)
  for chosen in settings.values():
    rewriters.check(chosen, start)
  described = data.describe(config.data)
  # A folder of the same name may hold another model by now.
  models = {'coder': coder.name, 'start': start.name} | start.reference_name
  settings_of_run = json.loads(config.to_json()) | {'models': models}
  distributed.require_same(
    json.dumps({'data': described, **settings_of_run}), 'the config'
  )
  workdir_lib.prepare(workdir, settings_of_run)
  limits = Limits(cpu_s=config.pool.cpu_s, memory_mb=config.pool.memory_mb)
  with ExecutionPool(
    config.pool.workers, limits, config.pool.allow_weak
  ) as pool:
    if config.pool.import_header:
      pool = ImportHeaderPool(pool)

    # --- Training -------------------------------------------------------------
    judge = Judge(config, CachedBackend(coder), MemoPool(pool), start, mesh)
    env = RewritingEnv(CachedBackend(coder), pool, make_reward_config(config))
    seeds = range(config.seed, config.seed + config.seeds)
    trained = {}
    for name, chosen in settings.items():
      for seed in seeds:
        made = rewriters.make(chosen, start, mesh, seed)
        folder = workdir / name / f'seed_{seed}'
        train(chosen, made, env, judge, tasks, seed, folder)
        trained[name, seed] = rewriters.save_best(made, start, folder)

    # --- Evaluation -----------------------------------------------------------
    if not distributed.is_first():
      return  # The end of the session waits for the first.
    found = judge.compare(
      {
        name: [trained[name, seed] for seed in seeds]
        for name in config.algorithms
      },
      tasks[config.eval.split],
    )

  # --- Report -----------------------------------------------------------------
  header = {
    'data_hash': f'{described}, {config.eval.split}',
    'model_hashes': models,
    'seeds': list(seeds),
    'command': ' '.join(
      ['python', '-m', 'experiments.mbpp_grpo', *sys.argv[1:]]
    ),
    'import header': 'on' if config.pool.import_header else 'off',
  }
  summary = report.summarise(
    found, subject=config.algorithms[0], resamples=config.eval.resamples
  )
  table = report.to_markdown(summary, header)
  report.write_results(workdir, {'header': header, **summary}, table)
  cells.write_csv(workdir / 'results.csv', found)
  curves = output.draw_rewriters(
    {
      name: [workdir / name / f'seed_{seed}' for seed in seeds]
      for name in config.algorithms
    },
    workdir,
  )
  print(table)
  print(f'curves       {curves}')
  for name, seed in trained:
    print(f'model        {workdir / name / f"seed_{seed}" / "model"}')
  print(f'TensorBoard  tensorboard --logdir {workdir}')


# --- Stages -------------------------------------------------------------------


def make_reward_config(config):
  env = config.env
  return make_config(
    config.reward.to_dict(),
    protocol=config.data.protocol,
    template=env.template,
    max_tokens=env.max_tokens,
    top_p=env.top_p,
  )


class Judge:
  """Greedy rewrites, greedy programs: pass@1 of rewriters."""

  def __init__(self, config, coder, pool, start, mesh):
    self._config = config
    self._coder = coder
    self._pool = pool
    self._mesh = mesh
    self._start = start
    self._env_config = rewriters.make_env_config(config)
    self._policy = self._fresh()

  def _fresh(self):
    return self._start.backend(self._mesh, self._config.env.rewrite_max_tokens)

  def compare(self, trained, tasks):
    """Cells of the direct answer, the start and each algorithm's models."""
    entrants = {'start': [self._fresh()]}
    for name, folders in trained.items():
      entrants[name] = [
        load.load_backend(
          load.BackendConfig(backend='jax', model=str(folder)), self._mesh
        )
        for folder in folders
      ]
    return self._play(entrants, tasks)

  def validate(self, made, state, tasks):
    """pass@1 of the policy as it is now; processes share the tasks."""
    self._policy.replace_params(made.decode_params(state))
    mine, passed = tasks[jax.process_index() :: jax.process_count()], []
    if mine:
      passed = self._play({'policy': [self._policy]}, mine)[-1].passed
    counts = np.asarray([[np.sum(passed), np.size(passed)]], int)
    solved, count = exchange.gather_rows(counts).sum(axis=0)
    return float(solved / count)

  def _play(self, entrants, tasks):
    return rewriter.play(
      self._coder, entrants, tasks, self._pool, self._env_config,
      protocol=self._config.data.protocol,
    )  # fmt: skip


def train(config, made, env, judge, tasks, seed, folder):
  """Trains one rewriter to the end, from its last checkpoint if any."""
  problems = tasks['validation'][: config.validate_limit or None]
  rewriters.train(
    made, env, tasks['train'],
    lambda state: judge.validate(made, state, problems),
    loop.LoopConfig(
      made.config.iterations, config.validate_every, config.checkpoint_every
    ),
    seed, folder,
  )  # fmt: skip


if __name__ == '__main__':
  app.run(main)
