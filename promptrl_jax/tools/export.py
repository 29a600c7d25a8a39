"""Writes the best prompts of a finished run for other programs.

  python -m promptrl_jax.tools.export runs/rewrite --format=promptfoo
  python -m promptrl_jax.tools.export runs/minicode2 --strategy=ppo --budget=8

A run of `rewrite` or `prewrite` has one instruction for each task: the best one
on dev, or that of --strategy. A run of `mbpp_ppo` or `compare` has one prompt
for each problem, such as a controller made it (--strategy): the request whose
program was submitted, or the last one where none passed; and with
--strategy=gepa the instruction that was searched. Files go to --folder, by
default `export` in the workdir, and are byte for byte what was sent.
"""

from __future__ import annotations

import json
import pathlib

from absl import app, flags

from promptrl_jax.evaluation import episodes, instruction_search, output
from promptrl_jax.prompts import export
from promptrl_jax.prompts.templates import Messages
from promptrl_jax.tools import command
from promptrl_jax.tools.budget_flag import BUDGET
from promptrl_jax.tools.format_flag import FORMAT
from promptrl_jax.training import workdir as workdir_lib

_STRATEGY = flags.DEFINE_string(
  'strategy', '', 'Whose prompts; empty: ppo, or the best instruction on dev.'
)
_FOLDER = flags.DEFINE_string('folder', '', 'Folder of the files.')


def find(
  workdir: pathlib.Path, strategy: str = '', budget: int = 8
) -> dict[str, Messages]:
  """Returns the best prompts of a finished run by name.

  Raises:
    FileNotFoundError: there is no finished run.
    ValueError: it has no such strategy.
  """
  if (workdir / 'instructions.jsonl').exists():
    return _instructions(workdir, strategy)
  if strategy == instruction_search.NAME:
    return _instruction(workdir)
  if not (workdir / 'trace.jsonl').exists():
    raise FileNotFoundError(
      f'{workdir} has no instructions.jsonl and no trace.jsonl: is it a '
      'finished run of rewrite, prewrite, mbpp_ppo or compare?'
    )
  rows = output.read_jsonl(workdir / 'trace.jsonl')
  played = episodes.read(rows, strategy or 'ppo', budget)
  return {
    task: messages
    for task, steps in played.items()
    if (messages := best_messages(steps))
  }


def best_messages(steps: episodes.Episode) -> Messages:
  """The request for the program of an episode that was submitted.

  A strategy that chooses among programs says which one that is. A trace does
  not say it of any other: it is the first that passes the visible tests, and
  where none does, the last one stands for all. Empty if its programs were never
  asked for.
  """
  chosen = episodes.chosen(steps)
  asked = [
    (
      step['visible_passed'] if chosen is None else step['code'] == chosen,
      sent['messages'],
    )
    for step in steps
    for sent in [s for s in step['sent'] if s['role'] == 'coder'][-1:]
  ]
  if not asked:
    return ()
  messages = next((m for is_best, m in asked if is_best), asked[-1][1])
  return tuple((m['role'], m['content']) for m in messages)


def _instructions(workdir: pathlib.Path, strategy: str) -> dict[str, Messages]:
  ask = workdir_lib.results(workdir)['config']['ask']
  prompts = {}
  for number, row in enumerate(
    output.read_jsonl(workdir / 'instructions.jsonl')
  ):
    choices = {k: v for k, v in row.items() if isinstance(v, dict)}
    if strategy and strategy not in choices:
      raise ValueError(
        f'--strategy={strategy}: expected one of {", ".join(choices)}'
      )
    name = strategy or max(choices, key=lambda key: choices[key]['dev'])
    text = choices[name]['instruction']
    messages = (
      export.instruction_messages(row['template'], text)
      if row['template']
      else export.coder_messages(ask['template'], text)
    )
    prompts[f'{row["task"]}_{number}'] = messages
  return prompts


def _instruction(workdir: pathlib.Path) -> dict[str, Messages]:
  path = workdir / 'instruction.json'
  if not path.exists():
    raise FileNotFoundError(
      f'{path} does not exist: no instruction was searched in this run '
      '(config.eval.instruction_search.calls)'
    )
  found = json.loads(path.read_text(encoding='utf-8'))
  _, config = workdir_lib.load_config(workdir)
  template = config['ask']['template']
  name = instruction_search.NAME
  return {name: export.coder_messages(template, found['text'])}


def main(argv: list[str]) -> None:
  if len(argv) != 2:
    raise app.UsageError('expected the workdir of one finished run')
  workdir = pathlib.Path(argv[1])
  with command.in_one_line():
    prompts = find(workdir, _STRATEGY.value, BUDGET.value)
    folder = pathlib.Path(_FOLDER.value or workdir / 'export')
    files = export.write(folder, prompts, FORMAT.value)
    print(f'{len(files)} files of {len(prompts)} prompts in {folder}')


if __name__ == '__main__':
  app.run(main)
