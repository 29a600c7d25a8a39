"""Linear bandits: against ridge regression, and learning which action pays."""

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.rl import bandits
from promptrl_jax.strategies import policies


def data(count=400, seed=0):
  """Action 0 pays where the feature is negative, action 1 where it is not."""
  rng = np.random.default_rng(seed)
  x = rng.normal(size=(count, 1))
  features = np.concatenate([x, np.ones_like(x)], axis=1)
  actions = rng.integers(2, size=count)
  rewards = np.where(actions == 1, x[:, 0], -x[:, 0])
  return features, actions, rewards, np.ones(count, bool)


def learned(*rows):
  return bandits.posterior(bandits.update(bandits.initial(2, 2), *rows))


def test_it_is_ridge_regression_per_action():
  features, actions, rewards, mask = data()
  posterior = learned(features, actions, rewards, mask)
  scores = bandits.scores(posterior, jnp.eye(2), 0.0)
  for action in range(2):
    x, y = features[actions == action], rewards[actions == action]
    theta = np.linalg.solve(x.T @ x + np.eye(2), x.T @ y)
    np.testing.assert_allclose(scores[:, action], theta, atol=1e-4)
    np.testing.assert_allclose(posterior.theta[action], theta, atol=1e-4)


def test_it_learns_which_action_pays_where():
  posterior = learned(*data())
  seen = np.array([[-1.0, 1.0], [1.0, 1.0]])
  best = jax.jit(bandits.scores)(posterior, jnp.asarray(seen), 0.0).argmax(1)
  assert best.tolist() == [0, 1]
  policy = policies.linear(np.asarray(posterior.theta))
  allowed = np.ones((2, 2), bool)
  assert policy(seen, allowed, 0).actions.tolist() == [0, 1]
  allowed[1, 1] = False
  assert policy(seen, allowed, 0).actions.tolist() == [0, 0]


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
  x = jnp.ones((1, 2))

  def width(posterior):
    return bandits.scores(posterior, x, 1.0) - bandits.scores(posterior, x, 0.0)

  assert (width(learned(*data(400))) < width(learned(*data(20)))).all()


def test_thompson_scores_are_drawn_from_the_posterior():
  """Against parameters drawn by numpy, as the paper has them."""
  features, actions, rewards, mask = data(30)
  posterior = learned(features, actions, rewards, mask)
  x, count, scale = np.array([0.7, 1.0]), 40_000, 0.5
  scores = bandits.thompson_scores(
    posterior, jnp.tile(x, (count, 1)), scale, jax.random.key(0)
  )
  for action in range(2):
    seen, y = features[actions == action], rewards[actions == action]
    covariance = np.linalg.inv(seen.T @ seen + np.eye(2))
    theta = np.random.default_rng(1).multivariate_normal(
      covariance @ seen.T @ y, scale**2 * covariance, count
    )
    expected = theta @ x
    deviation = expected.std()
    error = 5 * deviation / count**0.5
    np.testing.assert_allclose(
      scores[:, action].mean(), expected.mean(), atol=2 * error
    )
    np.testing.assert_allclose(scores[:, action].std(), deviation, rtol=0.03)
  assert abs(np.corrcoef(scores.T)[0, 1]) < 0.03  # The models are disjoint.


def test_thompson_policy_is_reproducible_and_explores():
  nothing = bandits.posterior(bandits.initial(2, 2))
  policy = policies.thompson(nothing, 1.0, jax.random.key(3))
  seen, allowed = np.ones((2000, 2), np.float32), np.ones((2000, 2), bool)
  first = policy(seen, allowed, 0).actions
  np.testing.assert_array_equal(first, policy(seen, allowed, 0).actions)
  assert (first != policy(seen, allowed, 1).actions).any()
  assert 0.45 < first.mean() < 0.55  # Nothing is known yet.
  allowed[:, 1] = False
  assert not policy(seen, allowed, 0).actions.any()
