"""The share of a model's batched rate that is left inside the runner.

  python -m experiments.bench.runner
  python -m experiments.bench.runner --config=configs/compare.py:mbpp_real \
    --config.data.path=mbpp.jsonl --strategies=best_open_loop,ppo

Plays strategies of a comparison, by default that of minicode 2, on its test
problems with an empty cache of completions and of verdicts, then asks the
models the same requests once more, all of a model in one batch. Both generate
the same tokens with the same models and slots, so that the ratio of their rates
is that of their seconds. They alternate after a warm-up of both; a line of JSON
for each strategy, and one for all of them together, has

ratio          rate inside the runner / rate in one batch, its median over runs
min_ratio      the smallest of the runs
without_pool   the ratio without the seconds of the execution pool, median
runner_tokens_per_s, batch_tokens_per_s   medians over runs
small_batches, cache, pool, rest
               where the runner's seconds go that one batch would not take, as
               shares of its seconds: calls of models with less than all
               requests, keys and database of the cache, the execution pool
               (hidden tests, too), and everything else, such as prompts
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import app, flags
from ml_collections import config_flags

from configs.compare import Config
from experiments import controllers, entrants, session
from experiments.bench.timed import Timed
from experiments.trained import Trained
from promptrl_jax.evaluation import open_loop
from promptrl_jax.evaluation.play import LineUp, Plan
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.llm.jax_lm import JaxLM
from promptrl_jax.operators.examples import make_library
from promptrl_jax.tasks import load
from promptrl_jax.tools import command
from promptrl_jax.tools.budget_flag import BUDGET

_CONFIG = config_flags.DEFINE_config_file(
  'config', 'configs/compare.py', lock_config=True
)
_STRATEGIES = flags.DEFINE_list(
  'strategies',
  ['greedy_first', 'best_open_loop', 'mbr_exec', 'ppo'],
  'Strategies of the comparison.',
)
_PROBLEMS = flags.DEFINE_integer('problems', 200, 'First N test problems.')
_RUNS = flags.DEFINE_integer('runs', 5, 'Timed runs of each.', lower_bound=1)


@dataclasses.dataclass(frozen=True)
class Run:
  """Seconds of one strategy, played once and asked once in one batch.

  Attributes:
    requests: to all models, without those that the cache answers.
    tokens: that the models generate.
    runner: of all that is played.
    batch: of the same requests in one batch for each model.
    models, cache, pool: parts of `runner`.
  """

  requests: int
  tokens: int
  runner: float
  batch: float
  models: float
  cache: float
  pool: float


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line():
    config = session.begin(Config, _CONFIG.value)
    trained = Trained.load(pathlib.Path(config.controllers))
    config = dataclasses.replace(
      trained.applied_to(config), portfolio=(), trained_rewriter=''
    )
    check_names(entrants.compared_costs(config, trained.folder))
    tasks = load.load_tasks(config.data)
    options = {'examples': make_library(config.examples, tasks['train'])}
    models = dict(
      zip((CODER, REWRITER), session.load_models(config), strict=True)
    )
    with session.open_pool(config.pool) as pool:
      players = find_players(config, trained, tasks, models, pool, options)
      plan = Plan(
        config.data.protocol,
        BUDGET.value,
        tasks['test'][: _PROBLEMS.value],
        (config.seed,),
      )
      play = lambda: {
        name: measure(config, models, pool, options, name, players[name], plan)
        for name in _STRATEGIES.value
      }
      play()  # compiles
      runs = [play() for _ in range(_RUNS.value)]
  for name in _STRATEGIES.value:
    print(json.dumps(line(name, [run[name] for run in runs])))
  print(json.dumps(line('all', [total(run.values()) for run in runs])))


def check_names(known):
  """Raises ValueError for a strategy of the flag that is not known."""
  if unknown := [n for n in _STRATEGIES.value if n not in known]:
    raise ValueError(
      f'--strategies={unknown[0]}: expected some of {", ".join(known)}'
    )


def find_players(config, trained, tasks, models, pool, options):
  """The strategies of the flag, with the published lists and controller."""
  searched = json.loads((trained.folder / 'searched.json').read_text())
  found = open_loop.Found.from_json(searched)
  line_up = LineUp(cached(models), pool, config.ask, options)
  learned = controllers.learn(
    config,
    line_up,
    pool,
    tasks,
    found,
    config.seed,
    trained.folder / f'seed_{config.seed}',
    'eval',
    'best',
  )
  return entrants.make(config, found, {}, {config.seed: learned})


def cached(models):
  """The models by role, in the order of the comparison, with empty caches."""
  return {role: CachedBackend(models[role]) for role in (REWRITER, CODER)}


def measure(config, models, pool, options, name, player, plan) -> Run:
  """Plays a strategy, then asks the same in one batch for each model."""
  inner = {
    role: Timed(model, 'complete', 'complete_each')
    for role, model in models.items()
  }
  outer = {
    role: Timed(model, 'complete') for role, model in cached(inner).items()
  }
  judge = Timed(MemoPool(pool), 'run', 'evaluate')
  line_up = LineUp(outer, judge, config.ask, options)
  forget_prompts(models)
  start = time.perf_counter()
  line_up.play_cell(name, player, plan)
  runner = time.perf_counter() - start
  asked = {role: model.asked for role, model in inner.items() if model.asked}
  forget_prompts(models)
  start = time.perf_counter()
  answers = [models[role].complete(rows) for role, rows in asked.items()]
  batch = time.perf_counter() - start
  in_models = sum(model.seconds for model in inner.values())
  return Run(
    requests=sum(map(len, asked.values())),
    tokens=sum(c.completion_tokens for part in answers for c in part),
    runner=runner,
    batch=batch,
    models=in_models,
    cache=sum(model.seconds for model in outer.values()) - in_models,
    pool=judge.seconds,
  )


def forget_prompts(models) -> None:
  """Lets both ways turn the prompts into tokens, whichever comes first."""
  for model in models.values():
    if isinstance(model, JaxLM):
      model.forget_prompts()


def total(runs) -> Run:
  """Several strategies, one after the other."""
  return Run(*np.sum([dataclasses.astuple(run) for run in runs], axis=0))


def line(name: str, runs: Sequence[Run]) -> dict[str, Any]:
  """What is printed of the runs of one strategy."""

  def median(value: Callable[[Run], float]) -> float:
    return float(np.median([value(run) for run in runs]))

  losses = {
    'small_batches': lambda run: run.models - run.batch,
    'cache': lambda run: run.cache,
    'pool': lambda run: run.pool,
    'rest': lambda run: run.runner - run.models - run.cache - run.pool,
  }
  return {
    'strategy': name,
    'requests': int(runs[0].requests),
    'tokens': int(runs[0].tokens),
    'ratio': round(median(lambda run: run.batch / run.runner), 3),
    'min_ratio': round(min(run.batch / run.runner for run in runs), 3),
    'without_pool': round(
      median(lambda run: run.batch / (run.runner - run.pool)), 3
    ),
    'runner_tokens_per_s': round(median(lambda run: run.tokens / run.runner)),
    'batch_tokens_per_s': round(median(lambda run: run.tokens / run.batch)),
  } | {
    part: round(median(lambda run, s=seconds: s(run) / run.runner), 3)
    for part, seconds in losses.items()
  }


if __name__ == '__main__':
  app.run(main)
