"""Whether the taste of a person has changed: a test on what critics expected.

The replay holds what the critics expected of a candidate before its feedback
was known. As long as the taste stays, these errors (see
`objectives.disappointments`) fall or stay; when they rise, what was learned
before is no longer true.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from promptrl_jax.training.gpro.replay import NONE, Array, Replay

FEWEST_RECENT = 8
FEWEST_BEFORE = 20
SETTLING = 20  # queries after a start, whose errors are those of new critics


def change_point(
  errors: jax.Array, order: jax.Array, valid: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Finds the moment since which errors are most clearly larger than before.

    z = (mean after - mean before) / sqrt(v (1 / n_after + 1 / n_before))

  with v the variance within the two parts, for every moment with at least 20
  errors before it and 8 after it. The largest z of all moments is compared
  with a threshold by the caller: the likelihood-ratio test of one change, e.g.
  Hinkley, 1970 (https://doi.org/10.1093/biomet/57.1.1), for rises alone.

  Args:
    errors: `[W]`, absolute errors.
    order: `[W]` int of 0 or more, in which they were made.
    valid: `[W]` bool, errors that count.

  Returns:
    `[]` z, 0 if there is no such moment or errors fall; `[]` int, the order of
    the last error before the change.
  """
  chex.assert_rank([errors, order, valid], 1)
  chex.assert_equal_shape([errors, order, valid])
  rows = jnp.argsort(jnp.where(valid, order, jnp.iinfo(jnp.int32).max))
  values, counts = jnp.where(valid, errors, 0)[rows], valid[rows]
  before, squares, n_before = (
    jnp.cumsum(x) for x in (values, jnp.square(values), counts)
  )
  n_after = n_before[-1] - n_before
  mean_before = before / jnp.maximum(n_before, 1)
  mean_after = (before[-1] - before) / jnp.maximum(n_after, 1)
  within = squares[-1] - (
    n_before * jnp.square(mean_before) + n_after * jnp.square(mean_after)
  )
  variance = within / jnp.maximum(n_before[-1] - 2, 1)
  spread = variance * (
    1 / jnp.maximum(n_before, 1) + 1 / jnp.maximum(n_after, 1)
  )
  z = (mean_after - mean_before) / jnp.sqrt(jnp.maximum(spread, 1e-12))
  allowed = (n_before >= FEWEST_BEFORE) & (n_after >= FEWEST_RECENT) & counts
  z = jnp.where(allowed, z, 0)
  best = jnp.argmax(z)
  return z[best], order[rows][best]


def current(replay: Replay, changed: Array) -> Replay:
  """Returns the replay without feedback from before the taste changed.

  Args:
    changed: `[]` int, the last query before it did.
  """
  is_old = replay.serial <= changed
  return replay._replace(kind=jnp.where(is_old, NONE, replay.kind))
