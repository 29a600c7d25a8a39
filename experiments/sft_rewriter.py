"""Supervised fine-tuning of the rewriter on fail -> pass edits.

  python -m experiments.sft_rewriter --config=configs/sft_rewriter.py \
    --workdir=runs/sft

Takes edits from traces of training problems, fine-tunes the rewriter on them,
and compares it with the one it started from and with the direct answer, one
rewrite and one program per problem. In the workdir: edits.jsonl, model/ (a
folder for --config.rewriter.model), metrics, checkpoints, results.json,
results.md and results.csv. A run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import random

import tqdm
from absl import app, flags
from ml_collections import config_flags

from configs.sft_rewriter import Config
from experiments import session
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.envs.rewriting.failed import failed_tasks
from promptrl_jax.evaluation import (
  cells,
  output,
  report,
  rewriter,
)
from promptrl_jax.evaluation.play import LineUp, Plan, rivals
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.files import write_atomically
from promptrl_jax.llm import load
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.models import pretrained
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.prompts import templates
from promptrl_jax.strategies.prewrite import RewriteConfig
from promptrl_jax.tasks.load import describe, load_tasks, task_set
from promptrl_jax.tasks.minicode import practice
from promptrl_jax.tools import command
from promptrl_jax.training import run as run_lib
from promptrl_jax.training import workdir as workdir_lib
from promptrl_jax.training.rewriter import build
from promptrl_jax.training.rewriter.solvable import solving_statements
from promptrl_jax.training.supervised import edits
from promptrl_jax.training.supervised import learner as supervised
from promptrl_jax.training.supervised.chat import Chat
from promptrl_jax.training.supervised.packing import pack_encoded
from promptrl_jax.training.supervised.values import (
  by_values,
  exchange_values,
)
from promptrl_jax.training.supervised.widen import widened

_CONFIG = config_flags.DEFINE_config_file(
  'config', 'configs/sft_rewriter.py', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where results go.')
flags.mark_flag_as_required('workdir')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line():
    run(_CONFIG.value, pathlib.Path(_WORKDIR.value))


def run(config, workdir):
  config = session.begin(Config, config)
  session.check_templates(config)

  # --- Data and models --------------------------------------------------------
  tasks = load_tasks(config.data)
  session.check_programs(tasks)
  begin = build.load_start(config.rewriter)
  mesh = mesh_lib.from_text(config.mesh)
  ledger = session.open_ledger(config, workdir, CODER)
  coder = session.cached(
    load.load_backend(config.coder, mesh), CODER, config.coder, ledger
  )
  start = load.load_backend(config.rewriter, mesh)
  workdir_lib.prepare(workdir, 'sft_rewriter', config)
  with session.open_pool(config.pool) as pool:
    env = RewritingEnv(
      coder, pool, config.rewriting, config.ask, protocol=config.data.protocol
    )
    # --- Edits ----------------------------------------------------------------
    rows = make_edits(config, tasks, env, coder, start, pool, workdir)
    draw_fn, held_out = make_data(config, tasks, rows, begin.tokenizer, workdir)

    # --- Training -------------------------------------------------------------
    params = train(config, begin, mesh, draw_fn, held_out, workdir)
    folder = workdir / 'model'
    pretrained.save_pretrained(
      folder, begin.config, params, begin.tokenizer, 'float32'
    )

    # --- Evaluation -----------------------------------------------------------
    tuned = load.load_backend(load.BackendConfig(model=str(folder)), mesh)
    played = tasks[config.eval.split]
    if config.only_failed:
      played = failed_tasks(env, played)
    results = rewriter.play(env, {'start': [start], 'sft': [tuned]}, played)

  # --- Report -----------------------------------------------------------------
  models = {'coder': coder.name, 'start': start.name, 'sft': tuned.name}
  write_report(config, workdir, models, results)
  print(f'model        {folder}')
  print(f'edits        {workdir / "edits.jsonl"}')


# --- Stages -------------------------------------------------------------------


def make_edits(config, tasks, env, coder, start, pool, workdir):
  """Rows of edits.jsonl; an interrupted run finds those it learned from."""
  path = workdir / 'edits.jsonl'
  if path.exists():
    return list(output.read_jsonl(path))
  if config.collect.rewrites and not config.traces:
    true = own_edits(config, tasks, env, start)
  else:
    true = traced_edits(config, tasks, coder, start, pool, workdir)
  chats = edits.to_chats(
    true, config.edits.feedback, config.ask.template, config.edits.keep_as
  )
  rows = [
    {'task_id': task_id, **dataclasses.asdict(chat)}
    for chat, task_id in chats.items()
  ]
  text = ''.join(json.dumps(row) + '\n' for row in rows)
  write_atomically(path, text.encode())
  return rows


def own_edits(config, tasks, env, start):
  """Rewrites of failed statements that pass all tests, most of them its own."""
  failed = failed_tasks(env, tasks['train'])
  collect = config.collect
  solving, _ = solving_statements(
    env,
    start,
    failed,
    RewriteConfig(collect.rewrites, collect.temperature, config.seed),
    functools.partial(
      widened,
      mutations=collect.mutations,
      lexical_config=config.editing.lexical,
      template=config.ask.template,
      seed=config.seed,
    ),
    lambda batches: tqdm.tqdm(batches, desc='collect', unit='batch'),
  )
  print(
    f'{sum(map(len, solving))} rewrites solve {sum(map(bool, solving))} of '
    f'{len(failed)} problems, with {collect.rewrites} tries of each'
  )
  if not any(solving):
    raise ValueError(
      f'none of {collect.rewrites} rewrites of each of {len(failed)} '
      'statements makes the coder pass all tests: give a rewriter that solves '
      'some, or a trace with --config.traces'
    )
  return edits.from_rewrites(failed, solving)


def traced_edits(config, tasks, coder, start, pool, workdir):
  """Edits of training problems from traces; one is collected if none is given.

  Each passes all tests and has no flag.
  """
  traces = [pathlib.Path(trace) for trace in config.traces]
  if not traces:
    traces = [workdir / 'trace.jsonl']
    if not traces[0].exists():
      collect(config, tasks, coder, start, pool, traces[0])
  worded = {task.task_id: task.statement for task in tasks['train']}
  found, true = [], []
  for find in (edits.find, edits.find_kept):
    passing = [e for trace in traces for e in find(edits.read_trace(trace))]
    found += passing
    if config.edits.originals:
      passing = [e for e in passing if e.before == worded.get(e.task_id)]
    judged = edits.keep_true(
      passing, tasks['train'], pool, protocol=config.data.protocol
    )
    if find is edits.find_kept:  # There are far more of these.
      random.Random(config.seed).shuffle(judged)
      judged = judged[: round(config.edits.keep * len(true))]
    true += judged
  if not true:
    mine = sum(edit.task_id in worded for edit in found)
    raise ValueError(
      f'no edit to learn from in {", ".join(map(str, traces))}: of '
      f'{len(found)} that pass, {mine} are of training problems, and none of '
      'these passes all tests without a flag. Give a trace of training '
      'problems with --config.traces, or none, to collect one'
    )
  return true


def make_data(config, tasks, rows, tokenizer, workdir):
  """A function that draws token ids to learn from, and those held out."""
  held = hold_out(tasks['train'], config)
  write_atomically(workdir / 'held_out.txt', '\n'.join(held).encode())
  learned, held_out = split(rows, held, tokenizer, config)
  known = task_set(config.data).practice(
    {task.task_id for task in tasks['train']} - set(held)
  )
  print(
    f'{len(learned)} requests to learn from, {len(held_out)} held out, of '
    f'{len({row["task_id"] for row in rows})} problems'
  )
  groups = by_values(learned) if config.edits.balanced else [learned]
  draw_fn = functools.partial(draw, config, groups, known, tokenizer)
  return draw_fn, held_out


def collect(config, tasks, coder, start, pool, path):
  """Plays training problems and leaves the trace at `path`."""
  known = rivals(config.editing)
  names = config.collect.strategies
  if not names or set(names) - set(known):
    raise ValueError(
      f'collect.strategies={names}: expected some of {", ".join(known)}'
    )
  seeds = range(config.seed, config.seed + config.collect.seeds)
  LineUp({REWRITER: start, CODER: coder}, MemoPool(pool), config.ask).play(
    {name: known[name] for name in names},
    [Plan(config.data.protocol, config.editing.budget, tasks['train'], seeds)],
    path,
    lambda todo: tqdm.tqdm(todo, desc='collect', unit='strategy'),
  )


def hold_out(tasks, config):
  """Ids of training problems that nothing is learned from, sorted."""
  ids = sorted(task.task_id for task in tasks)
  random.Random(config.seed).shuffle(ids)
  count = round(config.edits.held_out * len(ids))
  if not 0 < count < len(ids):
    raise ValueError(
      f'edits.held_out={config.edits.held_out} of {len(ids)} problems: '
      'expected at least one to learn from and one to hold out'
    )
  return sorted(ids[:count])


def split(rows, held, encoder, config):
  """Chats to learn from, and token ids of those held out, by problem."""
  parts = [], []
  for row in rows:
    messages = tuple(map(tuple, row['messages']))
    chat = Chat(messages, row['reply'])
    encoded = encode(encoder, chat.messages, chat.reply)
    if len(encoded[0]) <= config.supervised.row_length:
      is_held = row['task_id'] in held
      parts[is_held].append(encoded if is_held else chat)
  if not all(parts):
    raise ValueError(
      f'{len(parts[0])} requests to learn from and {len(parts[1])} held out '
      f'fit supervised.row_length={config.supervised.row_length} tokens: '
      'expected at least one of each; use longer rows or more traces'
    )
  return parts


def draw(config, groups, known, encoder, rng):
  """Endless token ids to learn from: edits, and practice statements."""
  write = templates.TEMPLATES[config.ask.template].rewriter
  while True:
    if known and rng.random() < config.practice.share:
      chat = draw_practice(config, known, write, rng)
    else:
      chat = rng.choice(rng.choice(groups))
      if config.edits.exchanged and rng.random() < config.edits.exchanged:
        chat = exchange_values(chat, rng)
    encoded = encode(encoder, chat.messages, chat.reply)
    if len(encoded[0]) <= config.supervised.row_length:
      yield encoded


def draw_practice(config, known, write, rng):
  """A practice statement and its plain form, with values that may be known."""
  register = rng.choice(config.practice.registers)
  values = rng.choice(known) if rng.random() < config.practice.known else None
  wording = practice.draw(register, rng, values)
  request = templates.RewritePrompt(wording.statement, wording.function_name)
  reply = '' if register == 'canonical' else f' {wording.canonical}'
  return Chat(write(request), reply)


def encode(encoder, messages, reply):
  """Token ids, and how many of them are the request."""
  prompt = encoder.render(list(messages))
  reply = [*encoder.encode([reply])[0], encoder.eos_id]
  return [*prompt, *reply], len(prompt)


def train(config, start, mesh, draw_fn, held_out, workdir):
  """Trains, from the last checkpoint if any; the best state's parameters."""
  settings = config.supervised
  learner = supervised.make_learner(start.config, settings, mesh)
  pad_id = start.tokenizer.pad_id
  validation = pack_encoded(iter(held_out), pad_id, settings)
  schedule = run_lib.RunConfig(
    settings.steps,
    config.validate_every,
    config.checkpoint_every,
    score_name='eval/held_out_likelihood',
  )
  with run_lib.Run(
    workdir,
    learner.start_from(start.params),
    schedule,
    name='sft',
    unit='step',
    shown={'loss': 'train/completion_loss'},
  ) as training:
    for step in training.steps():
      rng = random.Random(f'{config.seed}/{step}')
      rows = pack_encoded(draw_fn(rng), pad_id, settings)
      training.log(*learner.update(training.state, rows))
      training.validate(lambda state: learner.score(state, validation))
  best, _ = run_lib.restore(workdir, learner.start_from(start.params))
  return best.params


def write_report(config, workdir, models, results):
  """Writes the tables of a run, and prints them."""
  header = session.make_header(
    'sft_rewriter',
    f'{describe(config.data)}, {config.eval.split}',
    models,
    [config.seed],
  )
  summary = report.summarise(
    results, subject='sft', resamples=config.eval.resamples
  )
  table = report.to_markdown(summary, header)
  report.write_results(workdir, {'header': header, **summary}, table)
  cells.write_csv(workdir / 'results.csv', results)
  print(table)


if __name__ == '__main__':
  app.run(main)
