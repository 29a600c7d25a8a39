"""LinUCB: against ridge regression, and learning which action pays."""

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.rl import bandits


def data(count=400, seed=0):
  """Action 0 pays where the feature is negative, action 1 where it is not."""
  rng = np.random.default_rng(seed)
  x = rng.normal(size=(count, 1))
  features = np.concatenate([x, np.ones_like(x)], axis=1)
  actions = rng.integers(2, size=count)
  rewards = np.where(actions == 1, x[:, 0], -x[:, 0])
  return features, actions, rewards, np.ones(count, bool)


def test_it_is_ridge_regression_per_action():
  features, actions, rewards, mask = data()
  bandit = bandits.update(
    bandits.initial(2, 2), features, actions, rewards, mask
  )
  scores = bandits.scores(bandit, jnp.eye(2), 0.0)
  for action in range(2):
    x, y = features[actions == action], rewards[actions == action]
    theta = np.linalg.solve(x.T @ x + np.eye(2), x.T @ y)
    np.testing.assert_allclose(scores[:, action], theta, atol=1e-4)


def test_it_learns_which_action_pays_where():
  bandit = bandits.update(bandits.initial(2, 2), *data())
  best = jax.jit(bandits.scores)(
    bandit, jnp.array([[-1.0, 1.0], [1.0, 1.0]]), 0.0
  ).argmax(axis=1)
  assert best.tolist() == [0, 1]


def test_batches_add_up():
  whole = bandits.update(bandits.initial(2, 2), *data())
  parts = bandits.initial(2, 2)
  for half in (slice(0, 150), slice(150, 400)):
    parts = bandits.update(parts, *(x[half] for x in data()))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3),
    whole,
    parts,
  )


def test_masked_rows_do_not_count():
  features, actions, rewards, mask = data()
  mask[50:] = False
  some = bandits.update(
    bandits.initial(2, 2), features, actions, rewards * 1e3, mask
  )
  first = bandits.update(
    bandits.initial(2, 2),
    *(x[:50] for x in (features, actions, rewards * 1e3, mask)),
  )
  np.testing.assert_allclose(some.response, first.response, rtol=1e-4)


def test_the_bound_shrinks_with_what_was_seen():
  few = bandits.update(bandits.initial(2, 2), *data(20))
  many = bandits.update(bandits.initial(2, 2), *data(400))
  x = jnp.ones((1, 2))

  def width(bandit):
    return bandits.scores(bandit, x, 1.0) - bandits.scores(bandit, x, 0.0)

  assert (width(many) < width(few)).all()
