"""Tests of `parallel.exchange` on two real processes and on one."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

from promptrl_jax.parallel import exchange
from promptrl_jax.parallel import mesh as mesh_lib
from tests.parallel import processes

SHARING = """
import json
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from promptrl_jax.parallel import exchange
from promptrl_jax.parallel import mesh as mesh_lib

with distributed.session(config):
  outputs = {'process': jax.process_index()}
  rows = np.arange(24.0).reshape(8, 3)
  mine = exchange.my_rows(8)
  for text in ('', 'fsdp=2', 'tensor=2', 'tensor=4'):
    mesh = mesh_lib.from_text(text)
    array = exchange.global_rows({'x': rows[mine]}, mesh)['x']
    assert array.sharding.is_equivalent_to(mesh_lib.rows(mesh), 2), text
    shards = [np.asarray(s.data) for s in array.addressable_shards]
    sizes = {len(shard) for shard in shards}
    assert sizes == {8 // mesh_lib.num_row_shards(mesh)}
    total = jax.jit(lambda x: jnp.sum(x * jnp.arange(8.0)[:, None]))(array)
    outputs[text] = [float(total), exchange.to_host(array).tolist()]
  for text in ('', 'tensor=2'):
    local = mesh_lib.of_process(text)
    mesh = mesh_lib.over_processes(local)
    assert set(local.devices.flat) == set(jax.local_devices())
    assert mesh.shape['data'] == 2 * local.shape['data']
    array = exchange.global_rows(rows[mine], mesh)
    starts = {s.index[0].start or 0 for s in array.addressable_shards}
    assert min(starts) == mine.start, (text, starts)
    assert max(starts) < mine.stop, (text, starts)
    replicated_spec = NamedSharding(mesh, PartitionSpec())
    replicated = exchange.place({'x': rows}, replicated_spec)
    own = exchange.own_copies(replicated, local)['x']
    # A process may compute with it though the other does not.
    if distributed.is_first():
      outputs['own ' + text] = jax.jit(lambda x: x + 1)(own).tolist()
  try:
    exchange.own_copies(array, local)
  except ValueError as error:
    outputs['split'] = str(error)
  outputs['gathered'] = exchange.gather_rows(rows[mine] + 1).tolist()
  try:
    exchange.my_rows(7)
  except ValueError as error:
    outputs['unequal'] = str(error)
  print(json.dumps(outputs))
"""


@pytest.fixture(scope='module')
def shared():
  done = processes.run(SHARING, 2, devices=2)
  assert [d.returncode for d in done] == [0, 0], processes.report(done)
  return [json.loads(d.stdout.splitlines()[-1]) for d in done]


@pytest.mark.parametrize('text', ['', 'fsdp=2', 'tensor=2', 'tensor=4'])
def test_rows_of_two_processes_make_one_array_on_every_mesh(shared, text):
  rows = np.arange(24.0).reshape(8, 3)
  for outputs in shared:
    total, array = outputs[text]
    assert total == (rows * np.arange(8)[:, None]).sum()
    np.testing.assert_array_equal(array, rows)


def test_rows_are_gathered_in_order_on_every_process(shared):
  for outputs in shared:
    expected = np.arange(24.0).reshape(8, 3) + 1
    np.testing.assert_array_equal(outputs['gathered'], expected)


def test_a_process_computes_alone_with_its_copies(shared):
  rows = np.arange(24.0).reshape(8, 3)
  for text in ('', 'tensor=2'):
    np.testing.assert_array_equal(shared[0]['own ' + text], rows + 1)
  for outputs in shared:
    assert outputs['split'].startswith('an array of (8, 3) is split')


def test_rows_that_do_not_divide_are_refused(shared):
  for outputs in shared:
    assert outputs['unequal'].startswith('7 rows cannot be shared equally by 2')


def test_one_process_holds_all_rows():
  mesh = mesh_lib.make_data_mesh()
  array = exchange.global_rows(np.arange(4), mesh)
  assert exchange.my_rows(3) == slice(0, 3)
  assert mesh_lib.over_processes(mesh) is mesh == mesh_lib.of_process('')
  tree = {'x': np.arange(3)}
  assert exchange.own_copies(tree, mesh) is tree
  replicated = exchange.place(tree, NamedSharding(mesh, PartitionSpec()))['x']
  assert replicated.is_fully_replicated
  assert len(replicated.devices()) == 2
  np.testing.assert_array_equal(exchange.to_host(array), range(4))
  np.testing.assert_array_equal(exchange.gather_rows([1, 2]), [1, 2])
  with pytest.raises(ValueError, match='3 rows cannot be split over 2 devices'):
    exchange.global_rows(np.arange(3), mesh)


@given(st.integers(0, 9), st.integers(1, 9))
def test_blocks_of_processes_cover_all_rows_once_and_in_order(size, processes):
  rows = np.arange(size * processes)
  blocks = [
    rows[exchange.my_rows(len(rows), i, processes)] for i in range(processes)
  ]
  assert {len(block) for block in blocks} == {size}
  np.testing.assert_array_equal(np.concatenate(blocks), rows)
