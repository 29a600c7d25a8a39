"""Numbers of learning from people, by hand."""

import json

import numpy as np
import pytest

from promptrl_jax.evaluation import regret


def test_constant_regret_grows_linearly_and_falling_regret_does_not():
  t = np.arange(1, 401)
  flat, falling = np.full(400, 0.3), 0.3 / np.sqrt(t)
  linear, root = regret.exponents(np.array([flat, falling]))
  assert linear == pytest.approx(1.0)
  assert 0.45 < root < 0.65  # the sum of 1 / sqrt(t) grows like sqrt(t)


def test_recovery_counts_from_the_change():
  satisfaction = np.full((2, 200), 0.8)
  satisfaction[:, 100:130] = 0.2
  # A window of 25 is above 0.72 as long as at most 3 of it are bad: 0.728.
  found = regret.recovery(satisfaction, 100, resamples=50)
  assert found == {'mean': 52, 'low': 52, 'high': 52}
  satisfaction[1, 130:140] = 0.2
  found = regret.recovery(satisfaction, 100, resamples=500)
  # Both people, the first alone, or the second alone.
  assert (found['low'], found['high']) == (52, 62) and 52 < found['mean'] < 62
  satisfaction[:, 100:] = 0.2
  assert regret.recovery(satisfaction, 100, resamples=50)['mean'] == 100
  with pytest.raises(ValueError, match='drift=190 of 200'):
    regret.recovery(satisfaction, 190)


def test_a_summary_compares_the_same_people():
  rng = np.random.default_rng(0)
  base = rng.uniform(0.3, 0.5, (10, 100))
  runs = {
    name: {
      'satisfaction': base + bonus,
      'best': np.full((10, 100), 0.9),
      'best_static': np.full(10, 0.6),
    }
    for name, bonus in (('plain', 0.0), ('better', 0.1))
  }
  found = regret.summarise(runs, subject='better', resamples=200)
  row = found['methods']['plain']
  assert row['difference']['mean'] == pytest.approx(0.1)
  assert row['difference']['p'] == pytest.approx(2 / 2**10)
  assert row['regret']['mean'] == pytest.approx((0.9 - base).sum() / 10)
  assert 'difference' not in found['methods']['better']
  table = regret.to_markdown(json.loads(json.dumps(found)))
  assert '| plain | 0.' in table and '| 0.0020 |' in table


def test_curves_are_drawn(tmp_path):
  path = regret.draw(
    tmp_path / 'x.png', {'a': np.ones((2, 30)), 'b': np.ones((1, 30))}, 'T', 'y'
  )
  assert path.stat().st_size > 5000
  with pytest.raises(ValueError, match='expected finite numbers'):
    regret.draw(tmp_path / 'y.png', {'a': np.ones(3)}, 'T', 'y')
