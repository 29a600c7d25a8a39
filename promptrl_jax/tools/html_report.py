"""Writes the HTML report of a finished run, from the files in its workdir.

  python -m promptrl_jax.tools.html_report runs/a

reads results.json, and results.csv, trace.jsonl and learning.json where there
are any: without the first no problem is broken down, without the second there
is no viewer, without the third no learning curve. The page, `report.html` of
the workdir, needs neither these files nor a network.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping

from absl import app, flags

from promptrl_jax import settings
from promptrl_jax.evaluation import cells, html_report, output, references
from promptrl_jax.tasks import load
from promptrl_jax.tasks.task_set import DataConfig
from promptrl_jax.tools import command
from promptrl_jax.training import workdir as workdir_lib

_PAGE = flags.DEFINE_string(
  'page', '', 'File to write; empty: report.html in the workdir.'
)


def run(workdir: pathlib.Path, out: pathlib.Path | None = None) -> pathlib.Path:
  """Writes the page of a finished run; returns its path.

  Raises:
    FileNotFoundError: the run has no results.
    ValueError: its results have no tables of strategies, or a file of the run
      is malformed.
  """
  results = workdir_lib.results(workdir)
  if 'tables' not in results:
    raise ValueError(
      f'{workdir / "results.json"} holds {sorted(results)}, expected `header` '
      'and `tables`: is it a run that compares strategies under budgets?'
    )
  header, summaries = results['header'], results['tables']
  rows, trace = workdir / 'results.csv', workdir / 'trace.jsonl'
  curves = workdir / output.LEARNING
  by_protocol: dict[str, list[cells.Cell]] = {}
  for cell in cells.read_csv(rows) if rows.exists() else ():
    by_protocol.setdefault(cell.protocol, []).append(cell)
  return html_report.write(
    out or workdir / 'report.html',
    header=header,
    cells_by_protocol=by_protocol,
    summaries=summaries,
    trace=trace if trace.exists() else None,
    references=references.PROMIS_MBPP if 'oracle' in summaries else (),
    registers=_registers(workdir, header['data_hash']),
    operators=results.get('operators', ()),
    searches=results.get('searches', {}),
    learning=json.loads(curves.read_text()) if curves.exists() else (),
  )


def _registers(workdir: pathlib.Path, data_hash: str) -> Mapping[str, str]:
  """Task id -> wording, if this is the data of the run and it is at hand."""
  if not (workdir / 'config.json').exists():
    return {}
  _, saved = workdir_lib.load_config(workdir)
  data = settings.from_mapping(DataConfig, saved['data'])
  if data.name not in load.TASK_SETS or data.path:
    return {}
  if load.describe(data) != data_hash:
    return {}
  return {
    task.task_id: task.register
    for tasks in load.load_tasks(data).values()
    for task in tasks
  }


def main(argv: list[str]) -> None:
  if len(argv) != 2:
    raise app.UsageError('expected the workdir of one finished run')
  with command.in_one_line():
    out = pathlib.Path(_PAGE.value) if _PAGE.value else None
    print(run(pathlib.Path(argv[1]), out))


if __name__ == '__main__':
  app.run(main)
