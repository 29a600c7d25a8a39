"""Everything that a finished run leaves in its workdir for people to read."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import (
  Callable,
  Collection,
  Iterable,
  Iterator,
  Mapping,
  Sequence,
)
from typing import Any, NamedTuple

import numpy as np

from promptrl_jax.evaluation import (
  actions,
  coverage,
  curves,
  departures,
  distribution,
  diversity,
  equal_calls,
  events,
  failures,
  frontier,
  generated_tests,
  html_report,
  plots,
  references,
  refusals,
  reliability,
  report,
  samples,
  selection,
  verdicts,
  verifying,
)
from promptrl_jax.evaluation import costs as costs_lib
from promptrl_jax.evaluation.cells import Cell, Detail, write_csv
from promptrl_jax.files import write_atomically

# Comparisons that were planned; the tables show the other strategies too.
_PLANNED = (
  *('best_open_loop', 'single_list', 'hand_rule', 'greedy_first', 'best_of_b'),
  *('greedy_first_tuned', 'best_of_b_tuned', 'best_fixed', 'fewshot'),
  *('fewshot_tuned', 'codet', 'mbr_exec', 'gepa'),
  *('bandit', 'bandit_mc', 'thompson', 'ppo_shuffled', 'random', 'direct'),
)

LEARNING = 'learning.json'  # The curves of the page, in the workdir.


def read_jsonl(path: pathlib.Path) -> Iterator[dict[str, Any]]:
  """The rows of a JSON-lines file, one at a time."""
  with open(path, encoding='utf-8') as file:
    for line in file:
      yield json.loads(line)


def write(
  workdir: pathlib.Path,
  cells: Mapping[str, Sequence[Cell]],
  header: Mapping[str, Any],
  *,
  subject: str,
  resamples: int,
  planned: Collection[str] = _PLANNED,
  registers: Mapping[str, str] | None = None,
  bounds: Sequence[Cell] = (),
  controls: Sequence[Cell] = (),
  sampled: Cell | None = None,
  rescored: Sequence[Mapping[str, Any]] = (),
  verifiers: Sequence[verifying.Fitted] = (),
  searches: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
  learning: Sequence[Mapping[str, Any]] = (),
  tests: Sequence[Mapping[str, Any]] = (),
  costs: Mapping[events.Key, costs_lib.Cost] | None = None,
) -> str:
  """Writes tables and figures of the evaluation; returns the headline report.

  `workdir` holds `trace.jsonl`, `cells` are results by protocol, the headline
  first, and the strategies of `planned` are compared with `subject`.
  `registers` are the wordings of problems by task id, where the data has them,
  `bounds` and `sampled` the cells of `coverage.measure`, `controls` those of
  `equal_calls.measure`, `rescored` what `selection.rescore` or
  `selection.beside_test` returned, `verifiers` those that chose what was
  submitted, `searches` the histories of `diversity.of_search` by strategy,
  `learning` the panels of `learning.read`, `tests` what
  `generated_tests.of_trace` returned, `costs` the seconds and dollars of cells.
  """
  parts, summaries, published = [], {}, references.PROMIS_MBPP
  failed = []
  for name, group in cells.items():
    names = {cell.strategy for cell in group}
    rivals = [rival for rival in planned if rival in names]
    summaries[name] = report.summarise(
      group,
      subject=subject if rivals else None,
      rivals=rivals,
      resamples=resamples,
      costs=costs,
    )
    seeds = header['seeds'][: max(len(cell.passed) for cell in group)]
    parts.append(
      report.to_markdown(
        summaries[name],
        {**header, 'seeds': seeds},
        references=published if name == 'oracle' else (),
      )
    )
    found = failures.count(group)
    parts.append(failures.to_markdown(found))
    failed += found
    parts.append(frontier.to_markdown(frontier.front(summaries[name])))
    parts.append(distribution.to_markdown(distribution.measure(group)))
  headline, every = next(iter(cells)), [c for g in cells.values() for c in g]
  mine, operators, islands, replies, programs = _read_trace(
    workdir, of_subject(cells[headline], subject)
  )
  parts.append(
    verdicts.to_markdown(r for r in programs if r['protocol'] == headline)
  )
  parts.append(generated_tests.to_markdown(tests))
  parts.append(actions.actions_markdown(draw_actions(workdir, mine)))
  parts.append(_departures(cells[headline], subject))
  gaps = coverage.compare(bounds, cells[headline], subject, resamples=resamples)
  if gaps:
    parts.append(coverage.to_markdown(gaps, subject))
  as_often = equal_calls.compare(controls, cells[headline], resamples)
  parts.append(equal_calls.to_markdown(as_often))
  pass_at_k = samples.table(sampled, resamples) if sampled is not None else []
  if pass_at_k:
    parts.append(samples.to_markdown(pass_at_k))
  if rescored:
    parts.append(selection.to_markdown(rescored))
  if verifiers:
    parts.append(verifying.to_markdown(verifiers))
    reliability.of_verifiers(
      workdir / 'reliability.png', {v.name: v.quality for v in verifiers}
    )
  for name, history in (searches or {}).items():
    operators += diversity.of_search(name, headline, history)
    islands += diversity.pool_of_search(name, headline, history)
  if operators:
    parts.append(diversity.to_markdown(operators))
  if islands:
    parts.append(diversity.islands_to_markdown(islands))
  if refused := refusals.to_markdown(replies):
    parts.append(refused)
  write_csv(workdir / 'results.csv', every)
  costs_lib.write_csv(workdir / 'scores.csv', summaries)
  write_problems(workdir / 'problems.json', every)
  report.write_results(
    workdir,
    {
      'header': header,
      'tables': summaries,
      'failures': failed,
      'coverage': gaps,
      'equal_calls': as_often,
      'pass_at_k': pass_at_k,
      'selection': rescored,
      'verifiers': [dataclasses.asdict(one) for one in verifiers],
      'operators': operators,
      'islands': islands,
      'replies': replies,
      'programs': programs,
      'tests': tests,
      'searches': searches or {},
    },
    '\n'.join(filter(None, parts)),
  )
  if learning:
    content = json.dumps(learning, allow_nan=False)
    write_atomically(workdir / LEARNING, f'{content}\n'.encode())
  plots.solved_at_budget(workdir / 'solved_at_b.png', summaries[headline])
  frontier.draw(workdir / 'cost_quality.png', summaries[headline])
  distribution.draw(
    workdir / 'soft_scores.png', distribution.measure(cells[headline])
  )
  html_report.write(
    workdir / 'report.html',
    header=header,
    cells_by_protocol=cells,
    summaries=summaries,
    trace=workdir / 'trace.jsonl',
    references=published if 'oracle' in summaries else (),
    registers=registers,
    operators=operators,
    islands=islands,
    replies=replies,
    failed=failed,
    programs=programs,
    tests=tests,
    selection=rescored,
    coverage=gaps,
    equal_calls=as_often,
    pass_at_k=pass_at_k,
    learning=learning,
    searches=searches,
  )
  return parts[0]


class _Traced(NamedTuple):
  """What tables say of a trace.

  Attributes:
    mine: rows of the subject at its largest budget.
    operators, islands, replies, programs: rows of the counters.
  """

  mine: list[dict[str, Any]]
  operators: list[dict[str, Any]]
  islands: list[dict[str, Any]]
  replies: list[dict[str, Any]]
  programs: list[dict[str, Any]]


def _read_trace(
  workdir: pathlib.Path, is_mine: Callable[[Mapping[str, Any]], bool]
) -> _Traced:
  """Reads the trace once: that of a large run is most of a gigabyte."""
  mine = []
  counters = (
    *(diversity.Operators(), diversity.Islands()),
    *(refusals.Replies(), verdicts.Verdicts()),
  )
  for row in read_jsonl(workdir / 'trace.jsonl'):
    for counter in counters:
      counter.add(row)
    if is_mine(row):
      mine.append(row)
  return _Traced(mine, *(counter.rows() for counter in counters))


def _departures(cells: Sequence[Cell], subject: str) -> str:
  """Where the subject departs from the best list, at the largest budget."""
  by_name = {
    cell.strategy: cell for cell in sorted(cells, key=lambda cell: cell.budget)
  }
  if not {subject, 'best_open_loop'} <= set(by_name):
    return ''
  mine, other = by_name[subject], by_name['best_open_loop']
  return departures.to_markdown(departures.measure(mine, other), mine, other)


def of_subject(
  cells: Sequence[Cell], subject: str
) -> Callable[[Mapping[str, Any]], bool]:
  """Tells rows of a trace that are the subject's at its largest budget."""
  budgets = [cell.budget for cell in cells if cell.strategy == subject]
  wanted = (subject, cells[0].protocol, max(budgets, default=None))
  return lambda row: (row['strategy'], row['protocol'], row['budget']) == wanted


