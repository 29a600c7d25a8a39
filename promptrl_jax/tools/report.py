"""Prints the report of a finished run again, from its results.csv.

  python -m promptrl_jax.tools.report runs/a --subject=ppo

The CSV has a row for each strategy, budget, seed and problem. Its rows may be
filtered by hand before, to report a part of the problems.
"""

from __future__ import annotations

import pathlib

from absl import app, flags

from promptrl_jax.evaluation import cells, report, statistics
from promptrl_jax.tools import command
from promptrl_jax.training import workdir as workdir_lib

_SUBJECT = flags.DEFINE_string(
  'subject', 'ppo', 'Strategy that the others are compared with.'
)
_RESAMPLES = flags.DEFINE_integer(
  'resamples',
  statistics.RESAMPLES,
  'Number of bootstrap resamples.',
  lower_bound=1,
)


def table(workdir: pathlib.Path, subject: str, resamples: int) -> str:
  """Returns the report of each protocol of a finished run as Markdown.

  Raises:
    FileNotFoundError: the run has no results.
    ValueError: its results.csv has other columns than those of this project.
  """
  header = workdir_lib.results(workdir)['header']
  rows = cells.read_csv(workdir / 'results.csv')
  parts = []
  for protocol in dict.fromkeys(cell.protocol for cell in rows):
    group = [cell for cell in rows if cell.protocol == protocol]
    summary = report.summarise(group, subject=subject, resamples=resamples)
    seeds = header['seeds'][: max(len(cell.passed) for cell in group)]
    parts.append(report.to_markdown(summary, {**header, 'seeds': seeds}))
  return '\n'.join(parts)


def main(argv: list[str]) -> None:
  if len(argv) != 2:
    raise app.UsageError('expected the workdir of one finished run')
  with command.in_one_line():
    print(table(pathlib.Path(argv[1]), _SUBJECT.value, _RESAMPLES.value))


if __name__ == '__main__':
  app.run(main)
