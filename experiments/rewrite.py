"""A better instruction for each task: PRewrite-I and PRewrite-S.

  python -m experiments.rewrite --config=configs/rewrite.py:minicode \
    --workdir=runs/rewrite

Rewrites the instructions, rewards the candidates on the dev examples, chooses,
and measures what was chosen on the test examples. The workdir gets
instructions.jsonl (initial and chosen instructions), results.md, results.json
and trace.jsonl (all that the rewriter was given and answered). Answers of the
task model are kept in an SQLite file: the same command again asks nothing.
"""

from __future__ import annotations

import contextlib
import pathlib

from absl import app, flags
from ml_collections import config_flags

from configs.rewrite import Config
from experiments import instructing, session
from promptrl_jax.evaluation.instruction_report import INITIAL
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.tools import command

_CONFIG = config_flags.DEFINE_config_file(
  'config', 'configs/rewrite.py', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where results go.')
flags.mark_flag_as_required('workdir')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line(
    'interrupted: the same command goes on with the answers so far',
    errors=instructing.USER_ERRORS,
  ):
    run(_CONFIG.value, pathlib.Path(_WORKDIR.value))


def run(config, workdir):
  config = session.begin(Config, config)
  instructing.check_strategies(config.strategies, config.eval.given)
  instructing.check_answers(config, 'eval.answers', config.eval.answers)

  # --- Data -------------------------------------------------------------------
  tasks = instructing.load_tasks(config)
  counts = [
    sum(len(task.checker.examples) for task in part)
    for part in (tasks.dev, tasks.test)
  ]
  print(
    f'{len(tasks.dev)} instruction(s), {counts[0]} dev and {counts[1]} test '
    'examples'
  )

  # --- Models -----------------------------------------------------------------
  ledger = session.open_ledger(config, workdir, 'rewriter', 'task_model')
  mesh = mesh_lib.from_text(config.mesh)
  cache = config.cache or workdir / 'cache.sqlite'
  with contextlib.ExitStack() as stack:
    rewriter = instructing.open_model(
      config.rewriter, 'rewriter', ledger, mesh, cache, stack
    )
    task_model = instructing.open_task_model(config, ledger, mesh, cache, stack)
    print(f'rewriter {rewriter.name}, task model {task_model.name}')
    env = instructing.open_env(task_model, config, tasks, stack)

    # --- Rewriting ------------------------------------------------------------
    samples, trace = instructing.draw_candidates(
      rewriter, env, tasks.dev, config
    )
    instructing.write_lines(workdir / 'trace.jsonl', trace)
    initial = {INITIAL: [[task.statement] for task in tasks.dev]}

    # --- Choosing on dev, measuring on test -----------------------------------
    chosen, scores, calls = instructing.measure(
      task_model, env, tasks, initial | samples, config
    )

  # --- Report -----------------------------------------------------------------
  instructing.report(config, workdir, tasks, chosen, scores, calls)
  print(f'trace        {workdir / "trace.jsonl"}')


if __name__ == '__main__':
  app.run(main)
