"""Prints some problems as a strategy played them: prompts, programs, verdicts.

  python -m promptrl_jax.tools.episodes runs/minicode2 --strategy=ppo --count=10

The argument is a finished run of `experiments.mbpp_ppo`, or a folder below its
`eval`. Problems are taken in turn from those that were solved at once, solved
later, handed in wrong because the visible tests passed, and never passed, in
the first run of the strategy. Programs that were handed in because the visible
tests passed run once more, to show what the hidden tests say.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from absl import app, flags

from promptrl_jax import settings
from promptrl_jax.evaluation import episodes, output
from promptrl_jax.evaluation.cells import read_csv
from promptrl_jax.evaluation.episodes import Episode
from promptrl_jax.evaluation.protocol import check_judged, hidden_programs
from promptrl_jax.execution import TestResult
from promptrl_jax.execution.config import PoolConfig
from promptrl_jax.tasks import load
from promptrl_jax.tasks.task_set import DataConfig
from promptrl_jax.tools import command
from promptrl_jax.tools.budget_flag import BUDGET
from promptrl_jax.training import workdir as workdir_lib

_STRATEGY = flags.DEFINE_string('strategy', 'ppo', 'Name in the table.')
_COUNT = flags.DEFINE_integer('count', 10, 'Problems.', lower_bound=1)


def run(folders: Sequence[str]) -> None:
  """Prints what the flags ask for."""
  folder = pathlib.Path(folders[0])
  name, budget = _STRATEGY.value, BUDGET.value
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
  chosen = episodes.choose(verdicts, _COUNT.value)
  tested = hidden_tests(folder, [steps[i] for i in chosen])
  for i, hidden in zip(chosen, tested, strict=True):
    print(episodes.to_markdown(steps[i], verdicts[i], hidden))


def hidden_tests(
  folder: pathlib.Path, shown: Sequence[Episode]
) -> list[list[tuple[str, TestResult]]]:
  """The hidden tests of each episode, as its last program does.

  None for an episode that ended before a program passed the visible tests.
  """
  run_folder = folder
  if not (folder / 'config.json').exists():
    run_folder = folder.parents[1]  # runs/x/eval/test_best_200
  _, saved = workdir_lib.load_config(run_folder)
  data = settings.from_mapping(DataConfig, saved['data'])
  pool_config = settings.from_mapping(PoolConfig, saved['pool'])
  split = workdir_lib.results(folder)['header'].get('split', 'test')
  tasks = {
    task.task_id: task for task in load.load_tasks(data, (split,))[split]
  }
  ended = [steps[-1] for steps in shown]
  passed = [row for row in ended if row['visible_passed']]
  theirs = [tasks[row['task_id']] for row in passed]
  programs = hidden_programs(
    [row['code'] for row in passed], theirs, data.protocol
  )
  with pool_config.open() as pool:
    results = pool_config.view(pool).run(programs)
  judged = [result.score is not None for result in results]
  check_judged('programs', theirs, judged)
  tested = (
    list(zip(program.tests, result.tests, strict=True))
    for program, result in zip(programs, results, strict=True)
  )
  return [next(tested) if row['visible_passed'] else [] for row in ended]


def main(argv: Sequence[str]) -> None:
  if len(argv) != 2:
    raise app.UsageError('expected the working directory of one finished run')
  with command.in_one_line():
    run(argv[1:])


if __name__ == '__main__':
  app.run(main)
