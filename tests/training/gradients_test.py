"""Epochs, minibatches and micro-batches of a loss sum, worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from promptrl_jax.training import gradients
from promptrl_jax.training.state import initial_state

# Rows of unequal weight; the last two hold nothing.
BATCH = {
  'x': np.array([1.0, 2, 3, 4, 5, 6, np.nan, np.nan], np.float32),
  'mask': np.arange(8) < 6,
}


def loss_fn(params, batch):
  """Sum of (w x)^2 / 2 over valid rows."""
  x = jnp.where(batch['mask'], batch['x'], 0.0)
  loss = jnp.sum(jnp.square(params['w'] * x)) / 2
  return loss, (jnp.sum(batch['mask']), {'loss': loss})


def state_of(optimizer):
  return initial_state(lambda _: {'w': 2.0}, optimizer, jax.random.key(0))


@pytest.mark.parametrize('micro_batches', [1, 4, 8])
def test_gradients_of_pieces_are_those_of_the_whole(micro_batches):
  # Ragged on purpose: a mean of the means of the pieces would be wrong.
  grads, count, sums = gradients.accumulate_gradients(
    loss_fn,
    {'w': 2.0},
    BATCH,
    micro_batches,
    lambda piece: ~jnp.any(piece['mask']),
  )
  assert count == 6
  np.testing.assert_allclose(grads['w'], 2 * 91 / 6, rtol=1e-6)
  np.testing.assert_allclose(sums['loss'], 2 * 91, rtol=1e-6)


def test_pieces_that_do_not_divide_a_batch_are_refused():
  with pytest.raises(ValueError, match='a batch of 8 cannot be cut into 3'):
    gradients.accumulate_gradients(loss_fn, {'w': 2.0}, BATCH, 3)


def test_rows_are_dealt_once_per_epoch_and_valid_ones_evenly():
  indices = gradients.deal(
    jax.random.key(0), jnp.asarray(BATCH['mask']), epochs=2, minibatches=2
  )
  assert indices.shape == (4, 4)
  for epoch in (indices[:2], indices[2:]):
    assert sorted(epoch.ravel().tolist()) == list(range(8))
    assert BATCH['mask'][epoch].sum(axis=1).tolist() == [3, 3]
  assert not np.array_equal(indices[:2], indices[2:])


def test_without_shuffling_rows_keep_their_order():
  valid = jnp.asarray([False, True, True, True])
  indices = gradients.deal(
    jax.random.key(0), valid, epochs=1, minibatches=1, shuffle=False
  )
  assert indices.tolist() == [[1, 2, 3, 0]]


def test_one_step_per_minibatch_and_none_without_a_valid_row():
  optimizer = optax.adam(0.1)
  indices = jnp.asarray([[0, 1], [6, 7], [2, 3]])

  def gradient_fn(params, index):
    minibatch = jax.tree.map(lambda x: jnp.asarray(x)[index], BATCH)
    return gradients.accumulate_gradients(loss_fn, params, minibatch, 1)

  state, totals = gradients.take_steps(
    state_of(optimizer), optimizer, gradient_fn, indices
  )
  skipped, _ = gradients.take_steps(
    state_of(optimizer), optimizer, gradient_fn, indices[jnp.asarray([0, 2])]
  )
  assert state.params == skipped.params
  assert int(state.step) == 1
  assert totals.count == 4 and int(state.opt_state[0].count) == 2
  empty, _ = gradients.take_steps(
    state_of(optimizer), optimizer, gradient_fn, indices[1:2]
  )
  assert empty.params['w'] == 2.0 and int(empty.step) == 1
