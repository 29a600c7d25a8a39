"""The device mesh."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.parallel.mesh import make_data_mesh

COUNT_DEVICES = """
from promptrl_jax.parallel.mesh import use_cpu_cores
use_cpu_cores()
import jax
print(jax.device_count())
"""


def test_the_data_axis_holds_every_device_once():
  mesh = make_data_mesh()
  assert mesh.axis_names == ('data',)
  assert sorted(d.id for d in mesh.devices) == list(range(jax.device_count()))


def test_rows_are_split_over_it():
  mesh = make_data_mesh()
  rows = jax.device_put(jnp.ones((4, 3)), NamedSharding(mesh, P('data')))
  shapes = {shard.data.shape for shard in rows.addressable_shards}
  assert shapes == {(4 // jax.device_count(), 3)}


def test_each_core_becomes_a_device():
  done = subprocess.run(
    [sys.executable, '-c', COUNT_DEVICES],
    env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
    capture_output=True,
    text=True,
    check=True,
  )
  assert int(done.stdout) == len(os.sched_getaffinity(0))
