"""One table for a sweep, and a folder for TensorBoard's hparams plug-in.

Both are read from the files in the workdirs of the cells, so that a sweep which
still runs, or whose cells ran on different engines, has a report, too.
"""

# Protobuf modules fill in their names on import, where no checker sees them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import csv
import dataclasses
import io
import pathlib
import shutil
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.hparams import summary_v2
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from launch import paired
from launch.cells import Cell, State
from launch.paired import Difference
from promptrl_jax.evaluation import markdown
from promptrl_jax.files import write_atomically
from promptrl_jax.training import workdir as workdir_lib

_ENDS = ' low', ' high'


@dataclasses.dataclass(frozen=True)
class Metric:
  """A result of a cell: its mean and 95 % interval, all in 0..1.

  Attributes:
    mean: over problems and seeds.
    low, high: ends of the interval; None if the results have none.
  """

  mean: float
  low: float | None = None
  high: float | None = None

  def __str__(self) -> str:
    if self.low is None or self.high is None:
      return markdown.points(self.mean)
    return markdown.interval(dataclasses.asdict(self))


def write(
  workdir: pathlib.Path,
  title: str,
  cells: Sequence[Cell],
  states: Mapping[str, State],
) -> str:
  """Writes sweep.md, sweep.csv and hparams/; returns the Markdown.

  Args:
    workdir: of the sweep.
    title: config file and argument.
    cells: rows of the table.
    states: of the cells by name.
  """
  metrics = {
    cell.name: headline(workdir_lib.results(cell.workdir))
    if cell.results.is_file()
    else {}
    for cell in cells
  }
  differences = compare(cells)
  text = to_markdown(title, cells, states, metrics, differences)
  write_atomically(workdir / 'sweep.md', text.encode())
  write_atomically(
    workdir / 'sweep.csv', to_csv(cells, states, metrics, differences).encode()
  )
  write_hparams(workdir / 'hparams', cells, metrics)
  return text


def compare(cells: Sequence[Cell]) -> dict[str, dict[str, Difference]]:
  """Returns what each cell reached less what the first one did.

  By cell, for those that have results; p is adjusted for all of them (Holm).
  """
  first, *others = cells
  others = [cell for cell in others if cell.results.is_file()]
  if not first.results.is_file():
    return {}
  base = paired.played(first.workdir)
  adjusted = paired.holm(
    [paired.differences(base, paired.played(cell.workdir)) for cell in others]
  )
  names = (cell.name for cell in others)
  return dict(zip(names, adjusted, strict=True))


def headline(results: Mapping[str, Any]) -> dict[str, Metric]:
  """Returns what the subject of a run reached, from its `results.json`.

  Names are protocol and budget for programs (`visible1 B=8`), and split and
  strategy for instructions (`test ppo I`).
  """
  tables = paired.tables_of(results)
  metrics = {
    f'{protocol} B={cell["budget"]}': _metric(cell['pass'])
    for protocol, table in tables.items()
    for cell in table['cells']
    if cell['strategy'] == table['subject']
  }
  for strategy, row in results.get('table', {}).items():
    if 'test' in row:
      metrics[f'test {strategy}'] = _metric(row['test'])
    else:
      metrics[f'dev {strategy}'] = Metric(row['dev'])
  return metrics


def to_markdown(
  title: str,
  cells: Sequence[Cell],
  states: Mapping[str, State],
  metrics: Mapping[str, Mapping[str, Metric]],
  differences: Mapping[str, Mapping[str, Difference]],
) -> str:
  """Returns the table: a row per cell, its deviations, its results in %."""
  names, compared = _columns(metrics), _columns(differences)
  rows = []
  for cell in cells:
    deviations = ', '.join(f'{k}={v}' for k, v in cell.deviations.items())
    rows.append(
      {'deviations': deviations or 'none', 'state': states[cell.name]}
      | {name: metrics[cell.name].get(name, '') for name in names}
      | {
        f'{name} minus base': differences.get(cell.name, {}).get(name, '')
        for name in compared
      }
    )
  how = (
    '; minus base: paired by problem with the cell without deviations, p of '
    'the sign-flip test, adjusted for all of them (Holm)'
  )
  return (
    f'{title}: what each cell reached, in % with 95 % intervals'
    f'{how if compared else ""}\n\n{markdown.table(rows, "llr")}\n'
  )


def to_csv(
  cells: Sequence[Cell],
  states: Mapping[str, State],
  metrics: Mapping[str, Mapping[str, Metric]],
  differences: Mapping[str, Mapping[str, Difference]],
) -> str:
  """Returns the same table with a column per setting and number, in 0..1."""
  settings = list(dict.fromkeys(key for cell in cells for key in cell.settings))
  names, compared = _columns(metrics), _columns(differences)
  columns = ['cell', 'state', 'detail', *settings]
  columns += [f'{name}{end}' for name in names for end in ('', *_ENDS)]
  columns += [
    f'{name} minus base{end}' for name in compared for end in ('', *_ENDS, ' p')
  ]
  file = io.StringIO()
  writer = csv.writer(file, lineterminator='\n')
  writer.writerow(columns)
  for cell in cells:
    state = states[cell.name]
    row = [cell.name, state.kind, state.detail]
    row += [cell.settings.get(key, '') for key in settings]
    for name in names:
      metric = metrics[cell.name].get(name)
      row += dataclasses.astuple(metric) if metric else [''] * 3
    for name in compared:
      difference = differences.get(cell.name, {}).get(name)
      row += dataclasses.astuple(difference) if difference else [''] * 4
    writer.writerow(row)
  return file.getvalue()


def write_hparams(
  folder: pathlib.Path,
  cells: Sequence[Cell],
  metrics: Mapping[str, Mapping[str, Metric]],
) -> None:
  """Writes a TensorBoard run for each cell that has results; replaces others.

  A run holds the values of all settings that the sweep varies, and the mean of
  each metric as a scalar.
  """
  new = folder.with_name(f'.{folder.name}.tmp')
  shutil.rmtree(new, ignore_errors=True)
  new.mkdir(parents=True)
  for cell in cells:
    if not metrics[cell.name]:
      continue
    values = {key: _plain(value) for key, value in cell.settings.items()}
    scalars = summary_pb2.Summary()
    for name, metric in metrics[cell.name].items():
      scalars.value.add(tag=name, simple_value=metric.mean)
    writer = EventFileWriter(str(new / cell.name))
    for summary in (summary_v2.hparams_pb(values, cell.name), scalars):
      writer.add_event(
        event_pb2.Event(step=0, wall_time=time.time(), summary=summary)
      )
    writer.close()
  shutil.rmtree(folder, ignore_errors=True)
  new.rename(folder)


def _metric(estimate: Mapping[str, float]) -> Metric:
  return Metric(estimate['mean'], estimate['low'], estimate['high'])


def _columns(by_cell: Mapping[str, Mapping[str, Any]]) -> list[str]:
  return list(dict.fromkeys(n for of_cell in by_cell.values() for n in of_cell))


def _plain(value: Any) -> bool | int | float | str:
  return value if isinstance(value, bool | int | float | str) else str(value)
