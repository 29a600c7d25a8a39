"""The train state: what a learner carries from one update to the next.

A checkpoint holds the state and nothing else of a learner. Randomness is not a
stream that advances: each use folds the step number and its own name into one
base key, so that a resumed run draws what the uninterrupted run draws.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax

Params = Any
Row = dict[str, float]  # metrics by name
InitFn = Callable[[jax.Array], Params]


@flax.struct.dataclass
class TrainState:
  """Learner state, a pytree of plain arrays.

  Attributes:
    step: `[]` int32, updates done; one update consumes one rollout.
    key_data: `[...]` uint32, data of the base key, which never changes.
  """

  params: Params
  opt_state: optax.OptState
  step: jax.Array
  key_data: jax.Array


def initial_state(
  init_fn: InitFn, optimizer: optax.GradientTransformation, key: jax.Array
) -> TrainState:
  """Builds the state of step 0; pure, so that `jax.eval_shape` can trace it.

  The typed key (`jax.random.key(seed)`) is consumed; it becomes the base key.
  """
  init_key, base_key = jax.random.split(key)
  params = init_fn(init_key)
  return TrainState(
    params=params,
    opt_state=optimizer.init(params),
    step=jnp.zeros((), jnp.int32),
    key_data=jax.random.key_data(base_key),
  )


def create_train_state(
  init_fn: InitFn, optimizer: optax.GradientTransformation, key: jax.Array
) -> TrainState:
  """Creates an `initial_state` on its device, without a copy on the host."""
  build = functools.partial(initial_state, init_fn, optimizer)
  return jax.jit(build)(key)


def step_key(state: TrainState, purpose: str) -> jax.Array:
  """Returns the key of this step for one purpose, e.g. 'rollout'.

  Two purposes get independent keys.
  """
  key = jax.random.wrap_key_data(state.key_data)
  key = jax.random.fold_in(key, state.step)
  return jax.random.fold_in(key, zlib.crc32(purpose.encode()))


def state_shardings(
  params: Params, optimizer: optax.GradientTransformation, replicated: Any
) -> TrainState:
  """Returns the shardings of a train state.

  Optimizer moments lie where their parameters lie, `params` being arrays on the
  devices where they belong; everything else is `replicated`.
  """
  shardings = jax.tree.map(lambda x: x.sharding, params)
  return TrainState(
    params=shardings,
    opt_state=optax.tree.map_params(
      optimizer,
      lambda _, sharding: sharding,
      jax.eval_shape(optimizer.init, params),
      shardings,
      transform_non_params=lambda _: replicated,
    ),
    step=replicated,
    key_data=replicated,
  )
