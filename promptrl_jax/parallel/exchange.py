"""Rows between processes: each handles its own, and only arrays travel.

A process takes its block of a global batch (`my_rows`), asks its own models and
its own pool about it, and hands in arrays: `global_rows` makes one sharded
array of what all processes hold, `gather_rows` and `to_host` bring small arrays
to every process.

  mine = my_rows(len(statements))
  rewards = gather_rows(reward(statements[mine]))  # [len(statements)]

In a run of one process all rows are its own.
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
  """Which of `count` rows are this process' own: one block, in order.

  Args:
    count: rows of the global batch; see `pad_rows` for what does not divide.
    process, processes: another process than this one.

  Raises:
    ValueError: `count` is not a multiple of the processes.
  """
  process = jax.process_index() if process is None else process
  processes = jax.process_count() if processes is None else processes
  if count % processes:
    raise ValueError(
      f'{count} rows cannot be shared equally by {processes} processes: choose '
      f'a multiple of {processes}, or fill up with pad_rows'
    )
  size = count // processes
  return slice(process * size, (process + 1) * size)


def pad_rows(tree: Any, multiple: int) -> tuple[Any, np.ndarray]:
  """Fills up rows to a multiple; copies of row 0 are finite wherever it is.

  Args:
    tree: arrays [N, ...] with the same N of at least 1.
    multiple: what the rows are to be a multiple of.

  Returns:
    The arrays [M, ...], and bool [M], False for the filling.
  """
  count = len(jax.tree.leaves(tree)[0])
  extra = -count % multiple
  take = np.concatenate([np.arange(count), np.zeros(extra, int)])
  filled = jax.tree.map(lambda x: np.asarray(x)[take], tree)
  return filled, np.arange(count + extra) < count


def global_rows(tree: Any, mesh: Mesh) -> Any:
  """Arrays of all processes' rows, split over the mesh as `mesh.rows` says.

  Where the devices of a process hold just its own rows nothing travels; where
  a mesh splits rows in another way (a model split over hosts needs the same
  rows on all of them) every process gets all rows first.

  Args:
    tree: arrays [N / processes, ...], the rows of `my_rows(N)`.
    mesh: of all devices.

  Raises:
    ValueError: N is not a multiple of what the mesh splits rows into.
  """
  sharding, parts = mesh_lib.rows(mesh), mesh_lib.num_row_shards(mesh)
  count = len(jax.tree.leaves(tree)[0]) * jax.process_count()
  if count % parts:
    raise ValueError(
      f'{count} rows cannot be split over {parts} devices: choose a '
      f'multiple of {parts}, or fill up with pad_rows'
    )
  if _held(sharding, count) == set(range(count)[my_rows(count)]):
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


def _held(sharding: NamedSharding, count: int) -> set[int]:
  """Which of `count` rows lie on the devices of this process."""
  parts = sharding.addressable_devices_indices_map((count,)).values()
  return {row for part in parts if part for row in range(count)[part[0]]}


def gather_rows(tree: Any) -> Any:
  """All processes' rows on every host; for small arrays, such as rewards.

  They travel as JAX arrays do: 64-bit numbers become 32-bit ones.

  Args:
    tree: arrays [N / processes, ...], the rows of `my_rows(N)`.

  Returns:
    numpy arrays [N, ...].
  """
  if jax.process_count() == 1:
    return jax.tree.map(np.asarray, tree)
  local = jax.tree.map(np.asarray, tree)
  return multihost_utils.process_allgather(local, tiled=True)


def place(tree: Any, shardings: Any) -> Any:
  """Arrays that all processes hold alike, put where they belong.

  Args:
    tree: the same on every process, which is not checked.
    shardings: one for each array, or one for all of a part of the tree.
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
  """The copies that this process holds of arrays that every process has whole.

  What it computes with them concerns no other process: it may do so as often
  as it likes. Nothing is copied.

  Args:
    tree: arrays on `mesh.over_processes(mesh)`, maybe split over the devices of
      a process, and in the same way on each.
    mesh: of the devices of this process.

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
  """Global arrays as numpy on every host; for small ones."""

  def fetch(x: Any) -> np.ndarray:
    # Of an array that is here in full, the copies would be laid end to end.
    if not isinstance(x, jax.Array) or x.is_fully_addressable:
      return np.asarray(x)
    return multihost_utils.process_allgather(x, tiled=True)

  return jax.tree.map(fetch, tree)
