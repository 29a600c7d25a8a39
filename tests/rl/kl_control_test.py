"""Schedules of the KL coefficient: by hand, and holding a target."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.rl import kl_control


def test_fixed_stays():
  control = kl_control.fixed(kl_control.initial(0.04), jnp.float32(9.0))
  np.testing.assert_allclose(control.coef, 0.04, rtol=1e-6)
  assert control.step == 1


@pytest.mark.parametrize(
  ('measured', 'factor'),
  [
    (6.6, 1.01),
    (5.4, 0.99),
    (6.0, 1.0),
    (60.0, 1.02),
    (0.0, 0.98),
    (float('inf'), 1.02),
  ],
)
def test_adaptive_by_hand(measured, factor):
  control = jax.jit(kl_control.adaptive, static_argnames='target')(
    kl_control.initial(0.2), jnp.float32(measured), target=6.0
  )
  np.testing.assert_allclose(control.coef, 0.2 * factor, rtol=1e-6)
  assert control.step == 1


def test_adaptive_holds_a_target():
  # A policy whose divergence falls as the coefficient rises: KL = 1 / coef.
  def update(control, _):
    control = kl_control.adaptive(control, 1 / control.coef, target=4.0)
    return control, None

  control, _ = jax.lax.scan(update, kl_control.initial(0.01), None, 400)
  np.testing.assert_allclose(control.coef, 0.25, rtol=1e-3)


def test_linear_ends_where_it_should():
  update = functools.partial(kl_control.linear, start=0.1, end=0.01, steps=4)
  control, coefs = kl_control.initial(0.1), []
  for _ in range(6):
    control = update(control, jnp.float32(0.0))
    coefs.append(control.coef)
  expected = [0.0775, 0.055, 0.0325, 0.01, 0.01, 0.01]
  np.testing.assert_allclose(coefs, expected, rtol=1e-5)


def test_states_keep_their_types_in_a_scan():
  def update(control, measured):
    control = kl_control.fixed(control, measured)
    control = kl_control.adaptive(control, measured, target=1.0)
    return kl_control.linear(control, measured, start=1, end=0, steps=8), None

  control, _ = jax.lax.scan(update, kl_control.initial(1), jnp.ones(2))
  assert control.step == 6
  np.testing.assert_allclose(control.coef, 0.25)
  batched = jax.vmap(lambda x: kl_control.fixed(kl_control.initial(0.1), x))
  np.testing.assert_allclose(batched(jnp.ones(3)).coef, 0.1)


def test_bad_settings_are_refused():
  control, measured = kl_control.initial(0.1), jnp.float32(1.0)
  for bad in (-0.1, float('nan')):
    with pytest.raises(ValueError, match='KL coefficient'):
      kl_control.initial(bad)
  with pytest.raises(ValueError, match='KL target 0'):
    kl_control.adaptive(control, measured, target=0)
  with pytest.raises(ValueError, match='steps=0'):
    kl_control.linear(control, measured, start=1, end=0, steps=0)
