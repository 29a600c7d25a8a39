"""What choosing by what is known is worth, on failures of a known kind."""

import numpy as np
import pytest

from promptrl_jax.evaluation import choosing

FAILURES, RUNS = 300, 4


def drawn(chances: np.ndarray) -> np.ndarray:
  """Outcomes [operators, runs, failures] of chances [operators, failures]."""
  draws = np.random.default_rng(1).random((len(chances), RUNS, FAILURES))
  return draws < chances[:, None]


def worth(chances, kinds=None, observations=None):
  noise = np.random.default_rng(2).normal(size=(FAILURES, 40))
  kinds = ['failed'] * FAILURES if kinds is None else kinds
  seen = noise if observations is None else observations
  return choosing.worth(drawn(chances), kinds, seen, resamples=500)


def test_where_one_operator_is_best_for_all_nothing_is_gained():
  found = worth(np.tile([[0.1], [0.3], [0.05]], FAILURES))
  assert found['one']['solved'] == pytest.approx(0.3, abs=0.05)
  for name in ('kind', 'linear', 'problem'):
    assert found[name]['difference'] == pytest.approx(0, abs=0.05)
    assert found[name]['low'] <= 0.01
  text = choosing.to_markdown(found)
  assert not text.endswith('\n')
  assert '| one | ' in text and '| problem | ' in text


def test_a_kind_that_tells_the_best_operator_is_used():
  first = np.arange(FAILURES) % 2 == 0
  chances = np.where(np.stack([first, ~first]), 0.6, 0.05)
  seen = np.stack([first, np.ones(FAILURES)], axis=1).astype(float)
  found = worth(chances, np.where(first, 'error', 'failed'), seen)
  for name in ('kind', 'linear'):
    assert found[name]['solved'] == pytest.approx(0.6, abs=0.05)
    assert found[name]['low'] > 0.2
  assert found['problem']['low'] > 0.15


def test_what_only_other_runs_tell_is_gained_by_problem_alone():
  first = np.random.default_rng(3).random(FAILURES) < 0.5
  found = worth(np.where(np.stack([first, ~first]), 0.8, 0.05))
  assert found['problem']['low'] > 0.2
  assert abs(found['linear']['difference']) < 0.1


def test_too_few_runs_are_refused():
  with pytest.raises(ValueError, match='1 runs of 300 failures: expected'):
    choosing.worth(
      drawn(np.full((2, FAILURES), 0.5))[:, :1],
      ['failed'] * FAILURES,
      np.zeros((FAILURES, 2)),
    )
