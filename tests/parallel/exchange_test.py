"""Rows of real processes become one array, and come back in order."""

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
  found = {'process': jax.process_index()}
  rows = np.arange(24.0).reshape(8, 3)
  mine = exchange.my_rows(8)
  for text in ('', 'fsdp=2', 'tensor=2', 'tensor=4'):
    mesh = mesh_lib.from_text(text)
    array = exchange.global_rows({'x': rows[mine]}, mesh)['x']
    assert array.sharding.is_equivalent_to(mesh_lib.rows(mesh), 2), text
    here = [np.asarray(s.data) for s in array.addressable_shards]
    assert all(len(part) == 8 // mesh_lib.num_row_shards(mesh) for part in here)
    total = jax.jit(lambda x: jnp.sum(x * jnp.arange(8.0)[:, None]))(array)
    found[text] = [float(total), exchange.to_host(array).tolist()]
  for text in ('', 'tensor=2'):
    local = mesh_lib.of_process(text)
    mesh = mesh_lib.over_processes(local)
    assert set(local.devices.flat) == set(jax.local_devices())
    assert mesh.shape['data'] == 2 * local.shape['data']
    array = exchange.global_rows(rows[mine], mesh)
    here = {s.index[0].start or 0 for s in array.addressable_shards}
    assert min(here) == mine.start and max(here) < mine.stop, (text, here)
    whole = exchange.place({'x': rows}, NamedSharding(mesh, PartitionSpec()))
    own = exchange.own_copies(whole, local)['x']
    # A process may compute with it though the other does not.
    if distributed.is_first():
      found['own ' + text] = jax.jit(lambda x: x + 1)(own).tolist()
  try:
    exchange.own_copies(array, local)
  except ValueError as error:
    found['split'] = str(error)
  filled, real = exchange.pad_rows(rows[:7], 8)
  found['real'] = exchange.gather_rows(real[mine]).tolist()
  found['gathered'] = exchange.gather_rows(rows[mine] + 1).tolist()
  try:
    exchange.my_rows(7)
  except ValueError as error:
    found['unequal'] = str(error)
  print(json.dumps(found))
"""


@pytest.fixture(scope='module')
def shared():
  done = processes.run(SHARING, 2, devices=2)
  assert [d.returncode for d in done] == [0, 0], processes.report(done)
  return [json.loads(d.stdout.splitlines()[-1]) for d in done]


@pytest.mark.parametrize('text', ['', 'fsdp=2', 'tensor=2', 'tensor=4'])
def test_rows_of_two_processes_make_one_array_on_every_mesh(shared, text):
  rows = np.arange(24.0).reshape(8, 3)
  for found in shared:
    total, array = found[text]
    assert total == (rows * np.arange(8)[:, None]).sum()
    np.testing.assert_array_equal(array, rows)


def test_rows_are_gathered_in_order_on_every_process(shared):
  for found in shared:
    expected = np.arange(24.0).reshape(8, 3) + 1
    np.testing.assert_array_equal(found['gathered'], expected)
    assert found['real'] == [True] * 7 + [False]


def test_a_process_computes_alone_with_its_copies(shared):
  rows = np.arange(24.0).reshape(8, 3)
  for text in ('', 'tensor=2'):
    np.testing.assert_array_equal(shared[0]['own ' + text], rows + 1)
  for found in shared:
    assert found['split'].startswith('an array of (8, 3) is split')


def test_rows_that_do_not_divide_are_refused(shared):
  for found in shared:
    assert found['unequal'].startswith('7 rows cannot be shared equally by 2')


def test_one_process_holds_all_rows():
  mesh = mesh_lib.make_data_mesh()
  array = exchange.global_rows(np.arange(4), mesh)
  assert exchange.my_rows(3) == slice(0, 3)
  assert mesh_lib.over_processes(mesh) is mesh == mesh_lib.of_process('')
  tree = {'x': np.arange(3)}
  assert exchange.own_copies(tree, mesh) is tree
  whole = exchange.place(tree, NamedSharding(mesh, PartitionSpec()))['x']
  assert whole.is_fully_replicated and len(whole.devices()) == 2
  np.testing.assert_array_equal(exchange.to_host(array), range(4))
  np.testing.assert_array_equal(exchange.gather_rows([1, 2]), [1, 2])
  with pytest.raises(ValueError, match='3 rows cannot be split over 2 devices'):
    exchange.global_rows(np.arange(3), mesh)


@given(st.integers(1, 50), st.integers(1, 9))
def test_blocks_of_processes_cover_padded_rows_once(count, processes):
  rows = np.arange(count)
  filled, real = exchange.pad_rows(rows, processes)
  assert len(filled) == len(real) < count + processes
  blocks = [
    filled[exchange.my_rows(len(filled), i, processes)]
    for i in range(processes)
  ]
  np.testing.assert_array_equal(np.concatenate(blocks)[real], rows)
  assert (filled[~real] == 0).all()
