"""The optimizer: clip, schedule, Adam and Muon."""

import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.training import optim
from promptrl_jax.training.optim import OptimizerConfig


def test_gradients_are_clipped_before_the_step():
  # Adam forgets the scale of its first gradient unless epsilon is large.
  optimizer = optim.make_optimizer(
    OptimizerConfig(lr=1.0, max_grad_norm=0.5, clip='global', epsilon=1.0), 1
  )
  params = {'w': jnp.zeros(1)}
  update, _ = optimizer.update(
    {'w': jnp.full(1, 100.0)}, optimizer.init(params), params
  )
  np.testing.assert_allclose(update['w'], -0.5 / (0.5 + 1.0), rtol=1e-5)


@pytest.mark.parametrize(
  ('decay', 'expected'),
  [('linear', [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]), ('constant', [1.0] * 6)],
)
def test_learning_rate_is_linear_or_constant(decay, expected):
  config = OptimizerConfig(lr=1.0, decay=decay, max_grad_norm=None)
  optimizer = optim.make_optimizer(config, 4)
  params = {'w': jnp.zeros(1)}
  opt_state = optimizer.init(params)
  sizes = []
  for _ in expected:
    # A constant gradient makes each Adam step as long as the rate.
    update, opt_state = optimizer.update({'w': jnp.ones(1)}, opt_state, params)
    sizes.append(-float(update['w'][0]))
  np.testing.assert_allclose(sizes, expected, atol=1e-4)


def test_each_collection_has_a_norm_of_its_own():
  config = OptimizerConfig(lr=1.0, max_grad_norm=2.0)
  clip = optim.make_optimizer(config, 10)
  tree = {'params': {'x': jnp.ones(4)}, 'value': {'y': jnp.ones(4)}}
  gradients = {
    'params': {'x': jnp.full(4, 0.5)},
    'value': {'y': jnp.full(4, 9.0)},
  }
  state = clip.init(tree)
  _, state = clip.update(gradients, state, tree)
  mu = state[1][0].mu  # a tenth of the clipped gradient
  np.testing.assert_allclose(mu['params']['x'], 0.05, rtol=1e-5)
  np.testing.assert_allclose(mu['value']['y'], 0.1, rtol=1e-5)


def test_the_rate_rises_from_the_first_step_on_and_falls_to_0():
  for decay, last in (('linear', 0.0), ('constant', 1.0)):
    rate = optim.schedule(1.0, 7, warmup=3, decay=decay)
    assert [rate(i) for i in range(4)] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert rate(7) == pytest.approx(last)
  assert optim.schedule(1.0, 5)(0) == 1.0
  from_zero = optim.schedule(1.0, 5, warmup=2, decay='linear', start=0.0)
  assert [from_zero(i) for i in range(3)] == pytest.approx([0.0, 0.5, 1.0])


def test_muon_changes_matrices_and_adam_the_rest():
  config = OptimizerConfig(lr=0.0, muon_lr=1.0, warmup=1, clip='global')
  optimizer = optim.make_optimizer(config, 10)
  tree = {'layers': {'out': jnp.ones((2, 3, 4)), 'norm': jnp.ones((2, 3))}}
  state = optimizer.init(tree)
  for _ in range(2):  # the rate of the first step is 0
    updates, state = optimizer.update(tree, state, tree)
  assert (updates['layers']['out'] != 0).all()
  assert (updates['layers']['norm'] == 0).all()


@pytest.mark.parametrize(
  ('settings', 'message'),
  [({'decay': 'cosine'}, "decay='cosine'"), ({'clip': 'rows'}, "clip='rows'")],
)
def test_bad_settings_are_named(settings, message):
  with pytest.raises(ValueError, match=message):
    OptimizerConfig(**settings)
