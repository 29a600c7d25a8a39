"""A small run for the HTML report: rows of real attempts, cells, a summary."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from promptrl_jax.evaluation import report
from promptrl_jax.evaluation.cells import Cell, Detail
from promptrl_jax.evaluation.costs import Cost
from promptrl_jax.execution import ProgramResult, TestResult
from promptrl_jax.llm.ask import coder_prompt
from promptrl_jax.llm.attempt import Ask, Attempt
from promptrl_jax.llm.backend import Completion, Message, Request
from promptrl_jax.types import Problem, UnitTests

# What a model may write: it must be shown and never be read as HTML.
HOSTILE = (
  'def f(a):\n'
  '  # </script><script>alert(1)</script><!-- <script>\n'
  "  return '<img src=x onerror=alert(2)>&amp;'\n"
)
HOSTILE_TASK = 'mini/</script><b>3</b>'
TASKS = ('mini/0', 'mini/1', 'mini/2', HOSTILE_TASK, 'mini/4', 'mini/5')
FAMILIES = ('sums', 'sums', 'sorts', 'sorts', 'sorts', '')
SEEDS = (7, 8)
HEADER = {
  'data_hash': 'mini <i>abc</i>',
  'model_hashes': {'coder': 'tiny@12', 'rewriter': 'tiny@34'},
  'seeds': list(SEEDS),
  'command': 'python -m experiments.mbpp_ppo --workdir=W',
}


# The mean of the returns of the two seeds falls below 0 and rises again.
LEARNING = [
  {
    'metric': 'rollout/return',
    'title': 'Return of training episodes',
    'is_share': False,
    'learners': [
      {
        'name': 'ppo',
        'seeds': [
          {'seed': 7, 'updates': [1, 2], 'calls': [9, 30], 'y': [-0.5, 0.25]},
          {'seed': 8, 'updates': [1, 2], 'calls': [9, 34], 'y': [-0.1, 0.75]},
        ],
        'mean': {
          **{'updates': [1, 2], 'calls': [9, 32], 'y': [-0.3, 0.5]},
          'sd': [0.283, 0.354],
        },
      }
    ],
  }
]
OPERATORS = [
  {
    **{'strategy': 'bandit', 'protocol': 'visible1', 'budget': budget},
    **{'operator': operator, 'populations': 12, 'proposed': 60},
    **{
      'refused': {'cut': 3, 'malformed': 4},
      'distinct': 50,
      'improved': 9,
      'kept': 5,
    },
  }
  for budget, operator in ((4, 'cross'), (None, 'reflect'))
]
ISLANDS = [
  {
    **{'strategy': 'bandit', 'protocol': 'visible1', 'budget': 4, 'island': 0},
    **{'generations': 24, 'candidates': 5.5, 'distinct': 4.5, 'jaccard': 0.375},
  }
]
REPLIES = [
  {
    **{'strategy': 'bandit', 'protocol': 'visible1', 'budget': 4},
    **{'kind': kind, 'replies': 31, 'refused': refused},
  }
  for kind, refused in (('program', {'cut': 2}), ('rewrite', {}))
]
PROGRAMS = [
  {
    **{'strategy': 'bandit', 'protocol': 'visible1', 'budget': 4},
    'programs': 40,
    'verdicts': {
      **{'wrong value': 20, 'no failure': 8},
      **{f'{name}Error': 2 for name in ('Key', 'Name', 'Type', 'Value')},
      **{'IndexError': 1, 'SyntaxError': 1, 'RuntimeError': 1, 'OSError': 1},
    },
  }
]
TESTS = [
  {
    **{'strategy': 'bandit', 'protocol': 'visible1', 'budget': 4},
    **{'tasks': 12, 'tasks_without_tests': 2, 'tasks_all_passed': 3},
    **{'tests': 40, 'tests_passed': 9},
  }
]
SELECTION = [
  {
    **{'strategy': 'bandit', 'budgets': [1, 4], 'chosen': 0.75},
    **{'again': 0.625, 'test': 0.5},
  },
  {
    **{'strategy': 'direct', 'budgets': [4], 'chosen': 0.25},
    **{'again': None, 'test': 0.5},
  },
]
COVERAGE = [
  {
    **{'budget': 4, 'best_of_n': 0.5, 'oracle': 0.75, 'subject': 0.7},
    **{'closed': 0.8, 'above_half': 0.075, 'low': -0.025, 'high': 0.175},
  }
]
EQUAL_CALLS = [
  {
    **{'strategy': 'ppo', 'budget': 4, 'calls': 2.25, 'control_calls': 1.75},
    **{'subject': 0.7, 'control': 0.6},
    **{'gain': 0.1, 'low': -0.05, 'high': 0.25},
  }
]
PASS_AT_K = [{'k': 2, 'mean': 0.4, 'low': 0.3, 'high': 0.55, 'samples': 9}]


def searched(kind, text, candidate, parents, why):
  """A decision of a search, as far as the page shows it."""
  shown = {'kind': kind, 'text': text, 'candidate': candidate}
  return shown | {
    **{'parents': parents, 'why': why, 'examples': [], 'before': []},
    **{'after': None, 'front': [0], 'calls': 1},
  }


SEARCHES = {
  'gepa': [
    searched('start', 'Write correct code.', 0, [], 'the start'),
    searched('reflect', '', None, [0], 'cut off'),
    searched('reflect', 'Write fast code.', None, [0], 'no better'),
    searched('reflect', 'Write correct, short code.', 1, [0], 'better'),
    searched('merge', 'Write correct, short Python.', 2, [1, 0], 'as good'),
  ]
}


class Run(NamedTuple):
  """What `html_report.write` takes."""

  header: dict[str, Any]
  cells: dict[str, list[Cell]]
  summaries: dict[str, dict[str, Any]]
  trace: pathlib.Path


def play(
  task: str, seed: int, budget: int, row: int, programs: Sequence[str]
) -> list[dict[str, Any]]:
  """The trace of an attempt that asks for programs, of which the last passes.

  A program of a step is asked for after a rewritten statement, which the
  rewriter was asked for.
  """
  problem = Problem(
    task,
    'Write a function to add the first numbers.',
    UnitTests('f', 'def f(a):', ('assert f(1) == 2',)),
  )
  attempt = Attempt(problem, seed=seed, budget=budget, row=row)
  for step, code in enumerate(programs):
    if step:
      _ask(attempt, 'rewriter', f'{problem.statement}\n=>')
    prompt = coder_prompt(attempt, problem.statement + ' Mind the zero.' * step)
    _ask(attempt, 'coder', f'{prompt.statement}\n###\ndef f(a):')
    passed = step == len(programs) - 1 and code != HOSTILE
    test = (
      TestResult('passed')
      if passed
      else TestResult('error', 'NameError', "name 'x' is not defined")
    )
    attempt.record(code, ProgramResult(test.status, float(passed), (test,)))
    attempt.trace[-1] |= {
      'prompt': dataclasses.asdict(prompt),
      'reward': 1.0 if passed else -0.02,
    }
  return attempt.trace


def play_evolved() -> list[dict[str, Any]]:
  """The trace of an attempt whose statements evolve, with the fields of EPiC.

  The first child of `Add.` is not that of which the last one was made.
  """
  attempt = Attempt(Problem('mini/9', 'Add.', UnitTests('f', 'def f(a):', ())))

  def run(statement):
    _ask(attempt, 'coder', f'{statement}\ndef f(a):')
    attempt.record('x', ProgramResult('failed', 0.0, ()))

  def make(operator, statement, *parents):
    _ask(attempt, 'coder', f'{operator}: {" and ".join(parents)}')
    attempt.note(
      operator,
      **{'statement': statement, 'operator': operator, 'parents': parents},
      refused='',
    )

  run('Add.')
  make('elaborate', 'Add. To one.', 'Add.')
  make('elaborate', 'Add. Twice.', 'Add.')
  run('Add. To one.')
  run('Add. Twice.')
  make('cross', 'Add. To two.', 'Add. To one.', 'Add. Twice.')
  original = {'statement': 'Add.', 'operator': 'original', 'parents': ()}
  lexical = {
    **{'statement': 'Sum. Twice.', 'operator': 'lexical'},
    'parents': ('Add. Twice.',),
  }
  run('Add. To two.')
  run('Sum. Twice.')
  attempt.note('generation', candidates=[original, lexical])
  return [
    {**row, 'strategy': 'epic', 'protocol': 'visible1'} for row in attempt.trace
  ]


def _ask(attempt: Attempt, role: str, text: str) -> None:
  request = Request((Message('user', text),), temperature=0.8)
  attempt.charge(Ask(role, request), Completion('', 9, 5, 'stop'))


def make_cell(strategy: str, budget: int, passed: Sequence[Sequence[int]]):
  """A cell of these outcomes, [seeds][problems]."""
  solved = np.array(passed, bool)
  count = np.ones(solved.shape, int)
  detail = Detail(steps=1, actions='execute', mask='1101')
  return Cell(
    strategy,
    budget,
    'visible1',
    TASKS,
    solved,
    np.where(solved, 1.0, 0.75),
    calls=count,
    attempts=count,
    prompt_tokens=9 * count,
    completion_tokens=5 * count,
    details=tuple((detail,) * len(TASKS) for _ in passed),
    families=FAMILIES,
  )


CELLS = (
  make_cell('direct', 1, [[1, 0, 0, 0, 0, 0]]),
  make_cell('direct', 4, [[1, 0, 0, 0, 0, 0]]),
  make_cell('ppo', 1, [[1, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]]),
  make_cell('ppo', 4, [[1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 1, 0]]),
  make_cell('bandit', 4, [[1, 0, 1, 0, 0, 0], [1, 0, 1, 0, 0, 0]]),
)

KNOWN = ('visible1', 'ppo', 4)  # whose seconds and dollars are known


def make_run(folder: pathlib.Path) -> Run:
  """Writes `trace.jsonl` in the order of a run: by step, not by episode."""
  rows = []
  for cell in CELLS:
    seeds = SEEDS[: len(cell.passed)]
    played = [
      row
      for seed in seeds
      for place, task in enumerate(TASKS)
      for row in play(task, seed, cell.budget, place, _programs(cell, place))
    ]
    label = {'strategy': cell.strategy, 'protocol': cell.protocol}
    played.sort(key=lambda row: (row['step'], row['row']))
    rows += [{**label, **row} for row in played]
  trace = folder / 'trace.jsonl'
  trace.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  summary = report.summarise(
    CELLS, subject='ppo', resamples=50, costs={KNOWN: Cost(4.8, 0.012)}
  )
  return Run(HEADER, {'visible1': list(CELLS)}, {'visible1': summary}, trace)


def _programs(cell: Cell, place: int) -> tuple[str, ...]:
  if TASKS[place] == HOSTILE_TASK:
    return (HOSTILE,)
  good = 'def f(a):\n  return a + 1\n'
  return (good,) if cell.budget == 1 or not place else ('x', good)
