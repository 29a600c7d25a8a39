"""PRewrite: the rewriter of instructions learns from the task model's answers.

  python -m experiments.prewrite --config=configs/prewrite.py:minicode \
    --workdir=runs/prewrite

Trains the rewriter (Kong et al. 2024, arXiv 2401.08189) by PPO with a value
head, GAE and a price on divergence, or by any other algorithm of the learner,
stops when dev no longer gets better, and compares PRewrite-I and PRewrite-S of
the best checkpoint with the initial instructions and with the rewriter as it
was. In the workdir: results.md, results.json, instructions.jsonl, curves.png,
and per algorithm and seed a folder with metrics, TensorBoard events,
checkpoints, trace.jsonl and model/ (for --config.rewriter.model). A run that
was interrupted goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import json
import pathlib

import numpy as np
from absl import app, flags
from ml_collections import config_flags

from experiments import instructing, rewriters
from promptrl_jax.envs.rewriting.instructions import (
  InstructionRewriting,
  InstructionRewritingConfig,
)
from promptrl_jax.evaluation import instruction_report, output
from promptrl_jax.evaluation.instruction_report import INITIAL
from promptrl_jax.files import write_atomically
from promptrl_jax.llm.load import BackendConfig, load_backend
from promptrl_jax.parallel import compilation
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.prompts import meta as meta_lib
from promptrl_jax.rewards import text as text_rewards
from promptrl_jax.strategies import prewrite
from promptrl_jax.tools import command
from promptrl_jax.training import loop
from promptrl_jax.training import workdir as workdir_lib

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
  mesh_lib.use_cpu_cores()
  compilation.use_cache()
  command.log_warnings_alone()

  # --- Data and models --------------------------------------------------------
  instructing.check_strategies(config.strategies)
  settings = {
    name: rewriters.with_algorithm(config, name) for name in config.algorithms
  }
  for chosen_settings in settings.values():  # Refused before any work.
    rewriters.make_config(chosen_settings)
  dev, test, groups, canonical = instructing.load_tasks(
    config.data, config.seed
  )
  train, validation = instructing.load_training(config.data, dev, test)
  for task in (*train, *dev):
    text_rewards.make_metric(config.reward.metric, task.task)
  meta = meta_lib.make_meta(config.meta.family, config.meta.text)
  mesh = mesh_lib.from_text(config.mesh)
  start = rewriters.load_start(config.rewriter, config.reference.model)
  for chosen_settings in settings.values():
    rewriters.check(chosen_settings, start)
  check_batches(config, train)
  check_prompts(config, meta, start.tokenizer, (*train, *validation, *dev))
  seeds = range(config.seed, config.seed + config.seeds)
  runs = [(name, seed) for name in settings for seed in seeds]
  print(
    f'{len(train)} instruction(s) to train on, {len(validation)} that say when '
    f'to stop, {len(dev)} to rewrite in the end'
  )
  cache = config.cache or workdir / 'cache.sqlite'
  with contextlib.ExitStack() as stack:
    task_model = instructing.open_task_model(config, mesh, cache, stack)
    print(f'rewriter {start.name}, task model {task_model.name}')
    # A folder of the same name may hold another model by now.
    names = {'rewriter': start.name, 'task_model': task_model.name}
    workdir_lib.prepare(
      workdir,
      json.loads(config.to_json()) | {'models': names | start.reference_name},
    )
    reward_fn = prewrite.make_reward_fn(task_model, **config.reward)

    def fits(pair):
      return prewrite.fits(task_model, *pair, config.reward.max_tokens)

    # --- Training -------------------------------------------------------------
    env = InstructionRewriting(
      reward_fn, meta, InstructionRewritingConfig(**config.env), fits
    )
    policy = load_backend(rewriter_config(config), mesh)
    models = {(_UNTRAINED, config.seed): config.rewriter.model}
    for name, seed in runs:
      made = rewriters.make(settings[name], start, mesh, seed)
      folder = workdir / name / f'seed_{seed}'

      def validate(state, made=made):
        policy.replace_params(made.decode_params(state))
        return greedy_reward(config, policy, meta, validation, reward_fn, fits)

      rewriters.train(
        made, env, train, validate,
        loop.LoopConfig(
          made.config.iterations, config.validate_every,
          config.checkpoint_every, score_name='eval/dev_reward',
        ),
        seed, folder, config.patience,
      )  # fmt: skip
      models[name, seed] = str(rewriters.save_best(made, start, folder))

    # --- Choosing on dev, measuring on test -----------------------------------
    initial = [task.instruction for task in dev]
    candidates = {INITIAL: [[text] for text in initial]}
    for (name, seed), model in models.items():
      with contextlib.ExitStack() as closing:
        backend = instructing.open_model(
          rewriter_config(config, model), mesh, cache, closing
        )
        drawn, trace = instructing.draw_candidates(
          backend, meta, initial, rewrite_config(config), config.strategies
        )
      folder = workdir / name / f'seed_{seed}'
      instructing.write_lines(folder / 'trace.jsonl', trace)
      candidates |= {(name, seed, way): some for way, some in drawn.items()}
    chosen, scores, calls = instructing.measure(
      task_model, reward_fn, dev, test, candidates, config.reward.max_tokens,
      canonical,
    )  # fmt: skip

  # --- Report -----------------------------------------------------------------
  report(config, workdir, dev, chosen, scores, groups, calls)
  curves = output.draw_rewriters(
    {
      name: [workdir / name / f'seed_{seed}' for seed in seeds]
      for name in settings
    },
    workdir,
  )
  print(f'curves       {curves}')
  for name, seed in runs:
    print(f'model        {models[name, seed]}')


# --- Stages -------------------------------------------------------------------


def rewriter_config(config, model=''):
  """The rewriter as a backend, with the lengths that it is trained at."""
  settings = config.rewriter.to_dict()
  settings['model'] = model or settings['model']
  return BackendConfig(
    **settings,
    prompt_tokens=config.packing.prompt_size,
    new_tokens=config.rollout.new_tokens,
  )


def rewrite_config(config):
  return prewrite.RewriteConfig(
    **config.rewrite, max_tokens=config.rollout.new_tokens
  )


def check_batches(config, train):
  """A batch with an instruction twice would have the same samples twice."""
  if config.rollout.prompts > len(train):
    raise ValueError(
      f'rollout.prompts={config.rollout.prompts}, but there are {len(train)} '
      'instruction(s) to train on: lower it, and raise rollout.group for as '
      'many rewrites'
    )


def check_prompts(config, meta, tokenizer, tasks):
  """An instruction that the rewriter has no room for is named at once."""
  for task in tasks:
    size = len(tokenizer.render(meta_lib.render(meta, task.instruction.text)))
    if size > config.packing.prompt_size:
      raise ValueError(
        f'the rewriter is asked for instruction {task.instruction.text[:60]!r} '
        f'with {size} tokens: packing.prompt_size='
        f'{config.packing.prompt_size} is less'
      )


def greedy_reward(config, policy, meta, tasks, reward_fn, fits):
  """Mean reward of PRewrite-I, over instructions."""
  found = prewrite.rewrite_greedily(
    policy, meta, [task.instruction for task in tasks], rewrite_config(config)
  )
  pairs = [
    (task, rewrite.instruction)
    if fits((task, rewrite.instruction))
    else (task, task.instruction)
    for task, rewrite in zip(tasks, found, strict=True)
  ]
  return float(np.mean([row.mean() for row in reward_fn(pairs)]))


def report(config, workdir, dev, chosen, scores, groups, calls):
  """Writes the tables and the instructions, and shows them."""
  by_name = {}
  for key, found in scores.items():
    name = key if isinstance(key, str) else f'{key[0]} {key[2]}'
    by_name.setdefault(name, []).append(found)
  choices = {
    name: instruction_report.over_seeds(some) for name, some in by_name.items()
  }
  settings = config.eval.resamples, config.seed
  table = instruction_report.summarise(choices, *settings)
  text = instruction_report.markdown(table)
  compared = {}
  if choices[INITIAL].test:
    compared = instruction_report.compare(
      choices,
      [
        (f'{name} PRewrite-{way}', f'{_UNTRAINED} PRewrite-{way}')
        for name in config.algorithms
        for way in config.strategies
      ],
      *settings,
    )
    text += '\n\n' + instruction_report.compared_markdown(compared)
  registers = instruction_report.by_group(choices, groups) if groups else {}
  if registers:
    text += '\n\n' + instruction_report.group_markdown(registers)
  result = {
    'config': json.loads(config.to_json()),
    'calls': calls,
    'table': table,
    'compared': compared,
    'registers': registers,
  }
  named = lambda some: {
    key if isinstance(key, str) else f'{key[0]} seed {key[1]} {key[2]}': value
    for key, value in some.items()
  }
  instructing.write_lines(
    workdir / 'instructions.jsonl',
    instruction_report.rows(dev, named(chosen), named(scores)),
  )
  write_atomically(
    workdir / 'results.json', (json.dumps(result, indent=2) + '\n').encode()
  )
  write_atomically(workdir / 'results.md', (text + '\n').encode())
  print(text)
  if len(dev) == 1:
    for name, texts in named(chosen).items():
      print(
        f'\n{name}, dev {named(scores)[name].dev[0].mean():.3f}:\n'
        f'{texts[0].text}'
      )
  print(
    f'\ntask model   {calls["answered"]} answers, {calls["from_cache"]} from '
    f'the cache; {calls["rewrites_too_long"]} rewrites were too long'
  )
  print(f'instructions {workdir / "instructions.jsonl"}')


if __name__ == '__main__':
  app.run(main)
