"""One HTML file with all results of a run and a viewer of its trace.

  header, cells, summaries, trace ──> html/report.html + *.css + *.js
                                              │
        data: one JSON element; trace: gzip chunks, opened on demand

See `html_page` for what such a page may do.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from promptrl_jax.evaluation import (
  breakdown,
  distribution,
  html_page,
  tables,
  trace_chunks,
)
from promptrl_jax.evaluation.cells import Cell
from promptrl_jax.evaluation.references import LABEL, Published
from promptrl_jax.files import write_atomically

_STYLES = ('page', 'tables', 'charts', 'trace', 'media')
# One module, in this order: each part uses those before it.
_SCRIPTS = (
  *('dom', 'state', 'chart', 'figures', 'learning', 'tables', 'breakdown'),
  *('distribution', 'choices', 'operators', 'programs', 'text', 'lineage'),
  *('trace', 'steps', 'problems', 'episode', 'viewer', 'main'),
)


def write(
  path: str | os.PathLike[str],
  *,
  header: Mapping[str, Any],
  cells_by_protocol: Mapping[str, Sequence[Cell]],
  summaries: Mapping[str, Mapping[str, Any]],
  trace: str | os.PathLike[str] | None = None,
  references: Sequence[Published] = (),
  registers: Mapping[str, str] | None = None,
  operators: Sequence[Mapping[str, Any]] = (),
  islands: Sequence[Mapping[str, Any]] = (),
  replies: Sequence[Mapping[str, Any]] = (),
  failed: Sequence[Mapping[str, Any]] = (),
  programs: Sequence[Mapping[str, Any]] = (),
  tests: Sequence[Mapping[str, Any]] = (),
  selection: Sequence[Mapping[str, Any]] = (),
  coverage: Sequence[Mapping[str, Any]] = (),
  equal_calls: Sequence[Mapping[str, Any]] = (),
  pass_at_k: Sequence[Mapping[str, Any]] = (),
  learning: Sequence[Mapping[str, Any]] = (),
  searches: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> pathlib.Path:
  """Writes the report of a run as one HTML file; returns its path.

  Args:
    path: of the file.
    header: where the numbers come from; see `report.to_markdown`.
    cells_by_protocol: results problem by problem, for the breakdowns and the
      hidden results of the trace; a protocol without any has neither.
    summaries: results of `report.summarise` by protocol, the headline first.
    trace: path of the `trace.jsonl`; None for a page without a viewer.
    references: published numbers, shown apart from the measured ones.
    registers: task id -> wording of its statement, where the data has one.
    operators: rows of `diversity.Operators` and `diversity.of_search`.
    islands: rows of `diversity.Islands` and `pool_of_search`.
    replies: rows of `refusals.Replies`.
    failed: rows of `failures.count`.
    programs: rows of `verdicts.Verdicts`.
    tests: rows of `generated_tests.of_trace`.
    selection, coverage, equal_calls, pass_at_k: rows of `selection.rescore`,
      `coverage.compare`, `equal_calls.compare` and `samples.table`, under the
      headline protocol.
    learning: panels of `learning.read`.
    searches: the decisions of a search for one text, as plain data of
      `texts.pool.Step`, by the strategy that plays with what was found.

  Raises:
    ValueError: there is no summary, cells belong to none, a number is not
      finite, or the trace is malformed.
  """
  if not summaries:
    raise ValueError('no summary to report: expected one for each protocol')
  unknown = sorted(set(cells_by_protocol) - set(summaries))
  if unknown:
    raise ValueError(
      f'cells under {unknown} have no summary; there are {sorted(summaries)}'
    )
  packed = None
  if trace is not None:
    packed = trace_chunks.pack(trace, cells_by_protocol, header['seeds'])
  data = {
    'header': _facts(header),
    'protocols': {
      name: _protocol(
        summary, cells_by_protocol.get(name, ()), packed, registers or {}
      )
      for name, summary in summaries.items()
    },
    'references': {
      'label': LABEL,
      'rows': [dataclasses.asdict(each) for each in references],
    },
    'failures': failed,
    'programs': programs,
    'tests': tests,
    'operators': operators,
    'islands': islands,
    'replies': replies,
    'selection': selection,
    'coverage': coverage,
    'equal_calls': equal_calls,
    'pass_at_k': pass_at_k,
    'learning': learning,
    'searches': searches or {},
    'trace': packed.index if packed else None,
  }
  title = f'Results on {header["data_hash"].split()[0]}'
  return write_atomically(path, _page(title, data, packed).encode())


def _facts(header: Mapping[str, Any]) -> list[tuple[str, str]]:
  """Provenance as pairs of texts."""

  def text(value: Any) -> str:
    if isinstance(value, Mapping):
      return ', '.join(f'{k} {v}' for k, v in value.items())
    if isinstance(value, str):
      return value
    return ', '.join(map(str, value)) if isinstance(value, list) else str(value)

  names = {'data_hash': 'data hash', 'model_hashes': 'model hashes'}
  return [(names.get(key, key), text(value)) for key, value in header.items()]


def _protocol(
  summary: Mapping[str, Any],
  cells: Sequence[Cell],
  packed: trace_chunks.Packed | None,
  registers: Mapping[str, str],
) -> dict[str, Any]:
  """All that the page shows of one protocol."""
  oracle = summary['protocol'] == 'oracle'
  first = cells[0] if cells else None
  groups = {}
  if packed and first and summary['protocol'] in packed.failures:
    strategy, failures = packed.failures[summary['protocol']]
    groups[f'first failure of {strategy}'] = failures
  if first:
    groups['register'] = registers
    families = zip(first.task_ids, first.families, strict=False)
    groups['family'] = dict(families)
  shares = {
    name: breakdown.by_group(cells, group) for name, group in groups.items()
  }
  return {
    **summary,
    'label': tables.ORACLE_LABEL if oracle else '',
    'groups': {name: found for name, found in shares.items() if found['cells']},
    'alone': breakdown.solved_alone(cells),
    'soft_scores': {
      'bins': distribution.BINS,
      'cells': distribution.measure(cells),
    },
  }


def _page(
  title: str, data: Mapping[str, Any], packed: trace_chunks.Packed | None
) -> str:
  chunks = packed.chunks if packed else ()
  return html_page.render(
    'report.html',
    title,
    styles=_STYLES,
    scripts=_SCRIPTS,
    data=data,
    chunks=[
      f'<script type="application/gzip" id="chunk-{i}">{chunk.decode()}'
      '</script>'
      for i, chunk in enumerate(chunks)
    ],
  )
