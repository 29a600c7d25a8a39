"""Prints one table for several finished runs, e.g. of two code models.

  python -m promptrl_jax.tools.compare_models runs/a runs/b

Each argument is a workdir of `experiments.mbpp_ppo`. Runs on different data or
under different protocols are refused, because their numbers cannot be compared.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app

from promptrl_jax.evaluation import markdown
from promptrl_jax.tools import command
from promptrl_jax.training import workdir as workdir_lib

# Columns, of those that some run played.
_STRATEGIES = (
  *('direct', 'best_of_b', 'best_of_b_tuned', 'random', 'fewshot_tuned'),
  *('best_fixed', 'best_open_loop', 'bandit', 'ppo'),
)


def protocol_of(result: Mapping[str, Any]) -> str:
  """Returns the protocol of a run's `results.json`."""
  return next((x for x in result['tables'] if x != 'oracle'), 'oracle')


def passed(
  result: Mapping[str, Any], protocol: str
) -> dict[int, dict[str, str]]:
  """Returns pass rates with their intervals, by budget and strategy."""
  texts: dict[int, dict[str, str]] = {}
  for cell in result['tables'][protocol]['cells']:
    of_budget = texts.setdefault(cell['budget'], {})
    of_budget[cell['strategy']] = markdown.interval(cell['pass'])
  return texts


def rows(
  result: Mapping[str, Any],
  name: str,
  protocol: str,
  strategies: Sequence[str],
) -> list[dict[str, Any]]:
  """Returns the rows of the table for one run's `results.json`."""
  texts = passed(result, protocol)
  return [
    {'coder': name, 'B': budget}
    | {strategy: texts[budget].get(strategy, '-') for strategy in strategies}
    for budget in sorted(texts)
  ]


def name_of(result: Mapping[str, Any]) -> str:
  """Returns the coder of a run, and the coder its controllers trained with."""
  models = result['header']['model_hashes']
  trained_with = models.get('controllers of', models['coder'])
  if trained_with == models['coder']:
    return trained_with
  return f'{models["coder"]}, controllers of {trained_with}'


def table(workdirs: Sequence[pathlib.Path]) -> str:
  """Returns the results of finished runs as a Markdown table.

  Raises:
    FileNotFoundError: a run has no results.
    ValueError: the runs differ in problems or protocol.
  """
  results = [workdir_lib.results(workdir) for workdir in workdirs]
  first = results[0]
  protocol = protocol_of(first)
  for workdir, result in zip(workdirs, results, strict=True):
    hashes = [r['header']['data_hash'] for r in (first, result)]
    sizes = [
      r['tables'].get(protocol, {}).get('problems') for r in (first, result)
    ]
    if hashes[0] != hashes[1] or sizes[0] != sizes[1]:
      raise ValueError(
        f'{workdir} was run on {hashes[1]}, {sizes[1]} problems under '
        f'{protocol}; {workdirs[0]} on {hashes[0]}, {sizes[0]} problems'
      )
  played = {
    cell['strategy']
    for result in results
    for cell in result['tables'][protocol]['cells']
  }
  strategies = [name for name in _STRATEGIES if name in played]
  cells = [
    row
    for result in results
    for row in rows(result, name_of(result), protocol, strategies)
  ]
  return (
    f'{first["header"]["data_hash"]}, {protocol}, pass@1 in %, 95 %\n\n'
    + markdown.table(cells)
  )


def main(argv):
  if len(argv) < 3:
    raise app.UsageError('expected at least two workdirs')
  with command.in_one_line():
    print(table([pathlib.Path(name) for name in argv[1:]]))


if __name__ == '__main__':
  app.run(main)
