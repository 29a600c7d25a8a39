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
import json
import pathlib
import sys

import numpy as np
import tqdm
from absl import app, flags
from ml_collections import config_flags

from experiments import (
  controllers,
  data,
  joint_players,
  joint_report,
  rewriters,
)
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.envs.rewriting.config import make_config
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.evaluation.play import LineUp, Plan
from promptrl_jax.execution import ExecutionPool, Limits
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.llm.ask import CODER, REWRITER
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.llm.load import BackendConfig, load_backend
from promptrl_jax.parallel import compilation
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.tools import command
from promptrl_jax.training import checkpoint, joint, loop, metrics
from promptrl_jax.training import workdir as workdir_lib

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
  mesh_lib.use_cpu_cores()
  compilation.use_cache()
  command.log_warnings_alone()

  # --- Data and models --------------------------------------------------------
  arms = make_arms(config)
  tasks = data.load_tasks(config.data)
  env_config = controllers.make_env_config(config)
  mesh = mesh_lib.from_text(config.mesh)
  coder = CachedBackend(load_backend(BackendConfig(**config.coder), mesh))
  start = rewriters.load_start(config.rewriter, config.reference.model)
  rewriters.check(with_iterations(config), start)
  policy = start.backend(mesh, config.env.rewrite_max_tokens)
  # A folder of the same name may hold another model by now.
  models = {'coder': coder.name, 'start': start.name} | start.reference_name
  workdir_lib.prepare(
    workdir, json.loads(config.to_json()) | {'models': models}
  )
  limits = Limits(cpu_s=config.pool.cpu_s, memory_mb=config.pool.memory_mb)
  with ExecutionPool(
    config.pool.workers, limits, config.pool.allow_weak
  ) as pool:
    line_up = LineUp(
      {REWRITER: policy, CODER: coder}, MemoPool(pool), env_config
    )
    episodes = EditingEnv(coder, policy, MemoPool(pool), env_config)
    rewriting = RewritingEnv(coder, pool, make_reward_config(config))

    # --- Training -------------------------------------------------------------
    seeds = range(config.seed, config.seed + config.seeds)
    players, costs = {}, {name: [] for name in arms}
    for seed in seeds:
      control, learner = make_parts(config, env_config, start, mesh, seed)
      for name, rival in joint_players.rivals(env_config, learner).items():
        players.setdefault(name, {})[seed] = rival
      for name, arm in arms.items():
        folder = workdir / name / f'seed_{seed}'
        training = joint.Training(
          arm, control, learner, episodes, rewriting, policy,
          tasks['train'], seed,
        )  # fmt: skip
        player_of = functools.partial(
          joint_players.of_state, arm, control, learner, env_config, seed
        )

        def validate(state, player_of=player_of):
          runs = joint_players.entrant({0: player_of(state)}, policy)
          return score(config, line_up, runs, tasks['validation'])

        first = joint.initial(control, learner)
        train(config, arm, training, first, validate, folder)
        best, cost = load(joint.initial(control, learner), folder)
        if arm.rewriter:
          rewriters.save(learner, start, best.rewriter, folder)
        players.setdefault(name, {})[seed] = player_of(best)
        costs[name].append(cost)

    # --- Evaluation -----------------------------------------------------------
    entrants = {
      name: joint_players.entrant(
        by_seed,
        policy,
        float(np.mean([sum(row[c] for c in _CALLS) for row in costs[name]]))
        if name in costs
        else 0.0,
      )
      for name, by_seed in players.items()
    }
    cells = line_up.play(
      entrants,
      [
        Plan(config.data.protocol, budget, tasks['test'], seeds)
        for budget in config.eval.budgets
      ],
      workdir / 'trace.jsonl',
      lambda todo: tqdm.tqdm(todo, desc='evaluate', unit='strategy'),
    )[config.data.protocol]

  # --- Report -----------------------------------------------------------------
  header = {
    'data_hash': data.describe(config.data),
    'model_hashes': {
      'coder': coder.name,
      'rewriter': start.name,
      **start.reference_name,
    },
    'seeds': list(seeds),
    'command': ' '.join(['python', '-m', 'experiments.joint', *sys.argv[1:]]),
  }
  print(
    joint_report.write(
      workdir, cells, header, costs, config.eval.subject, config.eval.resamples
    )
  )
  print(f'plots        {workdir}/*.png')
  print(f'trace        {workdir / "trace.jsonl"}')
  print(f'TensorBoard  tensorboard --logdir {workdir}')


