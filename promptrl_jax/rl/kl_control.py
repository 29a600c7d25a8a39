"""Schedules of the KL coefficient: fixed, adaptive or linear.

Each controller is a function `(control, measured_kl, ...) -> control` from the
current state and the KL divergence that the last update measured to the next
state.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class KlControl(NamedTuple):
  """State of the KL coefficient.

  Attributes:
    coef: `[]` float32, KL coefficient, in reward per nat.
    step: `[]` int32, number of updates so far.
  """

  coef: jax.Array
  step: jax.Array


def initial(coef: float) -> KlControl:
  """Returns the state before the first update."""
  if not coef >= 0:
    raise ValueError(f'KL coefficient {coef}: expected 0 or more')
  return KlControl(jnp.float32(coef), jnp.int32(0))


def fixed(control: KlControl, measured_kl: jax.Array) -> KlControl:
  """Leaves the coefficient as it is."""
  del measured_kl
  return KlControl(control.coef, control.step + 1)


def adaptive(
  control: KlControl,
  measured_kl: jax.Array,
  *,
  target: float,
) -> KlControl:
  """Raises the coefficient above a target divergence, and lowers it below.

    e_t = clip((KL_t - target) / target, -0.2, 0.2)
    coef_{t+1} = coef_t (1 + 0.1 e_t)

  See "Fine-Tuning Language Models from Human Preferences", Ziegler et al., 2019
  (https://arxiv.org/abs/1909.08593), section 2.2. A coefficient of 0 stays 0.
  Divergences are in nats per sequence (as in the paper) or per token.
  """
  if not target > 0:
    raise ValueError(
      f'KL target {target}: expected a positive number of nats; to forbid '
      'any divergence, freeze the policy'
    )
  error = jnp.clip((measured_kl - target) / target, -0.2, 0.2)
  return KlControl(control.coef * (1 + 0.1 * error), control.step + 1)


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

  Like a linear learning-rate schedule; not from a paper.
  """
  del measured_kl
  if steps < 1:
    raise ValueError(f'steps={steps}: expected at least 1')
  step = control.step + 1
  share = jnp.minimum(step / steps, 1.0)
  return KlControl(jnp.float32((1 - share) * start + share * end), step)
