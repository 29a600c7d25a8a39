"""Updates of the parameters of a reference policy.

A frozen reference needs no update, and neither does the model without its
adapter. Both functions take and return parameter trees of one structure and
keep the dtypes of the reference.
"""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp

Params = TypeVar('Params')


def ema(reference: Params, params: Params, decay: float) -> Params:
  """Returns an exponential moving average of the parameters.

    ref <- decay * ref + (1 - decay) * params

  A "mean teacher" (https://arxiv.org/abs/1703.01780). With constant parameters
  the distance to them is decay^n of the first one after n updates.

  Raises:
    ValueError: the reference is narrower than float32, so that a step of
      (1 - decay) times a small difference would round to 0.
  """
  if not 0 <= decay <= 1:
    raise ValueError(f'decay={decay}: expected 0 to 1')

  def blend(path, old, new):
    if old.dtype not in (jnp.float32, jnp.float64):
      raise ValueError(
        f'reference parameter {jax.tree_util.keystr(path)} is {old.dtype}: a '
        'moving average in it would not move; keep the reference in float32'
      )
    return decay * old + (1 - decay) * new.astype(old.dtype)

  return jax.tree_util.tree_map_with_path(blend, reference, params)


def copy_every(
  reference: Params, params: Params, step: int | jax.Array, every: int
) -> Params:
  """Returns the parameters every `every` updates, else the reference.

    ref <- params if step mod every = 0, else ref

  The target network of "Human-level control through deep reinforcement
  learning", Mnih et al., 2015 (https://doi.org/10.1038/nature14236). The step
  is 1 after the first update.
  """
  if every < 1:
    raise ValueError(f'every={every}: expected at least 1')
  is_due = jnp.asarray(step) % every == 0
  return jax.tree.map(
    lambda old, new: jnp.where(is_due, new.astype(old.dtype), old),
    reference,
    params,
  )
