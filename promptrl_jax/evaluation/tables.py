"""Markdown tables of a report, printed from the numbers of its summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from promptrl_jax.evaluation import markdown

# Label of every result for which the strategy saw the tests that score it.
ORACLE_LABEL = 'oracle, at most b tries'
_YES_NO = {True: 'yes', False: 'no'}


def score_table(summary: Mapping[str, Any], metric: str, title: str) -> str:
  """Returns a table of `pass` or `soft` by strategy, a column per budget."""
  cells = {(x['strategy'], x['budget']): x for x in summary['cells']}
  budgets = sorted({x['budget'] for x in summary['cells']})
  unit = 'at most {} tries' if summary['protocol'] == 'oracle' else 'B={}'
  shown = {place: _score(cell[metric]) for place, cell in cells.items()}
  return f'### {title}\n\n{_by_budget(shown, budgets, unit)}\n'


def _by_budget(
  shown: Mapping[tuple[str, int], str],
  budgets: Sequence[int],
  unit: str = 'B={}',
) -> str:
  """A row per strategy and a column per budget, of texts by both."""
  return markdown.table(
    [
      {'strategy': strategy}
      | {unit.format(b): shown.get((strategy, b), '') for b in budgets}
      for strategy in dict.fromkeys(name for name, _ in shown)
    ]
  )


def _score(score: Mapping[str, Any]) -> str:
  text = markdown.interval(score)
  if score['seed_sd'] is not None:
    text += f' ± {100 * score["seed_sd"]:.1f}'
  return text


def reliability_table(summary: Mapping[str, Any]) -> str:
  """Returns the table of pass^k over all seeds; '' if there is one seed."""
  ks = [len(cell['pass_hat_k']) for cell in summary['cells']]
  if not any(ks):
    return ''
  budgets = sorted({x['budget'] for x in summary['cells']})
  shown = {
    (x['strategy'], x['budget']): markdown.interval(x['pass_hat_k'][-1])
    for x in summary['cells']
    if x['pass_hat_k']
  }
  return (
    f'### pass^{max(ks)}: solved in every one of {max(ks)} independent runs'
    f'\n\n{_by_budget(shown, budgets)}\n'
  )


def cost_table(summary: Mapping[str, Any]) -> str:
  """Returns the table of scores beside costs, with a row per cell."""
  score = 'solved' if summary['protocol'] == 'oracle' else 'pass@1'
  rows = [
    {
      'strategy': cell['strategy'],
      'B': cell['budget'],
      'seeds': cell['seeds'],
      score: markdown.points(cell['pass']['mean']),
      'calls': f'{cell["calls"]:.2f}',
      'attempts': f'{cell["attempts"]:.2f}',
      'tokens in': f'{cell["prompt_tokens"]:.1f}',
      'tokens out': f'{cell["completion_tokens"]:.1f}',
      'seconds': _known(cell['seconds'], '.3f'),
      'dollars': _known(cell['dollars'], '.6f'),
      'calls paid once': _known(cell['optimisation_calls'], '.0f'),
    }
    for cell in summary['cells']
  ]
  return (
    '### Cost: mean per problem, and calls paid once for optimisation\n\n'
    'Seconds are the wall time of the cell in this run over its problems, '
    'which are played at once; answers from a cache take none. Dollars are '
    'those of the calls charged, at the prices that the run names.\n\n'
    f'{markdown.table(rows)}\n'
  )


def _known(value: float | None, form: str) -> str:
  return 'unknown' if value is None else format(value, form)


def comparison_table(summary: Mapping[str, Any]) -> str:
  """Returns the table that compares the subject with each rival."""
  oracle = summary['protocol'] == 'oracle'
  label = f' ({ORACLE_LABEL})' if oracle else ''
  rows = []
  for x in summary['comparisons']:
    runs = [f'{t["b"]}/{t["c"]} ({_p_text(t["p"])})' for t in x['mcnemar']]
    rows.append(
      {
        'B': x['budget'],
        'other': x['other'],
        'pass difference': markdown.interval(x['pass'], 'difference', '+'),
        'b/c (p)': '; '.join(runs),
        'p': _p_text(x['pass']['p']),
        'p (Holm)': _p_text(x['pass']['p_holm']),
        'beats': _YES_NO[x['pass']['beats']],
        'soft difference': markdown.interval(x['soft'], 'difference', '+'),
        'soft p': _p_text(x['soft']['p']),
        'soft p (Holm)': _p_text(x['soft']['p_holm']),
        'soft beats': _YES_NO[x['soft']['beats']],
      }
    )
  return (
    f'### {summary["subject"]} against its rivals{label}\n\n'
    'Differences in points, positive in favour of '
    f'{summary["subject"]}. b/c: problems that only {summary["subject"]} / '
    'only the other solved, for each seed, with exact McNemar p. p: exact '
    'McNemar for single runs, else sign-flip test over problems. p (Holm) is '
    f'adjusted over these {len(summary["comparisons"])} comparisons. beats: p '
    '(Holm) under 0.05 and the interval above 0.\n\n'
    f'{markdown.table(rows, "rlrlrrlrrrl")}\n'
  )


def _p_text(p: float) -> str:
  return f'{p:.4f}' if p >= 0.00005 else f'{p:.0e}'
