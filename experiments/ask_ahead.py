"""Asks a coder ahead for what is asked whatever the programs do.

  python -m experiments.ask_ahead --config=configs/compare.py:mbpp_real \
    --config.data.path=mbpp.jsonl --config.cache=runs/completions.sqlite \
    --config.coder.slots=512 --splits=test --runs=3 --budget=16

Few-shot prompts, samples of one prompt and fixed lists of operators ask for the
same completions whether their programs pass or not. Here these strategies play
without a sandbox, as if every program failed, so that a machine with an
accelerator makes nothing but completions, in large batches; they lie in the
cache of the config, where `experiments.compare` finds them on any machine.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time

from absl import app, flags
from ml_collections import config_flags

from configs.compare import Config
from experiments import session
from promptrl_jax.evaluation import open_loop
from promptrl_jax.evaluation.play import Entrant, Game
from promptrl_jax.execution import ProgramResult, TestResult
from promptrl_jax.operators.examples import make_library
from promptrl_jax.strategies import base
from promptrl_jax.strategies.fewshot import few_shots
from promptrl_jax.tasks import load
from promptrl_jax.tools import command
from promptrl_jax.tools.budget_flag import BUDGET

_CONFIG = config_flags.DEFINE_config_file(
  'config', 'configs/compare.py:mbpp_real', lock_config=True
)
_SPLITS = flags.DEFINE_list('splits', ['test'], 'Whose problems are asked.')
_RUNS = flags.DEFINE_integer(
  'runs', 1, 'Seeds, from that of the config on.', lower_bound=1
)
_EXAMPLES = flags.DEFINE_list(
  'examples', ['0', '1'], 'Numbers of worked examples in a prompt.'
)
_TEMPERATURES = flags.DEFINE_list(
  'temperatures', ['0.6'], 'Of the samples after a greedy first one.'
)
_SEARCHED = flags.DEFINE_string(
  'searched', '', 'A searched.json, whose lists and temperatures play, too.'
)


class NoPool:
  """Judges nothing: every program fails its first test."""

  def run(self, programs):
    failed = TestResult('failed')
    return [
      ProgramResult('failed', 0.0, (failed,) * len(program.tests))
      for program in programs
    ]

  def evaluate(self, calls):
    raise NotImplementedError(f'{len(calls)} calls: nothing is executed here')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line('interrupted: the same command goes on'):
    run(_CONFIG.value)


def run(config):
  config = session.begin(Config, config)
  if not config.cache:
    raise ValueError('cache is empty: expected the file to write to')
  # All splits, as a comparison does: they decide which examples are shown.
  tasks = load.load_tasks(config.data)
  if unknown := set(_SPLITS.value) - set(tasks):
    raise ValueError(
      f'--splits: no {", ".join(sorted(unknown))}, expected some of '
      f'{", ".join(tasks)}'
    )
  library = make_library(config.examples or 'words', tasks['train'])
  ledger = session.open_ledger(config, None, 'coder', 'rewriter')
  coder, rewriter = session.load_models(config)
  line_up = session.make_line_up(
    config, ledger, coder, rewriter, NoPool(), library
  )
  cache, protocol = line_up.backends['coder'], config.data.protocol
  seeds = range(config.seed, config.seed + _RUNS.value)
  for split in _SPLITS.value:
    for name, entrant, budget in make_entrants(config):
      started, before = time.perf_counter(), cache.misses
      line_up.run_all(
        [Game(entrant, tasks[split], protocol, budget, seed) for seed in seeds]
      )
      count, seconds = cache.misses - before, time.perf_counter() - started
      print(
        f'{split} {name} B={budget}: {count} completions in {seconds:.1f} s',
        flush=True,
      )


def make_entrants(config):
  """Strategies that look at verdicts only to end, with names and budgets."""
  most = BUDGET.value
  for temperature in map(float, _TEMPERATURES.value):
    ask = dataclasses.replace(config.ask, sample_temperature=temperature)
    for count in map(int, _EXAMPLES.value):
      strategy = base.TextStrategy(few_shots(count))
      name = f'{count} examples at {temperature:g}'
      yield name, Entrant.of(strategy, ask=ask), most
  if _SEARCHED.value:
    content = json.loads(pathlib.Path(_SEARCHED.value).read_text())
    chosen = open_loop.Found.from_json(content).entrants(
      config.editing, config.ask
    )
    del chosen['hand_rule']  # It repairs, with what the verdict says.
    for budget in (b for b in config.eval.budgets if b <= most):
      for name, entrant in chosen.items():
        yield name, entrant, budget


if __name__ == '__main__':
  app.run(main)
