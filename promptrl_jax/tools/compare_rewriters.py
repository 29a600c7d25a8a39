"""Prints what rewriters make of the statements that the coder fails.

  python -m promptrl_jax.tools.compare_rewriters minicode2_rewriter \
    docs/results/minicode2/rewriter --split=validation

Each argument is a rewriter, an embedded one or a folder; the last one is
compared with the others, problem by problem. One that was trained with several
seeds is written as `grpo=FOLDER,FOLDER`. The coder is asked once as a statement
is worded; where its program fails the visible tests, each rewriter writes one
greedy rewrite, shown what failed, and the coder one greedy program.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import numpy as np
from absl import app, flags

from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.envs.rewriting.failed import failed_tasks
from promptrl_jax.evaluation import (
  markdown,
  report,
  rewriter,
  training_cost,
)
from promptrl_jax.evaluation.cells import Cell
from promptrl_jax.llm.attempt import CODER
from promptrl_jax.tasks import load
from promptrl_jax.tasks.task_set import DataConfig
from promptrl_jax.tools import command
from promptrl_jax.tools.line_up import open_models
from promptrl_jax.types import Task

_NAME = 'promptrl_jax.tools.compare_rewriters'

_DATA = flags.DEFINE_string('data', 'minicode2', 'Task set.')
_SPLIT = flags.DEFINE_string('split', 'validation', 'Split.')
_CODER = flags.DEFINE_string('coder', 'minicode2_coder', 'Name or folder.')
_PROTOCOL = flags.DEFINE_string('protocol', 'visible1', 'See tasks.splits.')
_LIMIT = flags.DEFINE_integer('limit', 0, 'First N tasks; 0 for all.')


def by_kind(cells: Sequence[Cell], tasks: Sequence[Task]) -> str:
  """Returns P(solved | failed) in percent by the kind of problem, as Markdown.

  The kind of a task is its `register`.
  """
  kinds = np.array([task.register for task in tasks])
  rows = []
  for kind in ('all', *sorted(set(kinds))):
    chosen = (kinds == kind) | (kind == 'all')
    rows.append(
      {'kind': kind, 'failures': chosen.sum()}
      | {c.strategy: markdown.points(c.passed[:, chosen].mean()) for c in cells}
    )
  return markdown.table(rows)


def read_argument(argument: str) -> tuple[str, list[str]]:
  """Returns the name of a rewriter and its models, one for each seed.

  Raises:
    ValueError: a name or a model is missing, or a model is given twice.
  """
  name, _, given = argument.rpartition('=')
  models = given.split(',')
  if not all(models) or len(set(models)) < len(models):
    raise ValueError(
      f'rewriter {argument!r}: expected a model, or NAME=MODEL,MODEL with a '
      'different one for each seed'
    )
  if len(models) > 1 and not name:
    raise ValueError(f'rewriter {argument!r}: give it a name, NAME={given}')
  return name or given, models


def run(rewriters: Mapping[str, Sequence[str]]) -> None:
  config = DataConfig(_DATA.value)
  tasks = load.load_tasks(config, only=[_SPLIT.value])[_SPLIT.value]
  tasks = tasks[: _LIMIT.value or None]
  models = {model: model for group in rewriters.values() for model in group}
  with open_models({CODER: _CODER.value} | models) as (backends, pool, ask):
    env = RewritingEnv(
      backends[CODER],
      pool,
      RewritingConfig(),
      ask,
      protocol=_PROTOCOL.value,
    )
    failed = failed_tasks(env, tasks)
    if not failed:
      raise ValueError(
        f'the coder fails none of {len(tasks)} problems of {_SPLIT.value}: '
        'there is nothing to rewrite; take more of them'
      )
    entrants = {
      name: [backends[model] for model in group]
      for name, group in rewriters.items()
    }
    # The direct answer has failed by definition.
    paid = {
      name: training_cost.mean_training_calls(group)
      for name, group in rewriters.items()
    }
    cells = [
      cell
      for cell in rewriter.play(env, entrants, failed, paid)
      if cell.strategy != rewriter.DIRECT
    ]
    hashes = {name: backend.name for name, backend in backends.items()}
  header = {
    'data_hash': load.describe(config),
    'model_hashes': hashes,
    'seeds': list(range(max(map(len, rewriters.values())))),
    'command': f'python -m {_NAME} {" ".join(sys.argv[1:])}',
    'split': _SPLIT.value,
    'statements': f'the {len(failed)} of {len(tasks)} that the coder fails',
  }
  summary = report.summarise(cells, subject=list(rewriters)[-1])
  print(report.to_markdown(summary, header))
  print(by_kind(cells, failed))


def main(argv: list[str]) -> None:
  with command.in_one_line(interrupted='interrupted'):
    rewriters = dict(map(read_argument, argv[1:]))
    if len(rewriters) < 2 or len(rewriters) < len(argv) - 1:
      raise ValueError(
        f'expected two or more different rewriters, got {argv[1:]}'
      )
    run(rewriters)


if __name__ == '__main__':
  app.run(main)
