"""Memory of the machine, or of a container with less."""

import os

import jax
import numpy as np
import pytest

from promptrl_jax.parallel import host_memory

MACHINE = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')


@pytest.mark.parametrize(
  'limit, expected',
  [('4096', 4096), ('max', MACHINE), (str(2 * MACHINE), MACHINE)],
)
def test_a_container_may_have_less(tmp_path, monkeypatch, limit, expected):
  path = tmp_path / 'memory.max'
  path.write_text(f'{limit}\n')
  monkeypatch.setattr(host_memory, '_LIMIT', path)
  assert host_memory.total_bytes() == expected


def test_without_a_limit_it_is_that_of_the_machine(tmp_path, monkeypatch):
  monkeypatch.setattr(host_memory, '_LIMIT', tmp_path / 'missing')
  assert host_memory.total_bytes() == MACHINE


def test_arrays_of_a_region_lie_side_by_side():
  region = host_memory.Region()
  arrays = [
    region.empty((3, 5), np.float32),
    region.empty((0,), np.float32),
    region.empty((7,), jax.numpy.bfloat16),
    region.empty((2, 2), np.uint16),
  ]
  for i, array in enumerate(arrays):
    array[...] = i
  starts = [array.ctypes.data for array in arrays]
  assert np.subtract(starts, starts[0]).tolist() == [0, 64, 64, 128]
  assert all((array == i).all() for i, array in enumerate(arrays))


def test_arrays_larger_than_a_piece_have_one_of_their_own(monkeypatch):
  monkeypatch.setattr(host_memory, '_PIECE', 256)
  region = host_memory.Region()
  small, large, last = (region.empty((n,), np.uint8) for n in (200, 1000, 100))
  small[:], large[:], last[:] = 1, 2, 3
  assert (small == 1).all() and (large == 2).all() and (last == 3).all()


def test_a_device_takes_an_array_of_a_region_as_it_is():
  region = host_memory.Region()
  region.empty((1,), np.uint8)
  array = region.empty((4, 3), np.float32)
  array[...] = 1
  placed = jax.device_put(array, may_alias=True)
  assert placed.unsafe_buffer_pointer() == array.ctypes.data
