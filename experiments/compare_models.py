"""One table for several finished runs, e.g. of two code models.

  python -m experiments.compare_models runs/a runs/b

Each argument is a workdir of `experiments.mbpp_ppo`. Runs on other data or
under another protocol are refused: their numbers do not belong in one table.
"""

from __future__ import annotations

import json
import pathlib
import sys

from absl import app

_STRATEGIES = ('direct', 'best_of_b', 'random', 'best_fixed', 'bandit', 'ppo')


def load(workdir: str) -> dict:
  path = pathlib.Path(workdir) / 'results.json'
  if not path.is_file():
    sys.exit(f'error: {path} does not exist: is {workdir} a finished run?')
  return json.loads(path.read_text(encoding='utf-8'))


def rows(result: dict, name: str, protocol: str) -> list[str]:
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


def main(argv):
  if len(argv) < 3:
    raise app.UsageError('name at least two workdirs')
  results = [load(workdir) for workdir in argv[1:]]
  first = results[0]
  protocol = next(name for name in first['tables'] if name != 'oracle')
  for workdir, result in zip(argv[1:], results, strict=True):
    mine, other = first['header']['data_hash'], result['header']['data_hash']
    sizes = [
      r['tables'].get(protocol, {}).get('problems') for r in (first, result)
    ]
    if mine != other or sizes[0] != sizes[1]:
      sys.exit(
        f'error: {workdir} was run on {other}, {sizes[1]} problems under '
        f'{protocol}; {argv[1]} on {mine}, {sizes[0]} problems'
      )
  print(f'{first["header"]["data_hash"]}, {protocol}, pass@1 in %, 95 %')
  print()
  print('| coder | B | ' + ' | '.join(_STRATEGIES) + ' |')
  print('|---|---:|' + '---:|' * len(_STRATEGIES))
  for result in results:
    coder = result['header']['model_hashes']['coder']
    print('\n'.join(rows(result, coder, protocol)))


if __name__ == '__main__':
  app.run(main)
