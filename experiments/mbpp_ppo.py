"""The main job: PPO over prompt edits for a frozen code model.

  python -m experiments.mbpp_ppo --config=configs/mbpp_ppo.py:minicode \
    --workdir=runs/minicode

Trains the controllers, then runs every strategy on the test split at each
budget and writes, in the workdir: results.json, results.md, results.csv,
trace.jsonl, plots, metrics.jsonl and TensorBoard events per controller, and
checkpoints. A run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import collections
import dataclasses
import io
import json
import pathlib
import sys
import time

import numpy as np
import tqdm
from absl import app, flags, logging
from ml_collections import config_flags

from promptrl_jax.envs.prompt_edit import EnvConfig, VectorPromptEdit
from promptrl_jax.evaluation import (
  actions,
  plots,
  protocol,
  references,
  report,
)
from promptrl_jax.evaluation.cells import write_csv
from promptrl_jax.evaluation.files import write_atomically
from promptrl_jax.execution import ExecutionPool, Limits
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.llm.backend import BackendError
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.llm.load import BackendConfig, load_backend
from promptrl_jax.operators.lexical import LexicalConfig
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.rewards.tests import RewardConfig
from promptrl_jax.rl import bandits
from promptrl_jax.strategies import policies
from promptrl_jax.tasks import mbpp, splits
from promptrl_jax.tasks.minicode import suite
from promptrl_jax.training import (
  bandit,
  checkpoint,
  controller,
  loop,
  metrics,
  ppo_config,
)

_CONFIG = config_flags.DEFINE_config_file(
  'config', 'configs/mbpp_ppo.py', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where results go.')
_MODE = flags.DEFINE_enum(
  'mode', 'train', ['train', 'eval'],
  'train: train, then evaluate; eval: evaluate the best checkpoints.',
)  # fmt: skip
flags.mark_flag_as_required('workdir')

# What a bad config, bad data or a dead endpoint raise: told in one line.
_USER_ERRORS = (ValueError, OSError, BackendError, protocol.SystemFailure)


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  try:
    run(_CONFIG.value, pathlib.Path(_WORKDIR.value), _MODE.value)
  except KeyboardInterrupt:
    sys.exit('interrupted: the same command goes on from the last checkpoint')
  except _USER_ERRORS as error:
    logging.debug('raised here', exc_info=True)
    sys.exit(f'error: {error} (--verbosity=1 shows where)')


def run(config, workdir, mode):
  mesh_lib.use_cpu_cores()
  if logging.get_verbosity() == logging.INFO:  # the default: too much of Orbax
    logging.set_verbosity(logging.WARNING)

  # --- Data -------------------------------------------------------------------
  tasks = load_tasks(config.data)
  env_config = make_env_config(config)
  prepare_workdir(workdir, config)

  # --- Models and pool --------------------------------------------------------
  mesh = mesh_lib.make_data_mesh()
  coder = load_backend(BackendConfig(**config.coder), mesh)
  rewriter = load_backend(BackendConfig(**config.rewriter), mesh)
  limits = Limits(cpu_s=config.pool.cpu_s, memory_mb=config.pool.memory_mb)
  with ExecutionPool(workers=config.pool.workers, limits=limits) as pool:
    # --- Training -------------------------------------------------------------
    trained = []
    for seed in range(config.seed, config.seed + config.seeds):
      env = VectorPromptEdit(coder, rewriter, pool, env_config)
      folder = workdir / f'seed_{seed}'
      if mode == 'train':
        train(config, env_config, env, pool, tasks, seed, folder)
      ppo = restore_best(config, env_config, seed, folder)
      trained.append(
        {'ppo': ppo, 'bandit': train_bandit(config, env, tasks, seed, folder)}
      )

    # --- Evaluation -----------------------------------------------------------
    env = VectorPromptEdit(
      CachedBackend(coder), CachedBackend(rewriter), MemoPool(pool), env_config
    )
    rows, seconds = evaluate(config, env, pool, tasks, trained, workdir)

  # --- Report -----------------------------------------------------------------
  write_report(config, workdir, rows, seconds, coder.name, rewriter.name)


# --- Stages -------------------------------------------------------------------


def load_tasks(data):
  """Tasks of the three splits, checked for leaks between them."""
  if data.protocol not in splits.PROTOCOLS:
    raise ValueError(
      f'data.protocol={data.protocol!r}: expected one of {splits.PROTOCOLS}'
    )
  parts = {}
  for split in ('train', 'validation', 'test'):
    if data.name == 'minicode':
      loaded = suite.load(split)
    elif data.name == 'mbpp':
      loaded = mbpp.load(split, data.path or None)
    else:
      raise ValueError(f'data.name={data.name!r}: expected minicode or mbpp')
    limit = data[f'{split}_limit']
    parts[split] = loaded[:limit] if limit else loaded
  splits.check_no_leak(parts)
  return parts


def make_env_config(config):
  env = config.env.to_dict()
  for role in ('coder', 'rewriter'):
    if config[role].backend == 'http' and env['template'] == 'plain':
      raise ValueError(
        f'{role}.backend=http needs --config.env.template=chat: the plain '
        'format is that of the embedded models'
      )
  return EnvConfig(
    **{**env, 'lexical': LexicalConfig(**env['lexical'])},
    reward=RewardConfig(**config.reward),
    gamma=config.ppo.gamma,
  )


def make_controller(config, env_config, seed):
  """The jitted functions of one controller, and its settings."""
  settings = config.ppo.to_dict()
  anneal = settings.pop('anneal')
  iterations = config.controller.iterations
  ppo = ppo_config.PPOConfig(
    **settings, anneal_updates=iterations if anneal else None
  )
  control = controller.ControllerConfig(**config.controller)
  made = controller.make_controller(
    control, ppo, env_config.observation_size, len(env_config.actions), seed
  )
  return made, control


def prepare_workdir(workdir, config):
  """Writes the config, or refuses a workdir that was made with another."""
  path = workdir / 'config.json'
  mine = json.loads(config.to_json())
  if path.exists():
    theirs = json.loads(path.read_text())
    different = sorted(_differences(theirs, mine))
    if different:
      raise ValueError(
        f'{workdir} holds a run with another config ({"; ".join(different)}): '
        'use another --workdir, or the same config to continue it'
      )
  workdir.mkdir(parents=True, exist_ok=True)
  write_atomically(path, (json.dumps(mine, indent=2) + '\n').encode())


def _differences(theirs, mine, prefix=''):
  for key in theirs.keys() | mine.keys():
    a, b = theirs.get(key), mine.get(key)
    if isinstance(a, dict) and isinstance(b, dict):
      yield from _differences(a, b, f'{prefix}{key}.')
    elif a != b:
      yield f'{prefix}{key}: {a!r} there, {b!r} here'


def train(config, env_config, env, pool, tasks, seed, folder):
  """Trains one controller to the end, from its last checkpoint if any."""
  made, control = make_controller(config, env_config, seed)
  problems = [
    splits.reveal_for_training(task, config.data.protocol)
    for task in tasks['train']
  ]
  with checkpoint.open_checkpoints(folder / 'checkpoints') as checkpoints:
    state, totals = made.initial, dict(loop.TOTALS)
    if checkpoints.latest_step() is not None:
      state, totals = checkpoint.restore_checkpoint(checkpoints, state)
    start = int(state.step)
    progress = tqdm.tqdm(
      initial=start, total=control.iterations, desc=f'train seed {seed}',
      unit='update',
    )  # fmt: skip

    def show(step, row, totals):
      del step
      best = totals['best']
      progress.set_postfix(
        solved=f'{row["rollout/solved_rate"]:.2f}',
        best_validation=f'{best:.3f}' if best >= 0 else '-',
        refresh=False,
      )
      progress.update()

    with metrics.MetricWriter(folder, resume_step=start) as writer, progress:
      loop.run(
        state,
        totals,
        lambda s: controller.iterate(made, s, env, problems, control, seed),
        lambda s: validate(config, env, pool, tasks, made, s, seed),
        checkpoints,
        writer,
        loop.LoopConfig(
          control.iterations, config.validate_every, config.checkpoint_every
        ),
        [show],
      )


def validate(config, env, pool, tasks, made, state, seed):
  """pass@1 of the greedy policy on the validation split."""
  result = protocol.run(
    env,
    policies.controller(made.act_greedy, state.params, seed),
    tasks['validation'], pool,
    protocol=config.data.protocol, budget=config.env.budget, seed=seed,
  )  # fmt: skip
  return float(result.passed.mean())


def restore_best(config, env_config, seed, folder):
  """The greedy policy of the best checkpoint, and the calls of its training."""
  made, _ = make_controller(config, env_config, seed)
  with checkpoint.open_checkpoints(
    folder / 'checkpoints', read_only=True
  ) as checkpoints:
    state, _ = checkpoint.restore_checkpoint(checkpoints, made.initial, 'best')
    _, host = checkpoint.restore_checkpoint(checkpoints, made.initial, 'last')
  return policies.controller(made.act_greedy, state.params, seed), host['calls']


def train_bandit(config, env, tasks, seed, folder):
  """The contextual bandit, trained once, and the calls of its training."""
  path = folder / 'bandit.npz'
  if not path.exists():
    problems = [
      splits.reveal_for_training(task, config.data.protocol)
      for task in tasks['train']
    ]
    statistics, calls = bandit.train(
      env, problems, controller.ControllerConfig(**config.controller),
      config.bandit.iterations, config.bandit.exploration, seed,
    )  # fmt: skip
    content = io.BytesIO()
    np.savez(content, *statistics, calls=calls)
    write_atomically(path, content.getvalue())
  with np.load(path) as saved:
    statistics = bandits.LinearBandit(saved['arr_0'], saved['arr_1'])
    return policies.bandit(statistics), int(saved['calls'])


def evaluate(config, env, pool, tasks, trained, workdir):
  """Runs all strategies; returns the cells and the seconds it took."""
  start = time.perf_counter()
  seeds = list(range(config.seed, config.seed + config.seeds))
  names = env.config.actions
  # Resampling until the visible tests pass is best-of-B.
  labels = {'keep': 'direct', 'resample': 'best_of_b'}
  rivals = {
    labels.get(action, action): (
      lambda seed, a=action: policies.fixed(a, names)
    )
    for action in names
    if action not in ('submit', 'reset_prompt')
  }
  rivals['random'] = policies.uniform
  learned = dict(zip(seeds, trained, strict=True))
  strategies = dict(rivals)
  for name in ('bandit', 'ppo'):
    strategies[name] = lambda seed, n=name: learned[seed][n][0]
  temporary = workdir / '.trace.jsonl.tmp'
  cells = collections.defaultdict(list)
  plans = [(config.data.protocol, b) for b in config.eval.budgets]
  if config.eval.oracle:
    plans.append(('oracle', 10))
  with open(temporary, 'w', encoding='utf-8') as trace:
    progress = tqdm.tqdm(
      [(p, b, s) for p, b in plans for s in strategies], desc='evaluate'
    )
    for name, budget, strategy in progress:
      progress.set_postfix(strategy=strategy, B=budget)
      calls = 1 if strategy == 'direct' else budget
      chosen = tasks['test']
      if name == 'oracle' and config.eval.oracle_limit:
        chosen = chosen[: config.eval.oracle_limit]
      runs = [
        protocol.run(
          env, strategies[strategy](seed), chosen, pool,
          protocol=name, budget=calls, seed=seed,
        )
        # Greedy decoding has no seed, and parity needs no more than one.
        for seed in (seeds[:1] if 'direct' == strategy or name == 'oracle' else seeds)
      ]  # fmt: skip
      for result in runs:
        for row in result.trace:
          row = {
            'strategy': strategy,
            'protocol': name,
            **row,
            'budget': budget,
          }
          trace.write(json.dumps(row) + '\n')
      paid = [one[strategy][1] for one in trained if strategy in one]
      cell = protocol.to_cell(
        strategy, budget, name, chosen, runs,
        float(np.mean(paid)) if paid else 0.0,
      )  # fmt: skip
      cells[name].append(cell)
  temporary.replace(workdir / 'trace.jsonl')
  add_best_fixed(config, env, pool, tasks, seeds, rivals, cells)
  return cells, time.perf_counter() - start


def add_best_fixed(config, env, pool, tasks, seeds, rivals, cells):
  """Adds the fixed action that is best on validation, at each budget."""
  name = config.data.protocol
  for budget in config.eval.budgets:
    scores = {}
    for action, make in rivals.items():
      if action == 'random':
        continue
      result = protocol.run(
        env, make(seeds[0]), tasks['validation'], pool,
        protocol=name, budget=1 if action == 'direct' else budget,
        seed=seeds[0],
      )  # fmt: skip
      scores[action] = float(result.passed.mean())
    best = max(scores, key=lambda action: scores[action])
    chosen = next(
      c for c in cells[name] if c.strategy == best and c.budget == budget
    )
    print(f'best fixed action on validation, B={budget}: {best}')
    cells[name].append(dataclasses.replace(chosen, strategy='best_fixed'))


def write_report(config, workdir, cells, seconds, coder, rewriter):
  """Tables, plots and where to find them."""
  data_hash = (
    suite.digest()
    if config.data.name == 'minicode'
    else mbpp.digest(config.data.path or None)
  )
  header = {
    'data_hash': f'{config.data.name} {data_hash}',
    'model_hashes': {'coder': coder, 'rewriter': rewriter},
    'seeds': list(range(config.seed, config.seed + config.seeds)),
    'command': ' '.join(
      ['python', '-m', 'experiments.mbpp_ppo', *sys.argv[1:]]
    ),
  }
  published = references.PROMIS_MBPP
  parts, summaries = [], {}
  for name, rows in cells.items():
    summaries[name] = report.summarise(
      rows, subject='ppo', rivals=_planned(rows),
      resamples=config.eval.resamples,
    )  # fmt: skip
    parts.append(
      report.to_markdown(
        summaries[name], header,
        references=published if name == 'oracle' else (),
      )
    )  # fmt: skip
  main_name = config.data.protocol
  trace = read_jsonl(workdir / 'trace.jsonl')
  largest = max(config.eval.budgets)
  taken = actions.action_statistics(
    row for row in trace
    if row['strategy'] == 'ppo'
    and (row['protocol'], row['budget']) == (main_name, largest)
  )  # fmt: skip
  parts.append(actions.actions_markdown(taken))
  write_csv(
    workdir / 'results.csv', [c for rows in cells.values() for c in rows]
  )
  report.write_results(
    workdir, {'header': header, 'tables': summaries}, '\n'.join(parts)
  )
  plots.solved_at_budget(workdir / 'solved_at_b.png', summaries[main_name])
  plots.action_heatmap(workdir / 'actions.png', taken)
  draw_training(workdir / f'seed_{config.seed}', workdir)
  print_summary(workdir, parts[0], seconds, config)


def _planned(cells):
  """The rivals whose comparison was planned; the table shows the others too."""
  planned = ('direct', 'random', 'best_of_b', 'best_fixed', 'bandit')
  return [n for n in planned if any(c.strategy == n for c in cells)]


def read_jsonl(path):
  with open(path, encoding='utf-8') as file:
    return [json.loads(line) for line in file]


def draw_training(folder, workdir):
  rows = read_jsonl(folder / 'metrics.jsonl')
  steps = [row['budget/env_steps'] for row in rows]
  validated = [row for row in rows if 'eval/validation_pass' in row]
  plots.learning_curve(
    workdir / 'learning_curve.png',
    steps,
    [row['rollout/return'] for row in rows],
    [row['rollout/solved_rate'] for row in rows],
    validation_steps=[row['budget/env_steps'] for row in validated],
    validation_pass_rates=[row['eval/validation_pass'] for row in validated],
    window=5,
  )
  prefix = 'rollout/action_'
  plots.action_usage(
    workdir / 'action_usage.png',
    steps,
    {
      name.removeprefix(prefix): [row[name] for row in rows]
      for name in rows[0]
      if name.startswith(prefix)
    },
  )


def print_summary(workdir, table, seconds, config):
  rows = read_jsonl(workdir / f'seed_{config.seed}' / 'metrics.jsonl')
  spent = {
    part: sum(row[f'time/{part}'] for row in rows)
    for part in ('generate', 'rewrite', 'execute', 'update', 'other')
  }
  print(table)
  print(
    f'training took {sum(spent.values()):.0f} s: '
    + ', '.join(f'{part} {value:.0f} s' for part, value in spent.items())
    + f'; evaluation {seconds:.0f} s'
  )
  print(f'report       {workdir / "results.md"}')
  print(f'plots        {workdir}/*.png')
  print(f'trace        {workdir / "trace.jsonl"}')
  print(f'TensorBoard  tensorboard --logdir {workdir}')


if __name__ == '__main__':
  app.run(main)
