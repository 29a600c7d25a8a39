"""The price of divergence from one update to the next.

Each control is `(control, measured_kl, ...) -> control`: the next state from
the last one and the divergence that the last update measured.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class KlControl(NamedTuple):
  """State of a control.

  Attributes:
    coef: [] float32, price in reward per nat.
    step: [] int32, updates it has seen.
  """

  coef: jax.Array
  step: jax.Array


def initial(coef: float) -> KlControl:
  """A control that starts at `coef`."""
  if not coef >= 0:
    raise ValueError(f'KL coefficient {coef}: expected 0 or more')
  return KlControl(jnp.float32(coef), jnp.int32(0))


def fixed(control: KlControl, measured_kl: jax.Array) -> KlControl:
  """Keeps the coefficient."""
  del measured_kl
  return KlControl(control.coef, control.step + 1)


def adaptive(
  control: KlControl,
  measured_kl: jax.Array,
  *,
  target: float,
  gain: float = 0.1,
) -> KlControl:
  """Raises the coefficient while the divergence is above a target.

    e_t = clip((KL_t - target) / target, -0.2, 0.2)
    coef_{t+1} = coef_t (1 + gain e_t)

  See "Fine-Tuning Language Models from Human Preferences", Ziegler et al., 2019
  (https://arxiv.org/abs/1909.08593), section 2.2. A coefficient of 0 stays 0.

  Args:
    control: the state so far.
    measured_kl: scalar, divergence at the last update, in nats and in the unit
      of `target`: per sequence in the paper, or per token.
    target: divergence to hold.
    gain: how fast to react.
  """
  if not target > 0:
    raise ValueError(
      f'KL target {target}: expected a positive number of nats; for no '
      'divergence at all freeze the policy'
    )
  error = jnp.clip((measured_kl - target) / target, -0.2, 0.2)
  return KlControl(control.coef * (1 + gain * error), control.step + 1)


def linear(
  control: KlControl,
  measured_kl: jax.Array,
  *,
  start: float,
  end: float,
  steps: int,
) -> KlControl:
  """Moves the coefficient from `start` to `end` in `steps` updates.

    coef_t = start + (end - start) min(t / steps, 1)

  The counterpart of a linear learning-rate schedule; no paper's.

  Args:
    control: the state so far, of `initial(start)` at first.
    measured_kl: not used.
    start: coefficient at step 0.
    end: coefficient from step `steps` on.
    steps: positive.
  """
  del measured_kl
  if steps < 1:
    raise ValueError(f'steps={steps}: expected at least 1')
  step = control.step + 1
  share = jnp.minimum(step / steps, 1.0)
  return KlControl(jnp.float32((1 - share) * start + share * end), step)
