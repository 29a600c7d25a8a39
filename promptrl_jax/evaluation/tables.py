"""Markdown tables of a report, printed from the numbers of its summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Label of every result for which the strategy saw the tests that score it.
ORACLE_LABEL = 'oracle, at most b tries'
_YES_NO = {True: 'yes', False: 'no'}


def score_table(summary: Mapping[str, Any], metric: str, title: str) -> str:
  """Returns a table of `pass` or `soft` by strategy, a column per budget."""
  cells = {(x['strategy'], x['budget']): x for x in summary['cells']}
  strategies = list(dict.fromkeys(x['strategy'] for x in summary['cells']))
  budgets = sorted({x['budget'] for x in summary['cells']})
  unit = 'at most {} tries' if summary['protocol'] == 'oracle' else 'B={}'
  lines = [
    f'### {title}',
    '',
    '| strategy | ' + ' | '.join(map(unit.format, budgets)) + ' |',
    '|---|' + '---:|' * len(budgets),
  ]
  for strategy in strategies:
    row = [cells.get((strategy, budget)) for budget in budgets]
    texts = ['' if x is None else _score_text(x[metric]) for x in row]
    lines.append(f'| {strategy} | ' + ' | '.join(texts) + ' |')
  return '\n'.join([*lines, ''])


def _score_text(score: Mapping[str, Any]) -> str:
  text = _interval_text(score)
  if score['seed_sd'] is not None:
    text += f' ± {100 * score["seed_sd"]:.1f}'
  return text


def _interval_text(score: Mapping[str, Any]) -> str:
  return (
    f'{100 * score["mean"]:.1f} '
    f'[{100 * score["low"]:.1f}, {100 * score["high"]:.1f}]'
  )


def reliability_table(summary: Mapping[str, Any]) -> str:
  """Returns the table of pass^k over all seeds; '' if there is one seed."""
  ks = [len(cell['pass_hat_k']) for cell in summary['cells']]
  if not any(ks):
    return ''
  budgets = sorted({x['budget'] for x in summary['cells']})
  shown = {
    (x['strategy'], x['budget']): x['pass_hat_k'][-1]
    for x in summary['cells']
    if x['pass_hat_k']
  }
  lines = [
    f'### pass^{max(ks)}: solved in every one of {max(ks)} independent runs',
    '',
    '| strategy | ' + ' | '.join(f'B={b}' for b in budgets) + ' |',
    '|---|' + '---:|' * len(budgets),
  ]
  for strategy in dict.fromkeys(name for name, _ in shown):
    row = [shown.get((strategy, budget)) for budget in budgets]
    texts = ['' if x is None else _interval_text(x) for x in row]
    lines.append(f'| {strategy} | ' + ' | '.join(texts) + ' |')
  return '\n'.join([*lines, ''])


def cost_table(summary: Mapping[str, Any]) -> str:
  """Returns the table of scores beside costs, with a row per cell."""
  score = 'solved' if summary['protocol'] == 'oracle' else 'pass@1'
  lines = [
    '### Cost: mean per problem, and calls paid once for optimisation',
    '',
    'Seconds are the wall time of the cell in this run over its problems, '
    'which are played at once; answers from a cache take none. Dollars are '
    'those of the calls charged, at the prices that the run names.',
    '',
    f'| strategy | B | seeds | {score} | calls | attempts | tokens in '
    '| tokens out | seconds | dollars | calls paid once |',
    '|---|' + '---:|' * 10,
  ]
  for cell in summary['cells']:
    lines.append(
      f'| {cell["strategy"]} | {cell["budget"]} | {cell["seeds"]} '
      f'| {100 * cell["pass"]["mean"]:.1f} '
      f'| {cell["calls"]:.2f} | {cell["attempts"]:.2f} '
      f'| {cell["prompt_tokens"]:.1f} | {cell["completion_tokens"]:.1f} '
      f'| {_known(cell["seconds"], ".3f")} | {_known(cell["dollars"], ".6f")} '
      f'| {_known(cell["optimisation_calls"], ".0f")} |'
    )
  return '\n'.join([*lines, ''])


def _known(value: float | None, form: str) -> str:
  return 'unknown' if value is None else format(value, form)


def comparison_table(summary: Mapping[str, Any]) -> str:
  """Returns the table that compares the subject with each rival."""
  oracle = summary['protocol'] == 'oracle'
  label = f' ({ORACLE_LABEL})' if oracle else ''
  lines = [
    f'### {summary["subject"]} against its rivals{label}',
    '',
    'Differences in points, positive in favour of '
    f'{summary["subject"]}. b/c: problems that only {summary["subject"]} / '
    'only the other solved, for each seed, with exact McNemar p. p: exact '
    'McNemar for single runs, else sign-flip test over problems. p (Holm) is '
    f'adjusted over these {len(summary["comparisons"])} comparisons. beats: p '
    '(Holm) under 0.05 and the interval above 0.',
    '',
    '| B | other | pass difference | b/c (p) | p | p (Holm) | beats '
    '| soft difference | soft p | soft p (Holm) | soft beats |',
    '|---:|---|---:|---|---:|---:|---|---:|---:|---:|---|',
  ]
  for x in summary['comparisons']:
    runs = [f'{t["b"]}/{t["c"]} ({_p_text(t["p"])})' for t in x['mcnemar']]
    lines.append(
      f'| {x["budget"]} | {x["other"]} | {_difference_text(x["pass"])} '
      f'| {"; ".join(runs)} | {_p_text(x["pass"]["p"])} '
      f'| {_p_text(x["pass"]["p_holm"])} | {_YES_NO[x["pass"]["beats"]]} '
      f'| {_difference_text(x["soft"])} | {_p_text(x["soft"]["p"])} '
      f'| {_p_text(x["soft"]["p_holm"])} | {_YES_NO[x["soft"]["beats"]]} |'
    )
  return '\n'.join([*lines, ''])


def _difference_text(result: Mapping[str, Any]) -> str:
  ends = f'[{100 * result["low"]:+.1f}, {100 * result["high"]:+.1f}]'
  return f'{100 * result["difference"]:+.1f} {ends}'


def _p_text(p: float) -> str:
  return f'{p:.4f}' if p >= 0.00005 else f'{p:.0e}'
