"""Controller and rewriter trained in turns, beside each of them alone.

  python -m experiments.joint --config=configs/joint.py:minicode \
    --workdir=runs/joint

Each arm spends the same number of coder calls in training: on the controller,
on the rewriter, or on both in turns, where the controller's `semantic` action
asks the rewriter as it is by then. All are then evaluated under each budget
beside strategies that learn nothing. In the workdir: results.json, results.md,
results.csv, trace.jsonl, plots, and per arm and seed a folder with metrics,
TensorBoard events, checkpoints and, where the rewriter was trained, model/. A
run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import functools
import pathlib

import numpy as np
import tqdm
from absl import app, flags
from ml_collections import config_flags

from configs.joint import Config
from experiments import joint_players, session
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.evaluation import joint_report
from promptrl_jax.evaluation.play import LineUp, Plan
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.llm.load import load_backend
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.tasks.load import describe, load_tasks
from promptrl_jax.tools import command
from promptrl_jax.training import joint
from promptrl_jax.training import run as run_lib
from promptrl_jax.training import workdir as workdir_lib
from promptrl_jax.training.controller.learner import (
  make_learner as make_controller,
)
from promptrl_jax.training.rewriter import build

_CONFIG = config_flags.DEFINE_config_file(
  'config', 'configs/joint.py', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where results go.')
flags.mark_flag_as_required('workdir')

# Calls that an arm pays for once.
_CALLS = ('coder calls', 'rewriter calls')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line(errors=(*command.USER_ERRORS, joint.NoCalls)):
    run(_CONFIG.value, pathlib.Path(_WORKDIR.value))


def run(config, workdir):
  config = session.begin(Config, config)
  session.check_templates(config)

  # --- Data and models --------------------------------------------------------
  arms = make_arms(config)
  tasks = load_tasks(config.data)
  session.check_programs(tasks)
  mesh = mesh_lib.from_text(config.mesh)
  ledger = session.open_ledger(config, workdir, CODER)
  coder = session.cached(
    load_backend(config.coder, mesh), CODER, config.coder, ledger
  )
  start = build.load_start(
    config.rewriter,
    config.train.reference.model,
    config.ask.rewrite_stop,
  )
  config.train.check()
  build.check_reference(config.train, start)
  policy = start.backend(mesh, config.ask.rewrite_max_tokens)
  # A folder of the same name may hold another model by now.
  models = {'coder': coder.name} | start.names
  workdir_lib.prepare(workdir, 'joint', config, models)
  with session.open_pool(config.pool) as pool:
    field = joint_players.Field(
      LineUp({REWRITER: policy, CODER: coder}, MemoPool(pool), config.ask),
      EditingEnv(
        coder,
        policy,
        MemoPool(pool),
        config.editing,
        config.ask,
        config.ppo.gamma,
      ),
      policy,
      config.editing,
    )
    rewriting = RewritingEnv(
      coder,
      pool,
      config.rewriting,
      config.ask,
      protocol=config.data.protocol,
    )

    # --- Training -------------------------------------------------------------
    players, costs = {}, {name: [] for name in arms}
    for seed in range(config.seed, config.seed + config.seeds):
      learners = (
        make_controller(config.controller, config.ppo, config.editing, seed),
        build.make_learner(start, config.train, mesh, seed),
      )
      rivals = joint_players.rivals(config.editing, learners[1])
      for name, rival in rivals.items():
        players.setdefault(name, {})[seed] = rival
      for name, arm in arms.items():
        players.setdefault(name, {})[seed], cost = train(
          config, arm, learners, rewriting, field, tasks, seed, workdir / name
        )
        costs[name].append(cost)

    # --- Evaluation -----------------------------------------------------------
    results = compare(config, field, players, costs, tasks, workdir)
  write_report(config, workdir, coder, start, results, costs)


# --- Stages -------------------------------------------------------------------


def make_arms(config):
  """How each arm divides its calls.

  Raises:
    ValueError: an arm trains nothing or has the name of a rival, a part has
      nothing to do, or a schedule ends with a run of unknown length.
  """
  decay = config.train.optimizer.decay
  if config.ppo.anneal or decay != 'constant':
    raise ValueError(
      f'ppo.anneal={config.ppo.anneal}, train.optimizer.decay={decay!r}: '
      'expected False and constant, because how '
      'many updates the calls of an arm pay for is not known ahead'
    )
  if config.eval.subject not in config.arms:
    raise ValueError(
      f'eval.subject={config.eval.subject!r}: expected one of the arms, '
      f'{", ".join(config.arms)}'
    )
  if 'semantic' not in config.editing.actions:
    raise ValueError(
      f'editing.actions={config.editing.actions}: expected semantic among '
      'them, the only one that asks the rewriter'
    )
  arms = {}
  for name, turn in config.arms.items():
    if name in joint_players.RIVALS:
      raise ValueError(f'arms.{name}: a rival has this name, choose another')
    if len(turn) != 2:
      raise ValueError(
        f'arms.{name}={tuple(turn)}: expected iterations of the controller '
        'and of the rewriter, two numbers'
      )
    arms[name] = joint.JointConfig(config.calls, config.calls_per_leg, *turn)
  return arms


def train(config, arm, learners, rewriting, field, tasks, seed, folder):
  """Trains one arm to its last call, from its last checkpoint if any.

  Returns the player of the best state, and the cost of the whole training.
  """
  folder, problems = folder / f'seed_{seed}', tasks['validation']
  problems = problems[: config.validate_limit or None]
  training = joint.JointTraining(
    arm,
    *learners,
    field.episodes,
    rewriting,
    field.rewriter,
    tasks['train'],
    seed,
  )
  player_of = functools.partial(
    joint_players.of_state, arm, *learners, field.config, seed
  )

  def score(state):
    entrant = joint_players.entrant({0: player_of(state)}, field.rewriter)
    runs = [
      field.line_up.run(
        entrant,
        problems,
        protocol=config.data.protocol,
        budget=budget,
        seed=0,
      )
      for budget in config.eval.budgets
    ]
    return float(np.mean([run.passed for run in runs]))

  settings = run_lib.RunConfig(
    arm.legs, config.validate_every, config.checkpoint_every
  )
  shown = {
    'coder_calls': 'budget/coder_calls',
    'solved': 'controller/rollout/solved_rate',
    'reward': 'rewriter/reward/mean',
  }
  name, first = f'{folder.parent.name} {folder.name}', joint.initial(*learners)
  with run_lib.Run(
    folder, first, settings, name=name, unit='leg', shown=shown
  ) as legs:
    for _ in legs.steps():
      state, row = training.iterate(legs.state)
      legs.log(state, row)
      legs.validate(score)
  best, cost = load(joint.initial(*learners), folder)
  if arm.rewriter:
    learners[1].save(best.rewriter, folder)
  return player_of(best), cost


def load(template, folder):
  """The best state of an arm, and the cost of its training to the end."""
  best, _ = run_lib.restore(folder, template)
  last, _ = run_lib.restore(folder, template, 'last')
  cost = {
    'coder calls': last.coder_calls,
    'rewriter calls': last.rewriter_calls,
    'controller updates': last.controller.step,
    'rewriter updates': last.rewriter.step,
    'best leg': best.step,
  }
  return best, {name: int(value) for name, value in cost.items()}


def compare(config, field, players, costs, tasks, workdir):
  """Plays all strategies on the test split; returns their cells."""
  training_calls = {
    name: float(np.mean([sum(row[c] for c in _CALLS) for row in rows]))
    for name, rows in costs.items()
  }
  entrants = {
    name: joint_players.entrant(
      by_seed, field.rewriter, training_calls.get(name, 0.0)
    )
    for name, by_seed in players.items()
  }
  seeds = range(config.seed, config.seed + config.seeds)
  plans = [
    Plan(config.data.protocol, budget, tasks['test'], seeds)
    for budget in config.eval.budgets
  ]
  cells = field.line_up.play(
    entrants,
    plans,
    workdir / 'trace.jsonl',
    lambda todo: tqdm.tqdm(todo, desc='evaluate', unit='strategy'),
  )
  return cells[config.data.protocol]


def write_report(config, workdir, coder, start, results, costs):
  """Writes tables and plots, and prints them."""
  names = {'coder': coder.name, 'rewriter': start.name} | {
    role: name for role, name in start.names.items() if role != 'start'
  }
  seeds = range(config.seed, config.seed + config.seeds)
  header = session.make_header('joint', describe(config.data), names, seeds)
  subject, resamples = config.eval.subject, config.eval.resamples
  table = joint_report.write(
    workdir, results, header, costs, subject, resamples
  )
  print(table)
  print(f'plots        {workdir}/*.png')
  print(f'trace        {workdir / "trace.jsonl"}')
  print(f'TensorBoard  tensorboard --logdir {workdir}')


if __name__ == '__main__':
  app.run(main)
