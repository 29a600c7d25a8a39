"""Reference policies: closed forms, dtypes, and refused input."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.rl import reference

OLD = {'dense': {'kernel': jnp.zeros((2, 3))}, 'bias': jnp.full(3, 2.0)}
NEW = {'dense': {'kernel': jnp.ones((2, 3))}, 'bias': jnp.full(3, -2.0)}


def test_average_of_constants_has_its_closed_form():
  def update(tree, _):
    return reference.ema(tree, NEW, 0.9), None

  tree, _ = jax.lax.scan(update, OLD, None, 20)
  expected = jax.tree.map(lambda x, y: y + 0.9**20 * (x - y), OLD, NEW)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), tree, expected
  )


def test_decay_is_the_weight_of_the_old_reference():
  for decay, expected in ((1.0, OLD), (0.0, NEW)):
    result = reference.ema(OLD, NEW, decay)
    jax.tree.map(np.testing.assert_array_equal, result, expected)


def test_a_wide_reference_follows_narrow_parameters():
  narrow = jax.tree.map(lambda x: x.astype(jnp.bfloat16), NEW)
  result = reference.ema(OLD, narrow, 0.999)
  assert result['bias'].dtype == jnp.float32
  np.testing.assert_allclose(result['bias'], 2 - 0.004, rtol=1e-6)


def test_a_narrow_reference_is_refused():
  narrow = {'dense': {'kernel': jnp.ones(2, jnp.bfloat16)}}
  with pytest.raises(ValueError, match=r"\['kernel'\] is bfloat16.*float32"):
    reference.ema(narrow, narrow, 0.999)


@pytest.mark.parametrize(('step', 'copied'), [(1, False), (3, True), (6, True)])
def test_copies_every_n_updates(step, copied):
  update = jax.jit(reference.copy_every, static_argnames='every')
  result = update(OLD, NEW, step, every=3)
  jax.tree.map(np.testing.assert_array_equal, result, NEW if copied else OLD)


def test_a_copy_keeps_the_types_of_the_reference():
  narrow = jax.tree.map(lambda x: x.astype(jnp.bfloat16), OLD)
  result = reference.copy_every(narrow, NEW, 1, 1)
  assert result['bias'].dtype == jnp.bfloat16
  np.testing.assert_array_equal(result['bias'], -2.0)


def test_bad_settings_are_refused():
  with pytest.raises(ValueError, match='decay=1.5'):
    reference.ema(OLD, NEW, 1.5)
  with pytest.raises(ValueError, match='every=0'):
    reference.copy_every(OLD, NEW, 1, 0)
  with pytest.raises(ValueError):
    reference.ema(OLD, {'bias': NEW['bias']}, 0.9)
