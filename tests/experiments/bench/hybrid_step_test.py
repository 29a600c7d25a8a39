"""The bench of a step of the hybrid job measures all three parts."""

import json

import pytest

from tests.experiments import commands


@pytest.mark.slow
def test_a_step_is_timed_without_the_model():
  result = commands.run('experiments.bench.hybrid_step', '--queries=60')
  assert result.returncode == 0, result.stderr[-2000:]
  found = json.loads(result.stdout)
  assert found.keys() == {'step_ms', 'answers_ms', 'update_ms'}
  assert min(found.values()) > 0


@pytest.mark.slow
def test_an_impossible_number_of_questions_is_refused():
  result = commands.run('experiments.bench.hybrid_step', '--queries=5')
  assert result.returncode != 0
  assert '--queries=5: 5 is not integer >= 60' in result.stderr
