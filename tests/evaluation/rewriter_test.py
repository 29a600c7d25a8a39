"""One rewrite and one program, beside the direct answer."""

import dataclasses
import re

import numpy as np
import pytest

from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.evaluation import report, rewriter
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.types import Answers, Task

# Even ones say what to do, odd ones say nothing.
TASKS = [
  dataclasses.replace(task, statement=f'Case {k} of the numbers.')
  if k % 2
  else task
  for k, task in enumerate(tiny.tasks(8, 'test'))
]


def write_program(request):
  found = re.search(r'add (\d+)', request.messages[-1].content)
  return f'\n  return x + {found.group(1)}' if found else '\n  return None'


def states(*known):
  """A rewriter that understands the given cases and spoils all else."""

  def answer(request):
    found = re.search(r'Case (\d+)|add (\d+)', request.messages[-1].content)
    number = int(found.group(1) or found.group(2))
    return (
      f' Please add {number} to it.'
      if number in known
      else ' Nobody knows why.'
    )

  return ScriptedBackend(answer)


def play(pool, **rewriters):
  coder = ScriptedBackend(write_program)
  cells = rewriter.play(RewritingEnv(coder, pool), rewriters, TASKS)
  return coder, {cell.strategy: cell for cell in cells}


def test_passes_are_told_problem_by_problem(pool):
  _, cells = play(pool, half=[states(0, 1, 2, 3)], all=[states(*range(8))])
  direct = [k % 2 == 0 for k in range(8)]
  np.testing.assert_array_equal(cells['direct'].passed, [direct])
  np.testing.assert_array_equal(cells['half'].passed, [[1] * 4 + [0] * 4])
  np.testing.assert_array_equal(cells['all'].passed, [[1] * 8])
  assert list(cells) == ['direct', 'half', 'all']


def test_a_rewrite_is_asked_first_and_both_calls_are_greedy(pool):
  model = states(1)
  coder, cells = play(pool, one=[model])
  assert (cells['direct'].calls == 1).all() and (cells['one'].calls == 2).all()
  assert (cells['one'].attempts == 1).all()
  assert len(model.batches) == 1 and len(coder.batches) == 2
  for backend in (model, coder):
    assert all(r.temperature == 0 for batch in backend.batches for r in batch)
  assert '#' not in ''.join(model.prompts)  # no feedback: nothing has run


def test_no_model_reads_a_hidden_test(pool):
  model = states(1)
  coder, _ = play(pool, one=[model])
  for task, prompt in zip(TASKS, coder.prompts, strict=False):
    assert task.tests[0] in prompt
    assert not any(hidden in prompt for hidden in task.tests[1:])
  assert not any('assert' in prompt for prompt in model.prompts)


def test_seeds_are_rows_and_the_report_pairs_them(pool):
  _, cells = play(pool, ours=[states(*range(8)), states(0, 1, 2, 3, 4, 5)])
  assert cells['ours'].passed.shape == (2, 8)
  summary = report.summarise(
    list(cells.values()), subject='ours', resamples=200
  )
  (comparison,) = summary['comparisons']
  assert comparison['other'] == 'direct'
  assert comparison['pass']['difference'] == pytest.approx(7 / 8 - 1 / 2)
  # d = (0, 1, 0, 1, 0, 1, -1/2, 1/2): of its sign patterns 6 in 32 reach |3|.
  assert comparison['pass']['p'] == pytest.approx(6 / 32)


def test_names_must_make_sense(pool):
  env = RewritingEnv(ScriptedBackend(write_program), pool)
  with pytest.raises(ValueError, match="called 'direct'"):
    rewriter.play(env, {'direct': [states()]}, TASKS)
  with pytest.raises(ValueError, match="'ours' has no model"):
    rewriter.play(env, {'ours': []}, TASKS)


def test_questions_are_scored_by_their_metric():
  tasks = [
    Task(f'q/{k}', f'Capital number {k}?', Answers((f'city {k}',), 'f1'))
    for k in range(3)
  ]
  answers = ['city 0', 'village 1', '']
  frozen = ScriptedBackend(
    lambda r: (
      answers[int(r.messages[0].content[-2])]
      if r.messages[0].content.startswith('Which')
      else ''
    )
  )
  model = ScriptedBackend(
    lambda r: f'Which one is {r.messages[0].content[-2]}?'
  )
  cells = rewriter.play(RewritingEnv(frozen, None), {'ours': [model]}, tasks)
  direct, ours = cells
  np.testing.assert_array_equal(direct.soft, [[0.0, 0.0, 0.0]])
  np.testing.assert_array_equal(ours.soft, [[1.0, 0.5, 0.0]])
  np.testing.assert_array_equal(ours.passed, [[True, False, False]])
  assert (ours.calls == 2).all()


def test_a_statement_that_the_rewriter_has_no_room_for_stays(pool):
  model = ScriptedBackend(lambda r: ' Nobody knows why.', prompt_limit=1)
  _, cells = play(pool, ours=[model])
  np.testing.assert_array_equal(cells['ours'].passed, cells['direct'].passed)
  assert (cells['ours'].calls == 1).all() and not model.batches[0]
