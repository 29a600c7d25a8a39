"""Construction of device meshes."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.parallel import mesh as mesh_lib
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


@pytest.mark.parametrize(
  ('environment', 'count'),
  [({}, len(os.sched_getaffinity(0))), ({'JAX_NUM_CPU_DEVICES': '5'}, 5)],
)
def test_each_core_becomes_a_device_unless_a_number_is_set(environment, count):
  done = subprocess.run(
    [sys.executable, '-c', COUNT_DEVICES],
    env={**os.environ, 'JAX_PLATFORMS': 'cpu', **environment},
    capture_output=True,
    text=True,
    check=True,
  )
  assert int(done.stdout) == count


def test_no_text_is_the_data_mesh_and_data_takes_what_others_leave():
  assert mesh_lib.from_text('') == make_data_mesh()
  sizes = lambda text: dict(mesh_lib.from_text(text).shape)
  assert sizes('tensor=1') == {'data': 2, 'fsdp': 1, 'tensor': 1}
  assert sizes('tensor=2') == {'data': 1, 'fsdp': 1, 'tensor': 2}
  assert sizes('data=1,fsdp=2') == {'data': 1, 'fsdp': 2, 'tensor': 1}


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('tensor=4', r'1 x 1 x 4 .* takes 4 devices, there are 2: choose'),
    ('tensor=3', r'1 x 1 x 3 .* takes 3 devices, there are 2: choose'),
    ('data=1', r'1 x 1 x 1 .* takes 1 devices, there are 2: choose'),
    ('model=2', "mesh 'model=2': expected something like"),
  ],
)
def test_a_mesh_that_there_cannot_be_is_refused(text, message):
  with pytest.raises(ValueError, match=message):
    mesh_lib.from_text(text)


def test_rows_are_split_over_data_and_fsdp_but_not_over_tensor():
  for text, count in (('', 2), ('fsdp=2', 2), ('tensor=2', 1)):
    mesh = mesh_lib.from_text(text)
    assert mesh_lib.num_row_shards(mesh) == count
    rows = jax.device_put(jnp.ones((4, 3)), mesh_lib.rows(mesh))
    assert rows.addressable_shards[0].data.shape == (4 // count, 3)
    assert mesh_lib.splits_parameters(mesh) == bool(text)
