"""Numbers published by others, kept apart from this project's measurements.

A report prints them in a separate table. They are no targets: they were taken
under a protocol that this project does not use to compare strategies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from promptrl_jax.evaluation import markdown

LABEL = 'published, not ours'


@dataclasses.dataclass(frozen=True)
class Published:
  """The published result of one strategy with one code model.

  Attributes:
    data: the benchmark as the source names it.
    strict: percentage of problems solved.
    soft: mean percentage of tests passed.
    source: publication that states the numbers.
    note: the source's definition of a solved problem.
  """

  strategy: str
  model: str
  data: str
  strict: float
  soft: float
  source: str
  note: str


# PROMIS: Esfahani, Kahani and Ajila 2026, Prompt Optimization for LLM Code
# Generation via Reinforcement Learning.
_ABSTRACT = 'arXiv 2605.19102, abstract'
_README = 'README of github.com/promptoptrl/PROMIS, results table'
_BEST_OF_TEN = (
  'best of up to 10 attempts with the scored tests visible, in the prompt and '
  'as stop rule; called Pass@1 there'
)
_ONE_EDIT = 'one code per task, scored tests in the prompt; called Pass@1 there'
_RIVAL = (
  're-run by the PROMIS authors, attempts not stated; not the numbers of the '
  'paper of the method ({})'
)
_REFLEXION = _RIVAL.format('arXiv 2303.11366')

# The README says MBPP and the abstract says MBPP+ for the same PPO numbers. The
# one result file that the authors published (CodeLlama, direct) gives 41.91 /
# 48.82 on the plain assertions, from 482 of the 500 test problems.
_BOTH = 'MBPP (README), MBPP+ (abstract)'

_Pair = tuple[float, float]
# Strategy, (strict, soft) with CodeT5+, (strict, soft) with CodeLlama, note.
_README_ROWS: tuple[tuple[str, _Pair, _Pair, str], ...] = (
  ('direct generation', (12.84, 22.80), (41.91, 48.82), _ONE_EDIT),
  ('genetic mutation', (20.23, 33.40), (43.01, 51.70), _ONE_EDIT),
  ('semantic rewriting', (23.73, 36.90), (46.20, 55.20), _ONE_EDIT),
  ('random choice, 10 steps', (31.12, 44.10), (49.08, 58.60), _BEST_OF_TEN),
  ('EPiC', (41.89, 54.20), (51.40, 61.50), _RIVAL.format('arXiv 2408.11198')),
  ('Reflexion', (41.63, 55.10), (52.70, 63.60), _REFLEXION),
  ('PPO agent (PROMIS)', (57.58, 67.90), (64.80, 73.10), _BEST_OF_TEN),
)


def _from_readme() -> Iterator[Published]:
  for strategy, codet5, codellama, note in _README_ROWS:
    in_abstract = strategy.startswith('PPO')
    source = f'{_README}; {_ABSTRACT}' if in_abstract else _README
    data = _BOTH if in_abstract else 'MBPP'
    scored = {'CodeT5+ 770M': codet5, 'CodeLlama-7b-Instruct': codellama}
    for model, scores in scored.items():
      yield Published(strategy, model, data, *scores, source, note)


PROMIS_MBPP = (
  *_from_readme(),
  Published(
    'PPO agent (PROMIS)',
    'DeepSeek-Coder',
    'MBPP+ (abstract)',
    85.50,
    88.20,
    _ABSTRACT,
    f'not stated in the abstract; taken to be as for CodeT5+: {_BEST_OF_TEN}',
  ),
)


def references_markdown(published: Sequence[Published] = PROMIS_MBPP) -> str:
  """Returns the table of published numbers, each with source and protocol."""
  rows = [
    {
      'strategy': x.strategy,
      'model': x.model,
      'data': x.data,
      'solved': f'{x.strict:.2f}',
      'soft': f'{x.soft:.2f}',
      'source': f'{LABEL}: {x.source}',
      'protocol there': x.note,
    }
    for x in published
  ]
  return (
    f'### References ({LABEL})\n\n'
    'Percent, as reported; no intervals were given. Another protocol: not to '
    'be compared with the tables of this report.\n\n'
    f'{markdown.table(rows, "lllrrl")}\n'
  )