# --- Stages -------------------------------------------------------------------


def make_arms(config):
  """How each arm divides its calls.

  Raises:
    ValueError: an arm trains nothing or has the name of a rival, a part has
      nothing to do, or a schedule ends with a run of unknown length.
  """
  if config.ppo.anneal or config.optimizer.decay != 'constant':
    raise ValueError(
      f'ppo.anneal={config.ppo.anneal}, optimizer.decay='
      f'{config.optimizer.decay!r}: expected False and constant, because how '
      'many updates the calls of an arm pay for is not known ahead'
    )
  if config.eval.subject not in config.arms:
    raise ValueError(
      f'eval.subject={config.eval.subject!r}: expected one of the arms, '
      f'{", ".join(config.arms)}'
    )
  if 'semantic' not in config.env.actions:
    raise ValueError(
      f'env.actions={tuple(config.env.actions)}: expected semantic among them, '
      'the only one that asks the rewriter'
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


def make_reward_config(config):
  return make_config(
    config.rewrite_reward.to_dict(),
    protocol=config.data.protocol,
    template=config.env.template,
    max_tokens=config.env.max_tokens,
    top_p=config.env.top_p,
  )


def with_iterations(config):
  """The config with numbers that only schedules read; those are refused."""
  settings = config.copy_and_resolve_references().unlock()
  settings.controller.iterations = settings.train.iterations = config.calls
  return settings


def make_parts(config, env_config, start, mesh, seed):
  """The jitted functions of the controller and of the rewriter."""
  settings = with_iterations(config)
  return (
    controllers.make(settings, env_config, seed),
    rewriters.make(settings, start, mesh, seed),
  )


def score(config, line_up, entrant, validation):
  """pass@1 on validation problems, mean over budgets."""
  runs = [
    line_up.run(
      entrant,
      validation[: config.validate_limit or None],
      protocol=config.data.protocol,
      budget=budget,
      seed=0,
    )
    for budget in config.eval.budgets
  ]
  return float(np.mean([run.passed for run in runs]))


def train(config, arm, training, state, validate, folder):
  """Trains one arm to its last call, from its last checkpoint if any."""
  with checkpoint.open_checkpoints(folder / 'checkpoints') as checkpoints:
    totals = dict(loop.TOTALS)
    if checkpoints.latest_step() is not None:
      state, totals = checkpoint.restore_checkpoint(checkpoints, state)
    start = int(state.step)
    progress = tqdm.tqdm(
      initial=min(arm.calls, int(state.coder_calls)), total=arm.calls,
      unit='call', desc=f'{folder.parent.name} {folder.name}',
    )  # fmt: skip

    def show(step, row, totals):
      del step
      best = totals['best']
      shown = {
        'solved': row.get('controller/rollout/solved_rate'),
        'reward': row.get('rewriter/reward/mean'),
        'best_validation': best if best >= 0 else None,
      }
      progress.set_postfix(
        {k: '-' if v is None else f'{v:.3f}' for k, v in shown.items()},
        refresh=False,
      )
      # The last iteration may pass what was planned.
      spent = min(arm.calls, int(row['budget/coder_calls']))
      progress.update(spent - progress.n)

    with metrics.MetricWriter(folder, resume_step=start) as writer, progress:
      loop.run(
        state, totals, training.iterate, validate, checkpoints, writer,
        loop.LoopConfig(
          arm.legs, config.validate_every, config.checkpoint_every
        ),
        [show],
      )  # fmt: skip


def load(template, folder):
  """The best state of an arm, and what its training took to the end."""
  with checkpoint.open_checkpoints(
    folder / 'checkpoints', read_only=True
  ) as checkpoints:
    best, _ = checkpoint.restore_checkpoint(checkpoints, template, 'best')
    last, _ = checkpoint.restore_checkpoint(checkpoints, template, 'last')
  cost = {
    'coder calls': last.coder_calls,
    'rewriter calls': last.rewriter_calls,
    'controller updates': last.controller.step,
    'rewriter updates': last.rewriter.step,
    'best leg': best.step,
  }
  return best, {name: int(value) for name, value in cost.items()}


if __name__ == '__main__':
  app.run(main)
