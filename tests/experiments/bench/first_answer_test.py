"""The bench of first answers, with an embedded model."""

import json

import pytest

from tests.experiments import commands


@pytest.mark.slow
@pytest.mark.timed
def test_each_model_answers_twice():
  result = commands.run_fresh(
    'experiments.bench.first_answer', '--models=minicode_coder'
  )
  assert result.returncode == 0, result.stderr[-2000:]
  (line,) = map(json.loads, result.stdout.splitlines())
  assert line['model'] == 'minicode_coder'
  assert 0 < line['warm_s'] < 60 and 0 < line['cold_s'] < 60
  # The second finds the functions in C++ and the programs compiled.
  assert line['warm_s'] < line['cold_s']


@pytest.mark.slow
def test_an_unknown_model_is_one_clear_message():
  result = commands.run_fresh(
    'experiments.bench.first_answer', '--answer=nowhere'
  )
  assert result.returncode != 0 and 'Traceback' not in result.stderr
  assert 'nowhere' in result.stderr
