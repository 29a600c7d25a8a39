"""The device mesh of a run."""

from __future__ import annotations

import os

import jax
import numpy as np
from jax.sharding import AxisType, Mesh


def use_cpu_cores() -> None:
  """Makes each CPU core one JAX device; call before JAX is first used.

  A decode step of a small model is a chain of small products. One core per half
  of the batch runs it 1.3 times as fast as two cores that share each product
  (measured at batch 64 on two cores). Accelerators are not affected.
  """
  cores = len(os.sched_getaffinity(0))
  jax.config.update('jax_num_cpu_devices', max(1, cores))


def make_data_mesh() -> Mesh:
  """A mesh of all devices with the single axis `data`."""
  return Mesh(np.asarray(jax.devices()), ('data',), axis_types=(AxisType.Auto,))
