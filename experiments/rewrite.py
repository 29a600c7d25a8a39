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
import json
import pathlib

from absl import app, flags, logging
from ml_collections import config_flags

from experiments import instructing
from promptrl_jax.evaluation import instruction_report
from promptrl_jax.evaluation.instruction_report import INITIAL
from promptrl_jax.files import write_atomically
from promptrl_jax.parallel import compilation
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.prompts import meta as meta_lib
from promptrl_jax.rewards import text as text_rewards
from promptrl_jax.strategies import prewrite
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
  mesh_lib.use_cpu_cores()
  compilation.use_cache()
  if logging.get_verbosity() == logging.INFO:  # the default
    logging.set_verbosity(logging.WARNING)
  instructing.check_strategies(config.strategies)

  # --- Data -------------------------------------------------------------------
  dev, test, groups, canonical = instructing.load_tasks(
    config.data, config.seed
  )
  for task in dev:  # A metric that does not suit is refused before any call.
    text_rewards.make_metric(config.reward.metric, task.task)
  print(
    f'{len(dev)} instruction(s), {sum(len(t.examples) for t in dev)} dev and '
    f'{sum(len(t.examples) for t in test)} test examples'
  )

  # --- Models -----------------------------------------------------------------
  meta = meta_lib.make_meta(config.meta.family, config.meta.text)
  settings = prewrite.RewriteConfig(**config.rewrite)
  mesh = mesh_lib.from_text(config.mesh)
  cache = config.cache or workdir / 'cache.sqlite'
  with contextlib.ExitStack() as stack:
    rewriter = instructing.open_model(config.rewriter, mesh, cache, stack)
    task_model = instructing.open_task_model(config, mesh, cache, stack)
    print(f'rewriter {rewriter.name}, task model {task_model.name}')
    reward_fn = prewrite.make_reward_fn(task_model, **config.reward)

    # --- Rewriting ------------------------------------------------------------
    initial = [task.instruction for task in dev]
    drawn, trace = instructing.draw_candidates(
      rewriter, meta, initial, settings, config.strategies
    )
    instructing.write_lines(workdir / 'trace.jsonl', trace)
    candidates = {INITIAL: [[text] for text in initial], **drawn}

    # --- Choosing on dev, measuring on test -----------------------------------
    chosen, choices, calls = instructing.measure(
      task_model, reward_fn, dev, test, candidates, config.reward.max_tokens,
      canonical,
    )  # fmt: skip

  # --- Report -----------------------------------------------------------------
  report(config, workdir, dev, chosen, choices, groups, calls)


# --- Stages -------------------------------------------------------------------


def report(config, workdir, dev, chosen, choices, groups, calls):
  """Writes the tables and the instructions, and shows them."""
  table = instruction_report.summarise(
    choices, config.eval.resamples, config.seed
  )
  registers = instruction_report.by_group(choices, groups) if groups else {}
  text = instruction_report.markdown(table)
  if registers:
    text += '\n\n' + instruction_report.group_markdown(registers)
  result = {
    'config': json.loads(config.to_json()),
    'calls': calls,
    'table': table,
    'registers': registers,
  }
  instructing.write_lines(
    workdir / 'instructions.jsonl',
    instruction_report.rows(dev, chosen, choices),
  )
  write_atomically(
    workdir / 'results.json', (json.dumps(result, indent=2) + '\n').encode()
  )
  write_atomically(workdir / 'results.md', (text + '\n').encode())
  print(text)
  if len(dev) == 1:
    for name, texts in chosen.items():
      print(
        f'\n{name}, dev {choices[name].dev[0].mean():.3f}:\n{texts[0].text}'
      )
  print(
    f'\ntask model   {calls["answered"]} answers, {calls["from_cache"]} from '
    f'the cache; {calls["rewrites_too_long"]} rewrites were too long'
  )
  print(f'instructions {workdir / "instructions.jsonl"}')
  print(f'trace        {workdir / "trace.jsonl"}')


if __name__ == '__main__':
  app.run(main)
