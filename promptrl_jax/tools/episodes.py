"""Prints some problems as a strategy played them: prompts, programs, verdicts.

  python -m promptrl_jax.tools.episodes runs/minicode2 --strategy=ppo --count=10

The argument is a finished run of `experiments.mbpp_ppo`. Problems are taken in
turn from those that were solved at once, solved later, handed in wrong because
the visible tests passed, and never passed, in the first run of the strategy.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from absl import app, flags

from promptrl_jax.evaluation import episodes, output
from promptrl_jax.evaluation.cells import read_csv
from promptrl_jax.tools import command

_STRATEGY = flags.DEFINE_string('strategy', 'ppo', 'Name in the table.')
_BUDGET = flags.DEFINE_integer('budget', 8, 'Model calls per problem.')
_COUNT = flags.DEFINE_integer('count', 10, 'Problems.', lower_bound=1)


def run(folders: Sequence[str]) -> None:
  """Prints what the flags ask for."""
  folder = pathlib.Path(folders[0])
  name, budget = _STRATEGY.value, _BUDGET.value
  rows = output.read_jsonl(folder / 'trace.jsonl')
  played = episodes.read(rows, name, budget)
  cell = next(
    cell
    for cell in read_csv(folder / 'results.csv')
    if (cell.strategy, cell.budget) == (name, budget)
  )
  solved = dict(zip(cell.task_ids, cell.passed[0], strict=True))
  verdicts = [
    episodes.outcome(steps, solved[task]) for task, steps in played.items()
  ]
  steps = list(played.values())
  for i in episodes.choose(verdicts, _COUNT.value):
    print(episodes.to_markdown(steps[i], verdicts[i]))


def main(argv: Sequence[str]) -> None:
  if len(argv) != 2:
    raise app.UsageError('expected the working directory of one finished run')
  with command.in_one_line():
    run(argv[1:])


if __name__ == '__main__':
  app.run(main)
