"""Exchange of rows between the processes of one run.

Every process handles its own block of a global batch (`my_rows`) with its own
models and its own execution pool. Texts stay on the process, and only arrays
are exchanged. In a run of one process, that process owns all rows.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.parallel import mesh as mesh_lib


def my_rows(
  count: int, process: int | None = None, processes: int | None = None
) -> slice:
  """Returns the block of `count` rows that belongs to this process.

  Raises:
    ValueError: `count` is not a multiple of the number of processes.
  """
  process = jax.process_index() if process is None else process
  processes = jax.process_count() if processes is None else processes
  if count % processes:
    raise ValueError(
      f'{count} rows cannot be shared equally by {processes} processes: choose '
      f'a multiple of {processes}'
    )
  size = count // processes
  return slice(process * size, (process + 1) * size)


def global_rows(tree: Any, mesh: Mesh) -> Any:
  """Builds global arrays from the rows of all processes, as `mesh.rows` says.

  If the devices of each process hold exactly its own rows, nothing is sent. If
  the mesh splits rows in another way, every process gathers all rows first: a
  model that is split over hosts needs the same rows on all of them.

  Raises:
    ValueError: N is not a multiple of the number of row shards of the mesh.
  """
  sharding, parts = mesh_lib.rows(mesh), mesh_lib.num_row_shards(mesh)
  count = len(jax.tree.leaves(tree)[0]) * jax.process_count()
  if count % parts:
    raise ValueError(
      f'{count} rows cannot be split over {parts} devices: choose a '
      f'multiple of {parts}'
    )
  parts = sharding.addressable_devices_indices_map((count,)).values()
  held = {row for part in parts if part for row in range(count)[part[0]]}
  if held == set(range(count)[my_rows(count)]):
    return jax.tree.map(
      lambda x: jax.make_array_from_process_local_data(
        sharding, np.asarray(x), (count, *np.shape(x)[1:])
      ),
      tree,
    )
  return jax.tree.map(
    lambda x: jax.make_array_from_callback(x.shape, sharding, x.__getitem__),
    gather_rows(tree),
  )


def gather_rows(tree: Any) -> Any:
  """Copies the rows of all processes to every host as numpy arrays.

  This is meant for small arrays, such as rewards. With several processes the
  arrays pass through JAX, so 64-bit numbers become 32-bit ones.
  """
  if jax.process_count() == 1:
    return jax.tree.map(np.asarray, tree)
  local = jax.tree.map(np.asarray, tree)
  return multihost_utils.process_allgather(local, tiled=True)


def place(tree: Any, shardings: Any) -> Any:
  """Puts arrays that every process holds in full onto the devices.

  They must be the same on every process, which is not checked.
  """
  if jax.process_count() == 1:
    return jax.device_put(tree, shardings)

  def parts(sharding: NamedSharding, part: Any) -> Any:
    return jax.tree.map(
      lambda x: jax.make_array_from_callback(
        np.shape(x), sharding, np.asarray(x).__getitem__
      ),
      part,
    )

  return jax.tree.map(parts, shardings, tree)


def own_copies(tree: Any, mesh: Mesh) -> Any:
  """Returns this process's local replica of globally replicated arrays.

  The process can then compute with the arrays on its own, while a computation
  with the global arrays would need all processes to join. Nothing is copied.

  Raises:
    ValueError: an array is split over processes.
  """
  if jax.process_count() == 1:
    return tree

  def own(x: jax.Array) -> jax.Array:
    spec = getattr(x.sharding, 'spec', P())
    if 'data' in jax.tree.leaves(tuple(spec)):
      raise ValueError(
        f'an array of {x.shape} is split as {x.sharding}: expected all of it '
        'on every process'
      )
    parts = {shard.device: shard.data for shard in x.addressable_shards}
    return jax.make_array_from_single_device_arrays(
      x.shape,
      NamedSharding(mesh, spec),
      [parts[device] for device in mesh.devices.flat],
    )

  return jax.tree.map(own, tree)


def to_host(tree: Any) -> Any:
  """Copies small global arrays to every host, as numpy arrays."""

  def fetch(x: Any) -> np.ndarray:
    # `process_allgather` would concatenate the copies of a local array.
    if not isinstance(x, jax.Array) or x.is_fully_addressable:
      return np.asarray(x)
    return multihost_utils.process_allgather(x, tiled=True)

  return jax.tree.map(fetch, tree)