def draw_actions(
  workdir: pathlib.Path, rows: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
  """Draws and returns the actions in rows of one strategy."""
  taken = actions.action_statistics(rows)
  plots.action_heatmap(workdir / 'actions.png', taken)
  return taken


def write_problems(path: pathlib.Path, cells: Sequence[Cell]) -> None:
  """Writes a JSON list, a line per problem with all of its results."""
  entries: dict[str, list[dict[str, Any]]] = {}
  for cell in cells:
    for seed, problem in np.ndindex(cell.passed.shape):
      detail = cell.details[seed][problem] if cell.details else Detail()
      entries.setdefault(cell.task_ids[problem], []).append(
        {
          'strategy': cell.strategy,
          'protocol': cell.protocol,
          'budget': cell.budget,
          'seed': seed,
          'pass': bool(cell.passed[seed, problem]),
          'soft': float(cell.soft[seed, problem]),
          'calls': int(cell.calls[seed, problem]),
          **vars(detail),
        }
      )
  lines = [
    json.dumps({'id': name, 'results': results})
    for name, results in entries.items()
  ]
  write_atomically(path, ('[\n' + ',\n'.join(lines) + '\n]\n').encode())


def draw_training(folder: pathlib.Path, workdir: pathlib.Path) -> None:
  """Draws the learning curve and the use of actions of one controller."""
  rows = list(read_jsonl(folder / 'metrics.jsonl'))
  steps = [row['budget/env_steps'] for row in rows]
  validated = [row for row in rows if 'eval/validation_pass' in row]
  plots.learning_curve(
    workdir / 'learning_curve.png',
    steps,
    [row['rollout/return'] for row in rows],
    [row['rollout/solved_rate'] for row in rows],
    validation_steps=[row['budget/env_steps'] for row in validated],
    validation_pass_rates=[row['eval/validation_pass'] for row in validated],
    window=5,
  )
  prefix = 'rollout/action_'
  plots.action_usage(
    workdir / 'action_usage.png',
    steps,
    {
      name.removeprefix(prefix): [row[name] for row in rows]
      for name in rows[0]
      if name.startswith(prefix)
    },
  )


def draw_rewriters(
  folders: Mapping[str, Sequence[pathlib.Path]], workdir: pathlib.Path
) -> pathlib.Path:
  """Draws the learning curves of rewriters, by algorithm and seed."""
  runs = {
    name: [list(read_jsonl(folder / 'metrics.jsonl')) for folder in seeds]
    for name, seeds in folders.items()
  }
  return curves.draw(workdir / 'curves.png', runs)


def time_spent(folder: pathlib.Path) -> dict[str, float]:
  """Seconds of a training by part: generate, execute, update, ..."""
  rows = list(read_jsonl(folder / 'metrics.jsonl'))
  names = [name for name in rows[0] if name.startswith('time/')]
  return {
    name.removeprefix('time/'): sum(row[name] for row in rows) for name in names
  }
