"""One table for several finished runs, e.g. of two code models.

  python -m promptrl_jax.tools.compare_models runs/a runs/b

Each argument is a workdir of `experiments.mbpp_ppo`. Runs on other data or
under another protocol are refused: their numbers do not belong in one table.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app

from promptrl_jax.tools import command
from promptrl_jax.training import workdir as workdir_lib

_STRATEGIES = ('direct', 'best_of_b', 'random', 'best_fixed', 'bandit', 'ppo')


def rows(result: Mapping[str, Any], name: str, protocol: str) -> list[str]:
  """Lines of the table that belong to one run."""
  cells = {
    (cell['strategy'], cell['budget']): cell
    for cell in result['tables'][protocol]['cells']
  }
  lines = []
  for budget in sorted({budget for _, budget in cells}):
    scores = []
    for strategy in _STRATEGIES:
      cell = cells.get((strategy, budget))
      scores.append(
        '-'
        if cell is None
        else '{:.1f} [{:.1f}, {:.1f}]'.format(
          *(100 * cell['pass'][k] for k in ('mean', 'low', 'high'))
        )
      )
    lines.append(f'| {name} | {budget} | ' + ' | '.join(scores) + ' |')
  return lines


def name_of(result: Mapping[str, Any]) -> str:
  """What the table calls a run: its coder, and whose controllers it played."""
  models = result['header']['model_hashes']
  trained_with = models.get('controllers of', models['coder'])
  if trained_with == models['coder']:
    return trained_with
  return f'{models["coder"]}, controllers of {trained_with}'


def table(workdirs: Sequence[pathlib.Path]) -> str:
  """The results of finished runs, Markdown.

  Raises:
    FileNotFoundError: a run has no results.
    ValueError: they are not of the same problems and protocol.
  """
  results = [workdir_lib.results(workdir) for workdir in workdirs]
  first = results[0]
  protocol = next(name for name in first['tables'] if name != 'oracle')
  for workdir, result in zip(workdirs, results, strict=True):
    mine, other = first['header']['data_hash'], result['header']['data_hash']
    sizes = [
      r['tables'].get(protocol, {}).get('problems') for r in (first, result)
    ]
    if mine != other or sizes[0] != sizes[1]:
      raise ValueError(
        f'{workdir} was run on {other}, {sizes[1]} problems under {protocol}; '
        f'{workdirs[0]} on {mine}, {sizes[0]} problems'
      )
  lines = [
    f'{first["header"]["data_hash"]}, {protocol}, pass@1 in %, 95 %',
    '',
    '| coder | B | ' + ' | '.join(_STRATEGIES) + ' |',
    '|---|---:|' + '---:|' * len(_STRATEGIES),
  ]
  for result in results:
    lines += rows(result, name_of(result), protocol)
  return '\n'.join(lines)


def main(argv):
  if len(argv) < 3:
    raise app.UsageError('name at least two workdirs')
  with command.in_one_line():
    print(table([pathlib.Path(name) for name in argv[1:]]))


if __name__ == '__main__':
  app.run(main)
