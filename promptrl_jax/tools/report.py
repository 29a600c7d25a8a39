"""Prints the report of a finished run again, from its results.csv.

  python -m promptrl_jax.tools.report runs/a --subject=ppo

The CSV has a row for each strategy, budget, seed and problem. Its rows may be
filtered by hand before, to report a part of the problems.

  python -m promptrl_jax.tools.report runs/b --subject=ppo --beside=runs/a

compares a strategy with itself in another run on the same problems and seeds,
with other models for example.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence

from absl import app, flags

from promptrl_jax.evaluation import (
  cells,
  costs,
  distribution,
  events,
  frontier,
  report,
  statistics,
)
from promptrl_jax.tools import command
from promptrl_jax.training import workdir as workdir_lib

_SUBJECT = flags.DEFINE_string(
  'subject', 'ppo', 'Strategy that the others are compared with.'
)
_BESIDE = flags.DEFINE_string(
  'beside', '', 'Workdir of another run, whose subject is the only rival.'
)
_RESAMPLES = flags.DEFINE_integer(
  'resamples',
  statistics.RESAMPLES,
  'Number of bootstrap resamples.',
  lower_bound=1,
)


def table(
  workdir: pathlib.Path,
  subject: str,
  resamples: int,
  beside: pathlib.Path | None = None,
) -> str:
  """Returns the report of each protocol of a finished run as Markdown.

  Args:
    workdir: of the run.
    subject: strategy that the others are compared with.
    resamples: of the bootstrap.
    beside: workdir of another run; only the subject of both is reported.

  Raises:
    FileNotFoundError: a run has no results.
    ValueError: results.csv has other columns than those of this project, or the
      runs did not play the subject on the same problems.
  """
  header = workdir_lib.results(workdir)['header']
  rows = cells.read_csv(workdir / 'results.csv')
  if beside is not None:
    rows = _of_both(rows, cells.read_csv(beside / 'results.csv'), subject)
  known = costs.of_events(events.read(events.path(workdir)))
  parts = []
  for protocol in dict.fromkeys(cell.protocol for cell in rows):
    group = [cell for cell in rows if cell.protocol == protocol]
    summary = report.summarise(
      group, subject=subject, resamples=resamples, costs=known
    )
    seeds = header['seeds'][: max(len(cell.passed) for cell in group)]
    parts.append(report.to_markdown(summary, {**header, 'seeds': seeds}))
    parts.append(frontier.to_markdown(frontier.front(summary)))
    parts.append(distribution.to_markdown(distribution.measure(group)))
  return '\n'.join(parts)


def _of_both(
  rows: Sequence[cells.Cell], others: Sequence[cells.Cell], subject: str
) -> list[cells.Cell]:
  """The subject of two runs, where both have it; the other one is renamed."""
  mine = {(c.protocol, c.budget): c for c in rows if c.strategy == subject}
  theirs = {(c.protocol, c.budget): c for c in others if c.strategy == subject}
  shared = [key for key in mine if key in theirs]
  if not shared:
    raise ValueError(
      f'{subject!r} has no budget in both runs: one has {sorted(mine)}, the '
      f'other {sorted(theirs)}'
    )
  name = f'{subject} (other run)'
  renamed = [dataclasses.replace(theirs[k], strategy=name) for k in shared]
  return [*(mine[k] for k in shared), *renamed]


def main(argv: list[str]) -> None:
  if len(argv) != 2:
    raise app.UsageError('expected the workdir of one finished run')
  beside = pathlib.Path(_BESIDE.value) if _BESIDE.value else None
  with command.in_one_line():
    print(
      table(pathlib.Path(argv[1]), _SUBJECT.value, _RESAMPLES.value, beside)
    )


if __name__ == '__main__':
  app.run(main)
