"""Prints how controllers do on the models and tasks of each other.

  python -m promptrl_jax.tools.transfer runs/a runs/b runs/a_on_b runs/b_on_a

Each argument is a finished run of `experiments.mbpp_ppo`; those with
`--controllers` hold the controllers of another one. A row of the table is
where controllers learnt, a column where they play. The first rows are rivals
that learn nothing where they play, but for the list that is searched there.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app

from promptrl_jax.evaluation import markdown
from promptrl_jax.tools import command, compare_models
from promptrl_jax.tools.budget_flag import BUDGET
from promptrl_jax.training import workdir as workdir_lib

_RIVALS = (
  *('direct', 'random', 'greedy_first', 'greedy_first_tuned'),
  *('fewshot_tuned', 'best_open_loop'),
)
_CONTROLLER = 'ppo'


def table(results: Sequence[Mapping[str, Any]], budget: int) -> str:
  """Returns the matrix of finished runs as a Markdown table.

  Args:
    results: contents of `results.json`.
    budget: model calls per problem.

  Raises:
    ValueError: a run did not play at the budget, or two runs are of the same
      controllers on the same model and tasks.
  """
  cells: dict[str, dict[str, str]] = {name: {} for name in _RIVALS}
  columns: dict[str, None] = {}
  for result in results:
    place, learnt = _place(result), _learnt(result)
    columns[place] = None
    passed = _passed(result, budget)
    if place in cells.setdefault(learnt, {}):
      raise ValueError(f'two runs of controllers of {learnt} on {place}')
    cells[learnt][place] = passed[_CONTROLLER]
    for name in _RIVALS:
      if name in passed and (learnt == place or place not in cells[name]):
        cells[name][place] = passed[name]
  rows = [
    {'controllers of': name}
    | {f'on {place}': row.get(place, '-') for place in columns}
    for name, row in cells.items()
    if row
  ]
  return f'pass@1 in %, 95 %, B = {budget}\n\n{markdown.table(rows)}'


def _place(result: Mapping[str, Any]) -> str:
  """The coder of a run and its tasks, without their hashes."""
  header = result['header']
  return _short(f'{header["model_hashes"]["coder"]} on {header["data_hash"]}')


def _learnt(result: Mapping[str, Any]) -> str:
  """Likewise, where the controllers of a run learnt."""
  header = result['header']
  trained = header['model_hashes'].get('controllers of')
  if trained is None:
    return _place(result)
  if ' on ' not in trained:  # on the tasks that they play
    trained += f' on {header["data_hash"]}'
  return _short(trained)


def _short(text: str) -> str:
  """`model@hash on tasks hash` without its hashes."""
  model, _, tasks = text.partition(' on ')
  return f'{model.partition("@")[0]} on {tasks.split()[0]}'


def _passed(result: Mapping[str, Any], budget: int) -> dict[str, str]:
  """Pass rate with its interval at a budget, by strategy."""
  protocol = compare_models.protocol_of(result)
  found = compare_models.passed(result, protocol).get(budget, {})
  if _CONTROLLER not in found:
    raise ValueError(
      f'budget={budget}: no controller of {_place(result)} played with it'
    )
  return found


def main(argv):
  if len(argv) < 3:
    raise app.UsageError('expected at least two workdirs')
  with command.in_one_line():
    runs = [workdir_lib.results(pathlib.Path(name)) for name in argv[1:]]
    print(table(runs, BUDGET.value))


if __name__ == '__main__':
  app.run(main)
