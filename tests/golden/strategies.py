"""Decisions of Reflexion and EPiC on a recorded model, to be read by people.

  python -m tests.golden.strategies        writes tests/golden/strategies/*

The task is to add 3; `upto(n)` is a program that does so below n, and the
visible test and the four of the model call it with 1 to 5: it passes n - 1 of 5
tests. What the model answers to each question is recorded in `CASES`.
"""

from __future__ import annotations

import json
import pathlib
import re
import zlib

from promptrl_jax.envs.runner import Runner
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.llm.ask import AskConfig, make_tools
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.strategies.base import named
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny
from promptrl_jax.testing.instructed import InstructedBackend
from tests.golden.released import program

FOLDER = pathlib.Path(__file__).parent / 'strategies'
TESTS = '\n'.join(f'assert add({x}) == {x + 3}' for x in (2, 3, 4, 5))
# What a row of the trace says beside its requests.
_FACTS = (
  *('status', 'tests', 'after', 'state', 'is_new', 'reflection', 'operator'),
  *('statement', 'refused', 'fitness', 'operators', 'generation'),
)


def upto(limit):
  """A program that is right for numbers below `limit`."""
  return f'```python\n{program(limit)}\n```'


def in_turn(*replies):
  """Answers with one reply after the other, the last one from then on."""
  return lambda request, number: replies[min(number, len(replies) - 1)]


def parents_of(request):
  """The two descriptions that a crossover is shown."""
  shown = request.messages[-1].content
  return re.findall(r'(?:First|Second) description: (.*)', shown)


def evolve(request, number):
  """A statement in the words of the model is worth at most 2 of 5 tests.

  One of the lexical mutants is worth as many as its words say.
  """
  del number
  statement = request.messages[-1].content.split('\n')[0]
  if statement.startswith('Write a function to add 3'):
    return upto(2)
  variant = re.search(r'Variant (\d)', statement)
  drawn = int(variant[1]) if variant else zlib.crc32(statement.encode())
  return upto(1 + drawn % 3)


REFLECTIONS = (
  'The program stops too early, at 2.',
  'Now it stops at 4, so that 4 and 5 are wrong.',
  'It never adds anything to 5.',
)
CASES = {
  'reflexion': {
    'tests': in_turn(TESTS),
    'reflect': in_turn(*REFLECTIONS),
    'program': in_turn(upto(2), upto(4), upto(9)),
  },
  'reflexion_ucs': {
    'tests': in_turn(TESTS),
    'reflect': in_turn(*REFLECTIONS),
    'program': in_turn(upto(1), upto(2), upto(2), upto(4), upto(9)),
  },
  'epic': {
    'tests': in_turn(TESTS),
    'elaborate': lambda request, number: (
      f'<task>Variant {number}: take a number and return the larger one.</task>'
    ),
    'program': evolve,
  },
}
CASES['epic_fixed'] = CASES['epic']


def decisions(name, pool):
  """What a strategy did, one line per row of its trace."""
  model = InstructedBackend(CASES[name])
  backends = {REWRITER: model, CODER: model}
  tools = make_tools(AskConfig(template='chat', max_tokens=200), backends)
  problem = splits.reveal(tiny.tasks(4, 'test')[3], 'visible1')
  started = named(name).start([problem], tools, budget=40, seed=0)
  (played,) = Runner(backends, pool, strict=True).run(started)
  lines = [
    {
      'action': row['action'],
      'temperatures': [ask['temperature'] for ask in row['sent']],
      **{fact: row[fact] for fact in _FACTS if row.get(fact) not in (None, '')},
      'code': row['code'],
    }
    for row in played.attempt.trace
  ]
  return [*lines, {'submits': played.submission}]


def main():
  FOLDER.mkdir(exist_ok=True)
  with ExecutionPool(workers=1) as pool:
    for name in CASES:
      rows = ',\n'.join(json.dumps(row) for row in decisions(name, pool))
      (FOLDER / f'{name}.json').write_text(f'[\n{rows}\n]\n')


if __name__ == '__main__':
  main()
