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

import jax
import numpy as np
from absl import app, flags
from ml_collections import config_flags

from configs.mbpp_grpo import Config
from experiments import session
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.envs.rewriting.failed import failed_tasks
from promptrl_jax.evaluation import (
  cells,
  output,
  report,
  rewriter,
  training_cost,
)
from promptrl_jax.llm import load
from promptrl_jax.llm.attempt import CODER
from promptrl_jax.parallel import distributed, exchange
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.settings import to_mapping
from promptrl_jax.strategies.prewrite import RewriteConfig
from promptrl_jax.tasks.load import describe, load_tasks
from promptrl_jax.tools import command, distributed_flags
from promptrl_jax.training import run as run_lib
from promptrl_jax.training import solvable
from promptrl_jax.training import workdir as workdir_lib
from promptrl_jax.training.rewriter import build
from promptrl_jax.training.rewriter.algorithms import make_config
from promptrl_jax.training.rewriter.collect import Collector
from promptrl_jax.training.rewriter.solvable import solvable_tasks

_CONFIG = config_flags.DEFINE_config_file(
  'config', 'configs/mbpp_grpo.py', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where results go.')
flags.mark_flag_as_required('workdir')
distributed_flags.define()

_START = 'start'  # the rewriter before training


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line():
    mesh_lib.use_cpu_cores()
    with distributed.session(distributed_flags.config()):
      run(_CONFIG.value, pathlib.Path(_WORKDIR.value))


def run(config, workdir):
  config = session.begin(Config, config, use_cpu_cores=False)
  session.check_templates(config)

  # --- Data and models --------------------------------------------------------
  settings = {  # The last one may be wrong, too: refused before any work.
    name: make_config(config.train, name, config.switches)
    for name in config.algorithms
  }
  tasks = load_tasks(config.data)
  mesh = mesh_lib.of_process(config.mesh)
  ledger = session.open_ledger(config, workdir, CODER)
  coder = load.load_backend(config.coder, mesh)
  start = build.load_start(
    config.rewriter,
    config.train.reference.model,
    config.ask.rewrite_stop,
  )
  for learner_config in settings.values():
    build.check_reference(learner_config, start)
  # A folder of the same name may hold another model by now.
  models = {'coder': coder.name} | start.names
  prepare(config, workdir, models)
  with session.open_pool(config.pool) as pool:
    # --- Training -------------------------------------------------------------
    env = RewritingEnv(
      session.cached(coder, CODER, config.coder, ledger),
      pool,
      config.rewriting,
      config.ask,
      protocol=config.data.protocol,
    )
    judge = Judge(config, env, start, mesh)
    if config.only_failed:
      tasks = {name: failed_tasks(env, part) for name, part in tasks.items()}
      counts = ', '.join(f'{name} {len(part)}' for name, part in tasks.items())
      print(f'tasks that fail as they are worded: {counts}')
    if config.solvable_by:
      tasks['train'] = keep_solvable(config, judge, tasks['train'], workdir)
      print(f'training tasks that a rewrite solves: {len(tasks["train"])}')
    seeds = range(config.seed, config.seed + config.seeds)
    trained = {}
    for name, learner_config in settings.items():
      for seed in seeds:
        learner = build.make_learner(start, learner_config, mesh, seed)
        folder = workdir / name / f'seed_{seed}'
        train(config, learner, env, judge, tasks, seed, folder)
        best, _ = run_lib.restore(folder, learner.initial)
        distributed.first_only(learner.save)(best, folder)
        trained.setdefault(name, []).append(folder / 'model')

    # --- Evaluation -----------------------------------------------------------
    if not distributed.is_first():
      return  # The end of the session waits for the first.
    results = judge.compare(trained, tasks[config.eval.split])
  write_report(config, workdir, models, results, trained)


# --- Stages -------------------------------------------------------------------


def keep_solvable(config, judge, tasks, workdir):
  """The tasks that a rewrite of the start solves, chosen once; all agree."""
  kept, _ = solvable.keep(workdir, tasks, lambda: judge.solvable(tasks, config))
  names = json.dumps([task.task_id for task in kept])
  distributed.require_same(names, 'solvable.json')
  return kept


def train(config, learner, env, judge, tasks, seed, folder):
  """Trains one rewriter to the end, from its last checkpoint if any."""
  problems = tasks['validation'][: config.validate_limit or None]
  settings = run_lib.RunConfig(
    learner.config.iterations, config.validate_every, config.checkpoint_every
  )
  shown = {'reward': 'reward/mean', 'kl': 'train/kl', 'phase': 'train/phase'}
  name = f'{folder.parent.name} seed {seed}'
  with run_lib.Run(
    folder, learner.initial, settings, name=name, shown=shown
  ) as training:
    collector = Collector(learner, env, tasks['train'], seed, settings.is_saved)
    for _ in training.steps():
      # Sample G rewrites of each task; env.submit rewards them in threads.
      batch = collector.sample(training.state)
      # Wait for the frozen coder and the tests.
      rollout, rewards, row = collector.reward(training.state, batch)
      state, learned = learner.update(training.state, rollout, rewards)
      training.log(state, row | learned)
      training.validate(lambda state: judge.validate(learner, state, problems))


def prepare(config, workdir, models):
  """Creates the working directory; all processes must agree on the config."""
  described = [to_mapping(config), models, describe(config.data)]
  distributed.require_same(json.dumps(described), 'the config')
  workdir_lib.prepare(workdir, 'mbpp_grpo', config, models)


class Judge:
  """Greedy rewrites, greedy programs: pass@1 of rewriters."""

  def __init__(self, config, env, start, mesh):
    self._new_tokens = config.ask.rewrite_max_tokens
    self._env = env
    self._mesh = mesh
    self._start = start
    self._start_model = config.rewriter.model
    self._policy = self._untrained()

  def _untrained(self):
    return self._start.backend(self._mesh, self._new_tokens)

  def compare(self, trained, tasks):
    """Cells of the direct answer, the start and each algorithm's models."""
    entrants = {_START: [self._untrained()]}
    paid = {_START: training_cost.training_calls(self._start_model)}
    for name, folders in trained.items():
      entrants[name] = [
        load.load_backend(load.BackendConfig(model=str(folder)), self._mesh)
        for folder in folders
      ]
      paid[name] = training_cost.mean_training_calls(list(map(str, folders)))
    return rewriter.play(self._env, entrants, tasks, paid)

  def solvable(self, tasks, config):
    """The tasks that one of several rewrites of the start solves; the calls."""
    drawn = RewriteConfig(
      config.solvable_by, config.train.rollout.temperature, config.seed
    )
    return solvable_tasks(self._env, self._policy, tasks, drawn)

  def validate(self, learner, state, tasks):
    """pass@1 of the policy as it is now; processes share the tasks."""
    self._policy.replace_params(learner.decode_params(state))
    own, passed = tasks[jax.process_index() :: jax.process_count()], []
    if own:
      passed = rewriter.run(self._env, self._policy, own).passed
    counts = np.asarray([[np.sum(passed), np.size(passed)]], int)
    solved, count = exchange.gather_rows(counts).sum(axis=0)
    return float(solved / count)


def write_report(config, workdir, models, results, trained):
  """Writes tables and curves, and prints them with the paths of the models."""
  seeds = list(range(config.seed, config.seed + config.seeds))
  header = session.make_header(
    'mbpp_grpo',
    f'{describe(config.data)}, {config.eval.split}',
    models,
    seeds,
    **session.about_programs(config.pool),
  )
  summary = report.summarise(
    results,
    subject=next(iter(trained), _START),
    resamples=config.eval.resamples,
  )
  table = report.to_markdown(summary, header)
  report.write_results(workdir, {'header': header, **summary}, table)
  cells.write_csv(workdir / 'results.csv', results)
  print(table)
  if trained:
    runs = {
      name: [folder.parent for folder in folders]
      for name, folders in trained.items()
    }
    print(f'curves       {output.draw_rewriters(runs, workdir)}')
  for folders in trained.values():
    for folder in folders:
      print(f'model        {folder}')
  print(f'TensorBoard  tensorboard --logdir {workdir}')


if __name__ == '__main__':
  app.run(main)
