"""Turns cells into a JSON-ready summary and a Markdown report.

`summarise` computes every number and `to_markdown` only prints them. A summary
covers a single protocol, so that strategies with access to different tests
never share a table. A report under `oracle`, where strategies see the tests
that score them, is labelled as such.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation import costs as costs_lib
from promptrl_jax.evaluation import events, statistics, tables
from promptrl_jax.evaluation import references as references_lib
from promptrl_jax.evaluation.cells import Cell, check_paired, check_same_tasks
from promptrl_jax.files import write_atomically

_HEADER_KEYS = ('data_hash', 'model_hashes', 'seeds', 'command')
_COSTS = (
  'calls',
  'attempts',
  'prompt_tokens',
  'completion_tokens',
)


def summarise(
  cells: Sequence[Cell],
  *,
  subject: str | None,
  rivals: Sequence[str] | None = None,
  resamples: int = statistics.RESAMPLES,
  seed: int = 0,
  costs: Mapping[events.Key, costs_lib.Cost] | None = None,
) -> dict[str, Any]:
  """Returns all numbers of a report as a dict that `json.dumps` accepts.

  Scores and differences are shares in 0..1 and costs are means per problem. The
  interval of a score is a bootstrap over seeds and over families of problems,
  or problems where there are no families. It is Wilson's interval over problems
  where the bootstrap would be degenerate: a single run of pass / fail outcomes
  without families, or outcomes that are all equal. `p` of pass@1 is
  exact McNemar if both strategies have a single run, and the sign-flip test on
  per-problem means otherwise. `p_holm` is adjusted over all comparisons of the
  summary, separately for pass@1 and soft-pass@1. `beats` requires both
  `p_holm < 0.05` and an interval above 0, which also covers the variance over
  seeds.

  Args:
    subject: strategy that the rivals are compared with, at each budget where
      both were run; None for a table without comparisons.
    rivals: strategies of the planned comparisons, the main one first; None
      means all others.
    resamples: number of bootstrap resamples, and the maximal number of
      permutations.
    seed: of both.
    costs: wall seconds and dollars of cells, by protocol, strategy and budget;
      those of other cells are unknown.

  Raises:
    ValueError: the cells do not belong in one table, or the subject lacks a
      cell or a rival; the message names them.
  """
  _check_one_table(cells)
  entries = [
    _summarise_cell(cell, resamples, seed)
    | _cost(cell, costs or {}).per(cell.passed.size)
    for cell in cells
  ]
  comparisons = []
  if subject is not None:
    comparisons = [
      _compare(mine, other, resamples, seed)
      for mine, other in _pairs(cells, subject, rivals)
    ]
  for metric in ('pass', 'soft'):
    adjusted = statistics.holm(np.array([x[metric]['p'] for x in comparisons]))
    for comparison, p in zip(comparisons, adjusted, strict=True):
      result = comparison[metric]
      result['p_holm'] = float(p)
      result['beats'] = bool(p < 0.05 and result['low'] > 0)
  return {
    'protocol': cells[0].protocol,
    'problems': len(cells[0].task_ids),
    'subject': subject,
    'resamples': resamples,
    'seed': seed,
    'cells': entries,
    'comparisons': comparisons,
  }


def _check_one_table(cells: Sequence[Cell]) -> None:
  if not cells:
    raise ValueError('no cells to summarise: run at least one strategy.')
  protocols = sorted({cell.protocol for cell in cells})
  if len(protocols) > 1:
    raise ValueError(
      f'protocols {protocols} in one table: what a strategy may see differs, '
      'so summarise each protocol by itself.'
    )
  seen = set()
  for cell in cells:
    key = (cell.strategy, cell.budget)
    if key in seen:
      raise ValueError(
        f'{cell.strategy!r} at B={cell.budget} is given twice: stack its seeds '
        'into one cell.'
      )
    seen.add(key)
    check_same_tasks(cells[0], cell)


def _pairs(
  cells: Sequence[Cell], subject: str, rivals: Sequence[str] | None
) -> list[tuple[Cell, Cell]]:
  """Returns the subject's cell with each rival's at the same budget."""
  mine = {cell.budget: cell for cell in cells if cell.strategy == subject}
  names = {cell.strategy for cell in cells if cell.strategy != subject}
  rivals = sorted(names) if rivals is None else list(rivals)
  pairs = [
    (mine[cell.budget], cell)
    for cell in cells
    if cell.strategy in rivals and cell.budget in mine
  ]
  pairs.sort(key=lambda p: (p[0].budget, rivals.index(p[1].strategy)))
  unpaired = sorted(set(rivals) - {other.strategy for _, other in pairs})
  if unpaired or not pairs:
    keys = sorted((cell.strategy, cell.budget) for cell in cells)
    raise ValueError(
      f'no budget at which {subject!r} and {unpaired or "a rival"} were both '
      f'run; cells are {keys}. Name the comparisons in `rivals`, or pass '
      'subject=None for a table without comparisons.'
    )
  for pair in pairs:
    check_paired(*pair)
  return pairs


def _summarise_cell(cell: Cell, resamples: int, seed: int) -> dict[str, Any]:
  return {
    'strategy': cell.strategy,
    'budget': cell.budget,
    'protocol': cell.protocol,
    'seeds': cell.passed.shape[0],
    'pass': _estimate(
      cell.passed.astype(float), cell.families, resamples, seed
    ),
    'soft': _estimate(cell.soft, cell.families, resamples, seed),
    'pass_hat_k': _reliability(cell, resamples, seed),
    **{name: float(np.mean(getattr(cell, name))) for name in _COSTS},
    'optimisation_calls': cell.optimisation_calls,
  }


def _cost(
  cell: Cell, costs: Mapping[events.Key, costs_lib.Cost]
) -> costs_lib.Cost:
  key = (cell.protocol, cell.strategy, cell.budget)
  return costs.get(key, costs_lib.UNKNOWN)


def _reliability(cell: Cell, resamples: int, seed: int) -> list[dict[str, Any]]:
  """pass^k over the seeds of a cell, for each k; empty for a single run."""
  seeds = len(cell.passed)
  right = cell.passed.sum(axis=0)
  rows = []
  for k in range(1, seeds + 1) if seeds > 1 else ():
    values = np.array([statistics.pass_hat_k(seeds, int(c), k) for c in right])
    interval = statistics.bootstrap_interval(
      values[None], groups=cell.families or None, resamples=resamples, seed=seed
    )
    rows.append({'k': k, 'mean': float(values.mean()), **interval._asdict()})
  return rows


def _estimate(
  values: np.ndarray, families: Sequence[str], resamples: int, seed: int
) -> dict[str, Any]:
  """Returns the mean of `values` [seeds, problems] with its interval."""
  seeds, problems = values.shape
  outcomes = np.unique(values)
  binary = bool(np.isin(outcomes, (0.0, 1.0)).all())
  single = seeds == 1 and not any(families)
  if binary and (single or outcomes.size == 1):
    passed = round(float(values.mean()) * problems)
    interval = statistics.wilson_interval(passed, problems)
    method = 'wilson'
  else:
    interval = statistics.bootstrap_interval(
      values, groups=families or None, resamples=resamples, seed=seed
    )
    method = 'bootstrap'
  by_seed = values.mean(axis=1)
  return {
    'mean': float(values.mean()),
    'low': interval.low,
    'high': interval.high,
    'interval': method,
    # A single run has no spread: None, which the tables leave out.
    'seed_sd': float(np.std(by_seed, ddof=1)) if seeds > 1 else None,
  }


def _compare(
  mine: Cell, other: Cell, resamples: int, seed: int
) -> dict[str, Any]:
  """Returns the paired differences and tests of two cells of one budget."""
  by_seed = statistics.mcnemar_by_seed(mine.passed, other.passed)
  groups = mine.families or None
  comparison = {
    'subject': mine.strategy,
    'other': other.strategy,
    'budget': mine.budget,
    'mcnemar': [table._asdict() for table in by_seed],
  }
  for metric, field in (('pass', 'passed'), ('soft', 'soft')):
    pair = [np.asarray(getattr(x, field), float) for x in (mine, other)]
    interval = statistics.bootstrap_difference(
      *pair, groups=groups, resamples=resamples, seed=seed
    )
    p = statistics.permutation_test(
      *pair, groups=groups, permutations=resamples, seed=seed
    )
    comparison[metric] = {
      'difference': float(pair[0].mean() - pair[1].mean()),
      'low': interval.low,
      'high': interval.high,
      'permutation_p': p,
      'p': p,
      'test': 'sign-flip',
    }
  if len(by_seed) == 1:
    comparison['pass'] |= {'p': by_seed[0].p, 'test': 'mcnemar'}
  return comparison


def to_markdown(
  summary: Mapping[str, Any],
  header: Mapping[str, Any],
  *,
  references: Sequence[references_lib.Published] = (),
) -> str:
  """Returns the report of one result of `summarise` as Markdown.

  Args:
    summary: the result.
    header: provenance of the numbers: at least `data_hash`, `model_hashes` (a
      dict from name to hash), `seeds` (a list) and `command`. Other entries are
      printed as they are.
    references: published numbers, printed in a separate table.

  Raises:
    ValueError: a header entry is missing or contradicts the summary.
  """
  solved, soft = 'pass@1, hidden tests', 'soft-pass@1, hidden tests'
  if summary['protocol'] == 'oracle':
    solved = f'solved ({tables.ORACLE_LABEL})'
    soft = f'soft ({tables.ORACLE_LABEL})'
  parts = [
    _header_block(summary, header),
    tables.score_table(summary, 'pass', solved),
    tables.score_table(summary, 'soft', soft),
    tables.reliability_table(summary),
    tables.cost_table(summary),
  ]
  if summary['comparisons']:
    parts.append(tables.comparison_table(summary))
  if references:
    parts.append(references_lib.references_markdown(references))
  return '\n'.join(filter(None, parts))


def _header_block(summary: Mapping[str, Any], header: Mapping[str, Any]) -> str:
  missing = [key for key in _HEADER_KEYS if not header.get(key)]
  if missing:
    raise ValueError(
      f'the report header lacks {missing}: a number without them cannot be '
      f'traced. Needed are {list(_HEADER_KEYS)}.'
    )
  budgets = sorted({cell['budget'] for cell in summary['cells']})
  facts = {
    'protocol': summary['protocol'],
    'budget': ', '.join(map(str, budgets)) + ' model calls per problem',
    'problems': summary['problems'],
  }
  if header.get('protocol', facts['protocol']) != facts['protocol']:
    raise ValueError(
      f'the header says protocol {header["protocol"]!r}, the cells say '
      f'{facts["protocol"]!r}.'
    )
  seeds = header['seeds']
  most = max(cell['seeds'] for cell in summary['cells'])
  if len(seeds) != most:
    raise ValueError(
      f'the header lists {len(seeds)} seeds {list(seeds)}, the cells hold up '
      f'to {most}.'
    )
  facts['seeds'] = ', '.join(map(str, seeds))
  models = [f'{k} `{v}`' for k, v in header['model_hashes'].items()]
  facts |= {
    'data hash': f'`{header["data_hash"]}`',
    'model hashes': ', '.join(models),
    'command': f'`{header["command"]}`',
  }
  known = {*_HEADER_KEYS, 'protocol', 'budget', 'problems'}
  facts |= {key: value for key, value in header.items() if key not in known}
  title = f'# Results, protocol `{summary["protocol"]}`'
  if summary['protocol'] == 'oracle':
    title += f' ({tables.ORACLE_LABEL})'
  return '\n'.join(
    [
      title,
      '',
      *(f'- {name}: {value}' for name, value in facts.items()),
      '',
      'Percent with 95 % intervals over problems (whole families of them, '
      'where there are families) and seeds; ± is the standard deviation over '
      'seeds. All numbers below are measured by this project unless a table '
      'says otherwise.',
      '',
    ]
  )


def write_results(
  workdir: str | os.PathLike[str], summary: Mapping[str, Any], markdown: str
) -> tuple[pathlib.Path, pathlib.Path]:
  """Writes `results.json` and `results.md` atomically; returns their paths.

  Raises:
    ValueError: the summary holds a number that is not finite, which JSON cannot
      represent.
  """
  workdir = pathlib.Path(workdir)
  # Encode before writing either file, so that an error leaves both unchanged.
  encoded = json.dumps(summary, indent=2, allow_nan=False) + '\n'
  return (
    write_atomically(workdir / 'results.json', encoded.encode()),
    write_atomically(workdir / 'results.md', markdown.encode()),
  )
