"""What the experiments on instructions share: tasks, models, choosing.

  tasks ─► candidates of each strategy ─► rewards on dev ─► the best ─► test

No flags here.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3

import numpy as np
import tqdm

from promptrl_jax.evaluation.instruction_report import Scores
from promptrl_jax.execution import ExecutionPool, Limits, TooWeakError
from promptrl_jax.files import write_atomically
from promptrl_jax.llm.backend import BackendError
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.llm.load import BackendConfig, load_backend
from promptrl_jax.llm.program_lm import ProgramLM
from promptrl_jax.strategies import prewrite
from promptrl_jax.tasks import instructions
from promptrl_jax.tasks.instructions import Instruction
from promptrl_jax.tasks.minicode import instruct

STRATEGIES = ('I', 'S')
CANONICAL = 'canonical wording (reference)'
# What a bad config, bad data or a dead endpoint raise: told in one line.
USER_ERRORS = (
  ValueError, OSError, BackendError, TooWeakError, sqlite3.Error,
)  # fmt: skip

_REQUESTS_PER_CALL = 512  # What the progress bar waits for.
_ROUNDS = 8  # Requests of each connection to a server between two savings.


def check_strategies(names):
  unknown = set(names) - set(STRATEGIES)
  if unknown or not names:
    raise ValueError(
      f'strategies={tuple(names)}: expected some of {", ".join(STRATEGIES)}'
    )


def load_tasks(data, seed):
  """Dev and test tasks in one order, and for minicode registers and wordings.

  Without a test file there are no test tasks.
  """
  groups, canonical = [], []
  if data.name == 'minicode':
    pairs = load_minicode(data)
    dev, test = [p.dev for p in pairs], [p.test for p in pairs]
    groups = [p.register for p in pairs]
    canonical = [Instruction(p.canonical) for p in pairs]
  elif data.name == 'jsonl':
    if not data.dev:
      raise ValueError(
        'data.dev is empty: give a file of dev examples with --config.data.dev='
      )
    dev = list(instructions.load(data.dev))
    test = list(instructions.load(data.test)) if data.test else []
    if data.instruction:
      dev = [with_instruction(dev, data.instruction, data.dev)]
      test = test and [with_instruction(test, data.instruction, data.test)]
    if test:
      dev, test = map(list, zip(*instructions.match(dev, test), strict=True))
    dev, test = (part[: data.tasks_limit or None] for part in (dev, test))
  else:
    raise ValueError(f'data.name={data.name!r}: expected minicode or jsonl')
  dev = [prewrite.subsample(task, data.dev_limit, seed) for task in dev]
  test = [prewrite.subsample(task, data.test_limit, seed) for task in test]
  return dev, test, groups, canonical


def load_minicode(data):
  """The embedded tasks, with training inputs if their instructions train."""
  count = data.get('train_examples', 0)
  pairs = instruct.load(
    data.split, data.dev_examples, data.test_examples, train_examples=count
  )
  return pairs[: data.tasks_limit or None]


def load_training(data, dev, test):
  """Tasks to train on, and those that say when to stop.

  The embedded tasks are those of `dev` with inputs for training or, if there
  are to be none, those of other splits of the suite with all their inputs.
  Tasks of files may be those of `dev` or not.

  Raises:
    ValueError: no file, or one with an input of `dev` or `test`.
  """
  if data.name == 'minicode' and data.train_examples:
    train = [pair.train for pair in load_minicode(data)]
    return train[: data.train_limit or None], dev
  if data.name == 'minicode':
    splits = (
      instruct.load(split, data.dev_examples, data.test_examples)
      for split in ('train', 'validation')
    )
    train, validation = (
      [
        dataclasses.replace(p.dev, examples=p.dev.examples + p.test.examples)
        for p in pairs
      ]
      for pairs in splits
    )
    return (
      train[: data.train_limit or None],
      validation[: data.validation_limit or None],
    )
  if not data.train:
    raise ValueError(
      'data.train is empty: give a file of training examples with '
      '--config.data.train='
    )
  train = list(instructions.load(data.train))
  if data.instruction:
    train = [with_instruction(train, data.instruction, data.train)]
  for name, others in (('dev', dev), ('test', test)):
    by_key = {task.key: task for task in others}
    shared = [task for task in train if task.key in by_key]
    pairs = instructions.match(
      shared, [by_key[task.key] for task in shared], ('train', name)
    )
    matched = {task.key: task for task, _ in pairs}
    train = [matched.get(task.key, task) for task in train]
  return train[: data.train_limit or None], dev


def with_instruction(tasks, text, path):
  """The one task of a file, with another initial instruction."""
  if len(tasks) > 1:
    raise ValueError(
      f'data.instruction replaces one instruction, but {path} has {len(tasks)}'
    )
  return dataclasses.replace(tasks[0], instruction=Instruction(text))


def open_model(settings, mesh, cache, stack):
  """A model with its answers on disk, closed at the end."""
  config = (
    settings
    if isinstance(settings, BackendConfig)
    else BackendConfig(**settings)
  )
  if not config.model:
    raise ValueError(
      'no model is named: give --config.rewriter.model= and '
      '--config.task_model.model='
    )
  # A server answers slowly: what it has answered is kept from time to time.
  batch = _ROUNDS * config.concurrency if config.backend == 'http' else None
  backend = CachedBackend(
    load_backend(config, mesh), cache, config.identity, batch
  )
  stack.callback(backend.close)
  return backend


def open_task_model(config, mesh, cache, stack):
  """The frozen model, behind a pool if it answers by programs."""
  model = open_model(config.task_model, mesh, cache, stack)
  if not config.runs_programs:
    return model
  limits = Limits(cpu_s=config.pool.cpu_s, memory_mb=config.pool.memory_mb)
  pool = stack.enter_context(
    ExecutionPool(config.pool.workers, limits, config.pool.allow_weak)
  )
  print(f'programs run behind {pool.layers.describe()}')
  model = CachedBackend(ProgramLM(model, pool), cache, identity=str(limits))
  stack.callback(model.close)
  return model


def draw_candidates(rewriter, meta, initial, settings, strategies):
  """Candidates of each strategy and instruction, and rows of the trace."""
  candidates, trace = {}, []
  if 'I' in strategies:
    greedy = prewrite.rewrite_greedily(rewriter, meta, initial, settings)
    trace += [rewrite.row('I') for rewrite in greedy]
    candidates['PRewrite-I'] = [[r.instruction] for r in greedy]
  if 'S' in strategies:
    drawn = prewrite.sample_rewrites(rewriter, meta, initial, settings)
    trace += [rewrite.row('S') for some in drawn for rewrite in some]
    candidates['PRewrite-S'] = [
      [first, *(r.instruction for r in some)]
      for first, some in zip(initial, drawn, strict=True)
    ]
  return candidates, trace


def drop_too_long(task_model, dev, test, candidates, max_tokens):
  """Takes out rewrites that the task model has no room for; counts them.

  A task that is left without a rewrite keeps its initial instruction.
  """
  dropped = 0
  for place, task in enumerate(dev):
    splits = [task, *test[place : place + 1]]
    fitting = lambda text, splits=splits: all(
      prewrite.fits(task_model, part, text, max_tokens) for part in splits
    )
    if not fitting(task.instruction):
      raise ValueError(
        f'{task_model.name} has no room for instruction '
        f'{task.instruction.text[:60]!r} with its examples: raise '
        'task_model.prompt_tokens (or max_context), or lower reward.max_tokens'
      )
    for lists in candidates.values():
      kept = [text for text in lists[place] if fitting(text)]
      dropped += len(lists[place]) - len(kept)
      lists[place] = kept or [task.instruction]
  return dropped


def measure(
  task_model, reward_fn, dev, test, candidates, max_tokens, canonical=()
):
  """Chooses on dev and measures on test, without rewrites that are too long.

  Returns:
    The instruction of each strategy and task, the scores of each strategy, and
    counts of what the task model was asked.
  """
  dropped = drop_too_long(task_model, dev, test, candidates, max_tokens)
  rewarded = reward_all(reward_fn, dev, candidates)
  chosen, dev_scores = choose(candidates, rewarded)
  if canonical:
    chosen[CANONICAL] = canonical
    dev_scores[CANONICAL] = reward_fn(list(zip(dev, canonical, strict=True)))
  choices = {
    name: Scores(
      dev_scores[name],
      reward_fn(list(zip(test, texts, strict=True))) if test else (),
    )
    for name, texts in chosen.items()
  }
  calls = {
    'answered': task_model.misses,
    'from_cache': task_model.hits,
    'rewrites_too_long': dropped,
  }
  return chosen, choices, calls


def reward_all(reward_fn, tasks, candidates):
  """Rewards of the candidates of each strategy and task on dev."""
  jobs = [
    (name, place, text)
    for place in range(len(tasks))
    for name, lists in candidates.items()
    for text in lists[place]
  ]
  per_call = max(
    1, _REQUESTS_PER_CALL // max(len(task.examples) for task in tasks)
  )
  found = {name: [[] for _ in tasks] for name in candidates}
  best = np.full(len(tasks), np.nan)
  with tqdm.tqdm(total=len(jobs), desc='dev', unit='candidate') as progress:
    for start in range(0, len(jobs), per_call):
      some = jobs[start : start + per_call]
      rewards = reward_fn([(tasks[place], text) for _, place, text in some])
      for (name, place, _), row in zip(some, rewards, strict=True):
        found[name][place].append(row)
        best[place] = np.fmax(best[place], row.mean())
      progress.set_postfix(best=f'{np.nanmean(best):.3f}', refresh=False)
      progress.update(len(some))
  return found


def choose(candidates, rewarded):
  """The instruction of each strategy and task, and its dev rewards."""
  chosen, scores = {}, {}
  for name, lists in candidates.items():
    places = [prewrite.select(rows) for rows in rewarded[name]]
    chosen[name] = [texts[i] for texts, i in zip(lists, places, strict=True)]
    scores[name] = [
      rows[i] for rows, i in zip(rewarded[name], places, strict=True)
    ]
  return chosen, scores


def write_lines(path, rows):
  text = ''.join(json.dumps(row) + '\n' for row in rows)
  write_atomically(path, text.encode())
