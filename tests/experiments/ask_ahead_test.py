"""Completions that are made ahead are those that the comparison asks for."""

from __future__ import annotations

import sqlite3

import pytest

from tests.experiments import commands

COMMON = (
  '--config=configs/compare.py:smoke',
  '--config.data.test_limit=6',
  '--config.data.validation_limit=6',
)


def run(module, *arguments):
  # Its flags may not meet those of other experiments in one process.
  done = commands.run_fresh(module, *COMMON, *arguments)
  assert done.returncode == 0, done.stderr[-2000:]
  return done.stdout


def keys(path):
  with sqlite3.connect(path) as database:
    return {key for (key,) in database.execute('SELECT key FROM completions')}


@pytest.mark.slow
def test_a_comparison_finds_what_was_asked_ahead(tmp_path):
  cache = tmp_path / 'cache.sqlite'
  asked = run(
    'experiments.ask_ahead',
    f'--config.cache={cache}',
    *('--examples=0', '--temperatures=0.8', '--budget=4'),
  )
  assert 'test 0 examples at 0.8 B=4: 24 completions' in asked
  ahead = keys(cache)
  assert len(ahead) == 24
  alone = (
    *('--config.controllers=', '--config.trained_rewriter='),
    *('--config.portfolio=()', '--config.rescore=False'),
    *('--config.subject=greedy_first', '--config.oracle_of_n=False'),
    '--config.eval.strategies=()',
    '--config.eval.without=("random","lexical","semantic","repair","hand_rule",'
    '"best_of_b","single_list","best_open_loop","best_of_b_tuned",'
    '"greedy_first_tuned","fewshot_tuned")',
  )
  run(
    'experiments.compare',
    f'--config.cache={cache}',
    f'--workdir={tmp_path / "with"}',
    *alone,
  )
  assert keys(cache) == ahead  # Nothing new was asked for.
