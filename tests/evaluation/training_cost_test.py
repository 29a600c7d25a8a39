"""What the training of a rewriter has cost, read from what its run left."""

import json

from promptrl_jax.evaluation.training_cost import (
  mean_training_calls,
  training_calls,
)


def make_run(workdir, start, rows, place='grpo/seed_0'):
  """A run as `mbpp_grpo` leaves it; returns its model."""
  folder = workdir / place
  (folder / 'model').mkdir(parents=True)
  saved = {'job': 'mbpp_grpo', 'config': {'rewriter': {'model': str(start)}}}
  (workdir / 'config.json').write_text(json.dumps(saved))
  lines = ''.join(f'{json.dumps(row)}\n' for row in rows)
  (folder / 'metrics.jsonl').write_text(lines)
  return folder / 'model'


def test_calls_of_all_trainings_are_counted(tmp_path):
  rows = [{'step': 0, 'budget/calls': 7.0}, {'step': 1, 'budget/calls': 5.0}]
  first = make_run(tmp_path / 'a', 'minicode2_rewriter', rows)
  second = make_run(tmp_path / 'b', first, rows[:1])
  assert training_calls('minicode2_rewriter') == 0
  assert training_calls(str(first)) == 12
  assert training_calls(str(second)) == 19
  models = [str(first), str(second)]
  assert mean_training_calls(models) == 15.5
  assert mean_training_calls([*models, str(tmp_path)]) is None


def test_calls_that_chose_the_problems_are_counted(tmp_path):
  rows = [{'step': 0, 'budget/calls': 7.0}]
  model = make_run(tmp_path, 'minicode2_rewriter', rows)
  (tmp_path / 'solvable.json').write_text('{"calls": 30, "problems": []}')
  assert training_calls(str(model)) == 37


def test_what_is_not_written_down_is_unknown(tmp_path):
  rows = [{'step': 0, 'budget/calls': 7.0}]
  warm = make_run(tmp_path / 'sft', 'minicode2_rewriter', [{'step': 0}], '')
  after = make_run(tmp_path / 'grpo', warm, rows)
  moved = tmp_path / 'rewriter'
  moved.mkdir()
  for model in (warm, after, moved, 'docs/results/minicode2/rewriter'):
    assert training_calls(str(model)) is None


def test_a_run_that_has_not_started_has_no_count(tmp_path):
  assert training_calls(str(make_run(tmp_path, 'x', []))) is None
