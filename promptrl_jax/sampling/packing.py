"""What the host says about slots, as one array for each call of the devices.

To put an array on the devices costs a tenth of a millisecond on a CPU whatever
its size, and a decode step of a small model takes a few of them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def pack(rows: Any, *per_group: np.ndarray) -> np.ndarray:
  """Packs arrays whose numbers have 32 bits.

  Args:
    rows: tree of arrays [groups * B].
    per_group: arrays [groups].

  Returns:
    int32 [groups, K], for `unpack`.

  Raises:
    ValueError: an array has numbers of another size.
  """
  groups = len(per_group[0])
  leaves = [*jax.tree.leaves(rows), *per_group]
  if other := [leaf.dtype for leaf in leaves if leaf.itemsize != 4]:
    raise ValueError(f'{other[0]} has not 32 bits')
  return np.concatenate(
    [leaf.view(np.int32).reshape(groups, -1) for leaf in leaves], axis=1
  )


def unpack(
  packed: jax.Array, dtypes: Any, per_group: int
) -> tuple[Any, list[jax.Array]]:
  """Unpacks the arrays of one group.

  Args:
    packed: int32 [1, K].
    dtypes: of the rows, a tree.
    per_group: number of arrays beside the rows.

  Returns:
    The rows, arrays [B], and the others, int32 [1].
  """
  kinds, structure = jax.tree.flatten(dtypes)
  rows, others = jnp.split(packed[0], [packed.shape[1] - per_group])
  leaves = [
    jax.lax.bitcast_convert_type(row, kind)
    for row, kind in zip(jnp.split(rows, len(kinds)), kinds, strict=True)
  ]
  return jax.tree.unflatten(structure, leaves), jnp.split(others, per_group)
