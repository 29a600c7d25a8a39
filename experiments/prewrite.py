"""PRewrite: the rewriter of instructions learns from the task model's answers.

  python -m experiments.prewrite --config=configs/prewrite.py:minicode \
    --workdir=runs/prewrite

Trains the rewriter (Kong et al. 2024, arXiv 2401.08189) by PPO with a value
head, GAE and a KL penalty, or by any other algorithm of the learner,
stops when dev no longer gets better, and compares PRewrite-I and PRewrite-S of
the best checkpoint with the initial instructions and with the rewriter as it
was. In the workdir: results.md, results.json, instructions.jsonl, curves.png,
and per algorithm and seed a folder with metrics, TensorBoard events,
checkpoints, trace.jsonl and model/ (for --config.rewriter.model). A run that
was interrupted goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib

import numpy as np
from absl import app, flags
from ml_collections import config_flags

from configs.prewrite import Config
from experiments import instructing, session
from promptrl_jax.evaluation import output
from promptrl_jax.evaluation.example_rewards import (
  example_rewards,
  with_solvable_examples,
)
from promptrl_jax.evaluation.instruction_report import INITIAL
from promptrl_jax.llm.load import load_backend
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.prompts import meta as meta_lib
from promptrl_jax.rewards.registry import REWARDS
from promptrl_jax.strategies import prewrite
from promptrl_jax.tools import command
from promptrl_jax.training import run as run_lib
from promptrl_jax.training import workdir as workdir_lib
from promptrl_jax.training.rewriter import build
from promptrl_jax.training.rewriter.algorithms import make_config
from promptrl_jax.training.rewriter.collect import Collector

_CONFIG = config_flags.DEFINE_config_file(
  'config', 'configs/prewrite.py', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where results go.')
flags.mark_flag_as_required('workdir')

_UNTRAINED = 'untrained'


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line(errors=instructing.USER_ERRORS):
    run(_CONFIG.value, pathlib.Path(_WORKDIR.value))


def run(config, workdir):
  config = session.begin(Config, config)

  # --- Data and models --------------------------------------------------------
  instructing.check_strategies(config.strategies)
  instructing.check_answers(config, 'eval.answers', config.eval.answers)
  check_solvable(config)
  settings = {  # Refused before any work.
    name: make_config(config.train, name, config.switches)
    for name in config.algorithms
  }
  tasks = instructing.load_tasks(config, training=True)
  start = build.load_start(config.rewriter, config.train.reference.model)
  for learner_config in settings.values():
    build.check_reference(learner_config, start)
  check_batches(config, tasks.train)
  check_prompts(config, start.tokenizer, tasks)
  print(
    f'{len(tasks.train)} instruction(s) to train on, {len(tasks.validation)} '
    f'that say when to stop, {len(tasks.dev)} to rewrite in the end'
  )
  ledger = session.open_ledger(config, workdir, 'task_model')
  mesh = mesh_lib.from_text(config.mesh)
  cache = config.cache or workdir / 'cache.sqlite'
  with contextlib.ExitStack() as stack:
    task_model = instructing.open_task_model(config, ledger, mesh, cache, stack)
    print(f'rewriter {start.name}, task model {task_model.name}')
    # A folder of the same name may hold another model by now.
    names = {'rewriter': start.name, 'task_model': task_model.name}
    names |= {k: v for k, v in start.names.items() if k != 'start'}
    env = instructing.open_env(task_model, config, tasks, stack)
    workdir_lib.prepare(workdir, 'prewrite', config, names)

    if config.solvable_by:
      tasks = keep_solvable(config, env, tasks)

    # --- Training, choosing on dev, measuring on test -------------------------
    models = train(config, settings, start, mesh, env, tasks, workdir)
    candidates = {INITIAL: [[task.statement] for task in tasks.dev]}
    for (name, seed), model in models.items():
      folder = workdir / name / f'seed_{seed}'
      candidates |= {
        (name, seed, way): texts
        for way, texts in draw(
          config, model, ledger, mesh, cache, env, tasks.dev, folder
        ).items()
      }
    chosen, scores, calls = instructing.measure(
      task_model, env, tasks, candidates, config
    )

  # --- Report -----------------------------------------------------------------
  pairs = compared(config)
  instructing.report(config, workdir, tasks, chosen, scores, calls, pairs)
  draw_curves(config, workdir)
  for (name, _), model in models.items():
    if name != _UNTRAINED:
      print(f'model        {model}')


# --- Stages -------------------------------------------------------------------


def check_solvable(config):
  """Raises ValueError if it cannot be told which examples can be solved."""
  instructing.check_answers(config, 'solvable_by', config.solvable_by)
  reward = config.rewriting.reward
  if config.solvable_by and REWARDS[reward].uses_label_logps:
    raise ValueError(
      f'solvable_by={config.solvable_by}: the reward {reward} does not say '
      'whether an answer is right, expected 0, or a reward of answers'
    )


def keep_solvable(config, env, tasks):
  """The tasks, with the training examples that the task model can solve."""
  train = with_solvable_examples(env, tasks.train, config.solvable_by)
  left, whole = (
    sum(len(task.checker.examples) for task in part)
    for part in (train, tasks.train)
  )
  print(f'{left} of {whole} training examples can be solved')
  return dataclasses.replace(tasks, train=train)


def train(config, settings, start, mesh, env, tasks, workdir):
  """Trains every algorithm with every seed; the model folder of each."""
  policy = load_backend(rewriter_config(config), mesh)
  models = {(_UNTRAINED, config.seed): config.rewriter.model}
  for name, learner_config in settings.items():
    for seed in seeds_of(config):
      learner = build.make_learner(start, learner_config, mesh, seed)
      folder = workdir / name / f'seed_{seed}'

      def validate(state, learner=learner):
        policy.replace_params(learner.decode_params(state))
        return greedy_reward(policy, env, tasks.validation)

      run_training(config, learner, env, tasks.train, validate, seed, folder)
      best, _ = run_lib.restore(folder, learner.initial)
      models[name, seed] = str(learner.save(best, folder))
  return models


def draw(config, model, ledger, mesh, cache, env, tasks, folder):
  """Candidates of one rewriter; writes its trace."""
  with contextlib.ExitStack() as closing:
    given = rewriter_config(config, model)
    backend = instructing.open_model(
      given, 'rewriter', ledger, mesh, cache, closing
    )
    samples, trace = instructing.draw_candidates(backend, env, tasks, config)
  instructing.write_lines(folder / 'trace.jsonl', trace)
  return samples


def compared(config):
  """Names of the trained rewriters, each with that of the untrained one."""
  return [
    (f'{name} PRewrite-{way}', f'{_UNTRAINED} PRewrite-{way}')
    for name in config.algorithms
    for way in config.strategies
  ]


def seeds_of(config):
  return range(config.seed, config.seed + config.seeds)


def draw_curves(config, workdir):
  curves = output.draw_rewriters(
    {
      name: [workdir / name / f'seed_{seed}' for seed in seeds_of(config)]
      for name in config.algorithms
    },
    workdir,
  )
  print(f'curves       {curves}')


def run_training(config, learner, env, tasks, validate, seed, folder):
  """Trains one rewriter, from its last checkpoint if any."""
  settings = run_lib.RunConfig(
    learner.config.iterations,
    config.validate_every,
    config.checkpoint_every,
    score_name='eval/dev_reward',
    patience=config.patience,
  )
  shown = {'reward': 'reward/mean', 'kl': 'train/kl', 'phase': 'train/phase'}
  name = f'{folder.parent.name} seed {seed}'
  with run_lib.Run(
    folder, learner.initial, settings, name=name, shown=shown
  ) as training:
    collector = Collector(learner, env, tasks, seed, settings.is_saved)
    training.validate(validate)  # With patience, the start may be the best.
    for _ in training.steps():
      batch = collector.sample(training.state)
      rollout, rewards, row = collector.reward(training.state, batch)
      state, learned = learner.update(training.state, rollout, rewards)
      training.log(state, row | learned)
      training.validate(validate)


def rewriter_config(config, model=''):
  """The rewriter as a backend, with the lengths that it is trained at."""
  return dataclasses.replace(
    config.rewriter,
    model=model or config.rewriter.model,
    prompt_tokens=config.train.packing.prompt_size,
    new_tokens=config.ask.rewrite_max_tokens,
  )


def check_batches(config, train):
  """A batch with an instruction twice would have the same samples twice."""
  prompts = config.train.rollout.prompts
  if prompts > len(train):
    raise ValueError(
      f'train.rollout.prompts={prompts}, but there are {len(train)} '
      'instruction(s) to train on: lower it, and raise train.rollout.group '
      'for as many rewrites'
    )


def check_prompts(config, tokenizer, tasks):
  """An instruction that the rewriter has no room for is named at once."""
  room, meta = config.train.packing.prompt_size, config.rewriting.meta
  for task in (*tasks.train, *tasks.validation, *tasks.dev):
    size = len(tokenizer.render(meta_lib.render(meta, task.statement)))
    if size > room:
      raise ValueError(
        f'the rewriter is asked for instruction {task.statement[:60]!r} '
        f'with {size} tokens: train.packing.prompt_size={room} is less'
      )


def greedy_reward(policy, env, tasks):
  """Mean reward of PRewrite-I, over instructions."""
  rewrites = prewrite.rewrite_greedily(policy, env, tasks)
  statements = [
    rewrite.statement if env.fits(task, rewrite.statement) else task.statement
    for task, rewrite in zip(tasks, rewrites, strict=True)
  ]
  rewards = example_rewards(env, tasks, statements)
  return float(np.mean([row.mean() for row in rewards]))


if __name__ == '__main__':
  app.run(main)
