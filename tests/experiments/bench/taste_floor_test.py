"""A posterior of tastes finds them, and the bench prints its numbers."""

import json

import numpy as np
import pytest

from experiments.bench import taste_floor
from promptrl_jax.envs import simulated_user
from promptrl_jax.envs.simulated_user import SimulatedUser, UserConfig
from promptrl_jax.tasks import queries
from tests.experiments import commands


def test_log_likelihoods_are_those_of_the_ratings():
  config = UserConfig(noise=0.6, slips=0.05)
  table = np.exp(taste_floor._log_likelihood(config))
  np.testing.assert_allclose(table.sum(axis=1), 1.0)
  user, query = SimulatedUser(config, 0), queries.load('train')[0]
  text = 'It depends. First measure it, then decide.'
  satisfaction = user.satisfaction(query, text, 0)
  ratings = [user.rate(query, text, at) for at in range(4000)]
  shares = np.bincount(ratings, minlength=6) / len(ratings)
  expected = table[round(satisfaction * (len(table) - 1))]
  np.testing.assert_allclose(shares, expected, atol=0.03)


def test_the_posterior_finds_a_taste():
  config = UserConfig(noise=0.1, slips=0.0)
  user, rng = SimulatedUser(config, 3), np.random.default_rng(0)
  posterior = taste_floor.Posterior(config, 0)
  (query, *_) = [q for q in queries.load('train') if q.kind == 'opinion']
  kind = queries.KINDS.index(query.kind)
  suits = list(simulated_user.suits(query).values())
  truth = user._of_genomes(query, 0)
  for i in rng.integers(suits[0].shape[1], size=40):
    rating = round(1 + 4 * truth[i])
    posterior.hear(kind, [x[:, i] for x in suits], rating)
  expected = posterior.satisfaction(kind, suits).mean(axis=0)
  assert np.corrcoef(expected, truth)[0, 1] > 0.98
  assert truth[expected.argmax()] > truth.max() - 0.05


@pytest.mark.slow
def test_the_bench_prints_its_numbers():
  result = commands.run(
    'experiments.bench.taste_floor',
    *('--people=2', '--queries=100', '--drift=50', '--level=0'),
  )
  assert result.returncode == 0, result.stderr[-2000:]
  rows = [json.loads(line) for line in result.stdout.splitlines()]
  found = {row['name']: row for row in rows}
  assert found['reached']['mean'] == 25  # The first window is above 0.
  assert 0 < found['last']['low'] <= found['last']['mean'] < 1
  assert 25 <= found['recovery']['mean'] <= 50
