"""The device mesh of a run.

Axis `data` splits rows, `fsdp` splits rows and parameters, and `tensor` splits
heads, hidden units of the MLP and the vocabulary.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

AXES = ('data', 'fsdp', 'tensor')


def use_cpu_cores() -> None:
  """Makes each CPU core one JAX device; call this before JAX is first used.

  A decode step of a small model is a chain of small matrix products. At batch
  64 on two cores, one core per half of the batch decoded 1.3 times as fast as
  two cores that shared each product. Where the other devices have nothing to
  do, one uses their cores. Accelerators are not affected. With
  `JAX_NUM_CPU_DEVICES=1`, a variable of JAX itself, all cores share each
  product, so that weights are read once a step for all of them.
  """
  if not os.environ.get('JAX_NUM_CPU_DEVICES'):
    cores = len(os.sched_getaffinity(0))
    jax.config.update('jax_num_cpu_devices', max(1, cores))


def make_data_mesh(count: int | None = None) -> Mesh:
  """Returns a mesh of `count` devices (None: all) with the one axis `data`."""
  return _along_data(jax.devices()[:count])


def _along_data(devices: Sequence[Any]) -> Mesh:
  return Mesh(np.asarray(devices), ('data',), axis_types=(AxisType.Auto,))


def make_mesh(
  shape: Mapping[str, int], devices: Sequence[Any] | None = None
) -> Mesh:
  """Returns a mesh with the axes `data`, `fsdp` and `tensor`.

  Args:
    shape: number of devices along each axis. If `data` is missing, it gets all
      devices that the other axes leave over; `fsdp` and `tensor` default to 1.

  Raises:
    ValueError: an axis name is unknown, or the product of the sizes is not the
      number of devices.
  """
  if unknown := sorted(shape.keys() - set(AXES)):
    raise ValueError(f'mesh axis {unknown[0]!r}: expected {", ".join(AXES)}')
  devices = jax.devices() if devices is None else devices
  count = len(devices)
  split = {axis: shape.get(axis, 1) for axis in AXES[1:]}
  data_size = max(1, count // math.prod(split.values()))
  sizes = (shape.get('data', data_size), *split.values())
  if math.prod(sizes) != count:
    raise ValueError(
      f'a mesh of {" x ".join(map(str, sizes))} ({", ".join(AXES)}) takes '
      f'{math.prod(sizes)} devices, there are {count}: choose sizes whose '
      f'product is {count}'
    )
  types = (AxisType.Auto,) * len(AXES)
  return jax.make_mesh(sizes, AXES, axis_types=types, devices=devices)


def from_text(text: str) -> Mesh:
  """Returns the mesh that `parse` reads; all devices along `data` if empty."""
  return make_mesh(parse(text)) if text else make_data_mesh()


def of_process(text: str) -> Mesh:
  """Returns the mesh of `from_text` over the devices of this process only."""
  devices = jax.local_devices()
  return make_mesh(parse(text), devices) if text else _along_data(devices)


def over_processes(mesh: Mesh) -> Mesh:
  """Joins the meshes of all processes along `data`.

  The rows of a process then lie on its own devices, and only the axis `data`
  crosses hosts.

  Raises:
    ValueError: the processes have different numbers of devices.
  """
  if jax.process_count() == 1:
    return mesh
  devices = sorted(jax.devices(), key=lambda d: (d.process_index, d.id))
  if len(devices) != mesh.size * jax.process_count():
    raise ValueError(
      f'process {jax.process_index()} has {mesh.size} devices, all '
      f'{jax.process_count()} processes have {len(devices)}: give each as many'
    )
  sizes = (-1, *mesh.devices.shape[1:])
  return Mesh(
    np.asarray(devices).reshape(sizes),
    mesh.axis_names,
    axis_types=mesh.axis_types,
  )


def splits_parameters(mesh: Mesh) -> bool:
  """Returns whether `mesh` splits parameters, by an axis other than `data`."""
  return mesh.size > mesh.shape['data']


def rows(mesh: Mesh) -> NamedSharding:
  """Returns the sharding that splits rows over the axes `data` and `fsdp`."""
  axes = tuple(axis for axis in ('data', 'fsdp') if axis in mesh.shape)
  return NamedSharding(mesh, P(axes))


def num_row_shards(mesh: Mesh) -> int:
  """Returns the number of parts into which `rows` splits a batch."""
  return mesh.shape['data'] * mesh.shape.get('fsdp', 1)


def parse(text: str) -> dict[str, int]:
  """Parses a description such as `data=2,tensor=4`, or raises a ValueError."""
  shape = {}
  for part in filter(None, text.split(',')):
    axis, _, size = part.partition('=')
    if axis not in AXES or not size.isdecimal() or int(size) < 1:
      raise ValueError(
        f'mesh {text!r}: expected something like data=2,fsdp=2,tensor=4, '
        f'got the part {part!r}'
      )
    shape[axis] = int(size)
  return shape
