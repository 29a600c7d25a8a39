"""What the experiments on instructions share: tasks, models, choosing.

  tasks ─► candidates of each strategy ─► rewards on dev ─► the best ─► test

No flags here.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Sequence

import numpy as np
import tqdm

from experiments import session
from promptrl_jax import settings
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.evaluation import instruction_report
from promptrl_jax.evaluation.example_rewards import example_rewards
from promptrl_jax.evaluation.instruction_report import INITIAL, Scores
from promptrl_jax.execution import TooWeakError
from promptrl_jax.files import write_atomically
from promptrl_jax.llm.backend import BackendError
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.llm.load import load_backend
from promptrl_jax.llm.program_lm import ProgramLM
from promptrl_jax.prompts.templates import TEMPLATES
from promptrl_jax.rewards import registry
from promptrl_jax.strategies import prewrite
from promptrl_jax.tasks import instructions, load
from promptrl_jax.types import ProgramExamples, Task

STRATEGIES = ('I', 'S')
CANONICAL = 'canonical wording (reference)'
# Raised for a bad config, bad data or a dead endpoint: shown in one line.
USER_ERRORS = (ValueError, OSError, BackendError, TooWeakError, sqlite3.Error)

_REQUESTS_PER_CALL = 512  # What the progress bar waits for.


@dataclasses.dataclass(frozen=True)
class Tasks:
  """Instructions to learn from, to choose and to measure.

  Attributes:
    train: to train on; empty if nothing is trained.
    validation: say when a training stops.
    dev: the instructions to rewrite, with the examples that choose.
    test: the same instructions with the examples that measure; may be empty.
  """

  train: Sequence[Task]
  validation: Sequence[Task]
  dev: Sequence[Task]
  test: Sequence[Task]

  @property
  def registers(self) -> list[str]:
    """Register of each instruction, if there are registers."""
    names = [task.register for task in self.dev]
    return names if all(names) else []

  @property
  def canonical(self) -> list[str]:
    """Canonical wording of each instruction, if it is known."""
    texts = [task.canonical for task in self.dev]
    return texts if all(texts) else []


def check_strategies(names, given=()):
  unknown = set(names) - set(STRATEGIES)
  if unknown or not (names or given):
    raise ValueError(
      f'strategies={tuple(names)}: expected some of {", ".join(STRATEGIES)}'
    )


def check_answers(config, name, answers):
  """Raises ValueError for several answers to one request that are the same."""
  if answers > 1 and not config.ask.first_temperature > 0:
    raise ValueError(
      f'{name}={answers}: at ask.first_temperature=0 they are all the same, so '
      'raise the temperature or ask for one'
    )


def load_tasks(config, training=False):
  """The tasks of a config, each with the examples that are asked.

  Raises:
    ValueError: the task set has no instructions, the reward does not suit them,
      or dev and test are not the same instructions.
  """
  splits = load.task_set(config.data).splits
  chosen_on_train = config.rewrite.choose_on == 'train_and_dev'
  needs_train = training or chosen_on_train
  parts = load.load_tasks(config.data, () if needs_train else splits[1:])
  limits = {'dev': config.eval.dev_examples, 'test': config.eval.test_examples}
  for split, tasks in parts.items():
    limit = limits.get('dev' if split == 'validation' else split, 0)
    for task in tasks:  # Refused before any call.
      registry.check_task(config.rewriting.reward, task)
    parts[split] = [
      instructions.subsample(task, limit, config.seed) for task in tasks
    ]
  dev, test = parts.get('dev', parts['validation']), parts['test']
  if test and [t.task_id for t in dev] != [t.task_id for t in test]:
    raise ValueError(
      f'{len(dev)} instructions have dev and {len(test)} have test examples: '
      'expected the same ones, so give validation_limit and test_limit one '
      'value'
    )
  if chosen_on_train:
    dev = [joined_to_train(task, parts['train']) for task in dev]
  return Tasks(parts.get('train', ()), parts['validation'], dev, test)


def joined_to_train(task, train):
  """The task with the examples of the same instruction in train, too."""
  for same in train:
    if same.task_id == task.task_id:
      return instructions.joined(same, task)
  raise ValueError(
    f'rewrite.choose_on=train_and_dev, but instruction {task.statement[:60]!r} '
    'has no training examples: choose on dev'
  )


def open_model(given, role, ledger, mesh, cache, stack):
  """A model with its answers on disk, closed at the end."""
  if not given.model:
    raise ValueError(
      'no model is named: give --config.rewriter.model= and '
      '--config.task_model.model='
    )
  model = load_backend(given, mesh)
  backend = session.cached(model, role, given, ledger, cache)
  stack.callback(backend.close)
  return backend


def open_task_model(config, ledger, mesh, cache, stack):
  """The frozen model, behind a pool if it answers by programs."""
  model = open_model(
    config.task_model, 'task_model', ledger, mesh, cache, stack
  )
  if not config.runs_programs:
    return model
  pool = stack.enter_context(session.open_pool(config.pool))
  # Answers depend on the limits of the programs and on the form of a request.
  limits = settings.to_mapping(config.pool) | {'template': config.ask.template}
  identity = json.dumps(limits, sort_keys=True)
  programs = ProgramLM(model, pool, TEMPLATES[config.ask.template])
  model = CachedBackend(programs, cache, identity=identity)
  stack.callback(model.close)
  return model


def open_env(task_model, config, tasks, stack):
  """The environment, with a pool if instructions are for programs."""
  pool = None
  if isinstance(tasks.dev[0].checker, ProgramExamples):
    pool = stack.enter_context(session.open_pool(config.pool))
  return RewritingEnv(
    task_model,
    pool,
    config.rewriting,
    config.ask,
    protocol=config.data.protocol,
  )


def draw_candidates(rewriter, env, tasks, config):
  """Candidates of each strategy and instruction, and rows of the trace."""
  candidates, trace = {}, []
  if 'I' in config.strategies:
    greedy = prewrite.rewrite_greedily(rewriter, env, tasks)
    trace += [rewrite.row('I') for rewrite in greedy]
    candidates['PRewrite-I'] = [[r.statement] for r in greedy]
  if 'S' in config.strategies:
    samples = prewrite.sample_rewrites(rewriter, env, tasks, config.rewrite)
    trace += [rewrite.row('S') for group in samples for rewrite in group]
    candidates['PRewrite-S'] = [
      list(dict.fromkeys([task.statement, *(r.statement for r in group)]))
      for task, group in zip(tasks, samples, strict=True)
    ]
  return candidates, trace


def drop_too_long(env, name, tasks, candidates, given=()):
  """Takes out rewrites that the task model has no room for; counts them.

  A task that is left without a rewrite keeps its initial instruction, which
  must fit like those that are `given`.
  """
  dropped = 0
  for place, task in enumerate(tasks.dev):
    parts = [task, *tasks.test[place : place + 1]]
    fits = lambda text, parts=parts: all(env.fits(part, text) for part in parts)
    for text in (task.statement, *given):
      if not fits(text):
        raise ValueError(
          f'{name} has no room for instruction {text[:60]!r} with the examples '
          f'of {task.statement[:60]!r}: raise task_model.prompt_tokens (or '
          'max_context), or lower ask.max_tokens'
        )
    for lists in candidates.values():
      kept = [text for text in lists[place] if fits(text)]
      dropped += len(lists[place]) - len(kept)
      lists[place] = kept or [task.statement]
  return dropped


def measure(task_model, env, tasks, candidates, config):
  """Chooses on dev and measures on test, without rewrites that are too long.

  Returns:
    The instruction of each strategy and task, the scores of each strategy, and
    counts of the task model's answers.
  """
  given = config.eval.given
  dropped = drop_too_long(env, task_model.name, tasks, candidates, given)
  candidates = halve(env, tasks.dev, candidates, config)
  rewarded = reward_all(env, tasks.dev, candidates)
  chosen, dev_scores = choose(candidates, rewarded)
  others = {f'given {text!r}': [text] * len(tasks.dev) for text in given}
  if tasks.canonical:
    others[CANONICAL] = tasks.canonical
  chosen |= others
  for name, texts in others.items():
    dev_scores[name] = example_rewards(env, tasks.dev, texts)
  scores = {
    name: Scores(
      dev_scores[name],
      example_rewards(
        env, tasks.test, texts, config.eval.answers, config.eval.first_answer
      )
      if tasks.test
      else (),
    )
    for name, texts in chosen.items()
  }
  calls = {
    'answered': task_model.misses,
    'from_cache': task_model.hits,
    'rewrites_too_long': dropped,
  }
  return chosen, scores, calls


def halve(env, tasks, candidates, config):
  """The candidates that are left for the last round, which has all of dev."""
  before_the_last = config.rewrite.rounds - 1
  parts = [
    instructions.growing_parts(task, before_the_last, config.seed)
    for task in tasks
  ]
  for part in zip(*parts, strict=True):
    rewarded = reward_all(env, part, candidates)
    candidates = {
      name: [
        [texts[i] for i in prewrite.better_half(rows)]
        for texts, rows in zip(lists, rewarded[name], strict=True)
      ]
      for name, lists in candidates.items()
    }
  return candidates


def reward_all(env, tasks, candidates):
  """Rewards of the candidates of each strategy and task on dev."""
  jobs = [
    (name, place, text)
    for place in range(len(tasks))
    for name, lists in candidates.items()
    for text in lists[place]
  ]
  most = max(len(task.checker.examples) for task in tasks)
  per_call = max(1, _REQUESTS_PER_CALL // most)
  rewarded = {name: [[] for _ in tasks] for name in candidates}
  best = np.full(len(tasks), np.nan)
  with tqdm.tqdm(total=len(jobs), desc='dev', unit='candidate') as progress:
    for start in range(0, len(jobs), per_call):
      batch = jobs[start : start + per_call]
      rewards = example_rewards(
        env, [tasks[place] for _, place, _ in batch], [job[2] for job in batch]
      )
      for (name, place, _), row in zip(batch, rewards, strict=True):
        rewarded[name][place].append(row)
        best[place] = np.fmax(best[place], row.mean())
      progress.set_postfix(best=f'{np.nanmean(best):.3f}', refresh=False)
      progress.update(len(batch))
  return rewarded


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


def report(config, workdir, tasks, chosen, scores, calls, pairs=()):
  """Writes the tables and the instructions, and shows them.

  Args:
    config: settings of the bootstrap, and what the results carry.
    workdir: where they go.
    tasks: the instructions.
    chosen, scores, calls: from `measure`, keyed by the name of a strategy or by
      (name, seed, strategy), which are averaged over seeds.
    pairs: names of strategies that are compared.
  """
  by_name = {}
  for key, value in scores.items():
    name = key if isinstance(key, str) else f'{key[0]} {key[2]}'
    by_name.setdefault(name, []).append(value)
  choices = {
    name: instruction_report.over_seeds(values)
    if len(values) > 1
    else values[0]
    for name, values in by_name.items()
  }
  bootstrap = config.eval.resamples, config.seed
  result = {
    'config': settings.to_mapping(config),
    'calls': calls,
    'table': instruction_report.summarise(choices, *bootstrap),
    'compared': {},
    'registers': {},
  }
  texts = [instruction_report.to_markdown(result['table'])]
  if pairs and choices[INITIAL].test:
    result['compared'] = instruction_report.compare(choices, pairs, *bootstrap)
    texts.append(instruction_report.compared_markdown(result['compared']))
  if tasks.registers:
    result['registers'] = instruction_report.by_group(choices, tasks.registers)
    texts.append(instruction_report.group_markdown(result['registers']))
  chosen, scores = (
    {
      key if isinstance(key, str) else f'{key[0]} seed {key[1]} {key[2]}': value
      for key, value in by_key.items()
    }
    for by_key in (chosen, scores)
  )
  path = workdir / 'instructions.jsonl'
  write_lines(path, instruction_report.rows(tasks.dev, chosen, scores))
  write_atomically(
    workdir / 'results.json', (json.dumps(result, indent=2) + '\n').encode()
  )
  text = '\n\n'.join(texts)
  write_atomically(workdir / 'results.md', (text + '\n').encode())
  print(text)
  if len(tasks.dev) == 1:
    for name, statements in chosen.items():
      print(f'\n{name}, dev {scores[name].dev[0].mean():.3f}:\n{statements[0]}')
  print(
    f'\ntask model   {calls["answered"]} answers, {calls["from_cache"]} from '
    f'the cache; {calls["rewrites_too_long"]} rewrites were too long'
  )
  print(f'instructions {path}')


def write_lines(path, rows):
  text = ''.join(json.dumps(row) + '\n' for row in rows)
  write_atomically(path, text.encode())
