"""Tests of what the host hands to the devices in one array."""

import dataclasses

import jax
import numpy as np
import pytest

from promptrl_jax.sampling.model import InputBatch
from promptrl_jax.sampling.packing import pack, unpack


def batch(slots):
  """A batch whose numbers all differ, with those at the ends of their types."""
  places = np.arange(slots)
  return InputBatch(
    prompt_start=np.int32(places),
    prompt_lengths=np.int32(places - 2**31),
    generated=np.int32(2**31 - 1 - places),
    max_tokens=np.int32(100 + places),
    temperature=np.float32(1e-30 * places),
    top_p=np.float32(1 / (1 + places)),
    seeds=np.uint32(2**32 - 1 - places),
  )


@pytest.mark.parametrize('groups', [1, 3])
def test_each_group_gets_its_rows_bit_for_bit(groups):
  rows, size = batch(4 * groups), 4
  first = np.arange(groups, dtype=np.int32)
  second = first + 10
  packed = pack(rows, first, second)
  assert packed.shape == (groups, 7 * size + 2)
  dtypes = jax.tree.map(lambda row: row.dtype, InputBatch.free(1))
  of_group = jax.jit(lambda packed: unpack(packed, dtypes, 2))
  for group in range(groups):
    found, others = of_group(packed[group : group + 1])
    for field in dataclasses.fields(InputBatch):
      row = getattr(rows, field.name)[group * size : (group + 1) * size]
      unpacked = np.asarray(getattr(found, field.name))
      assert unpacked.dtype == row.dtype
      assert unpacked.tobytes() == row.tobytes()
    assert [x.tolist() for x in others] == [[first[group]], [second[group]]]


def test_what_is_packed_is_a_copy():
  rows = batch(2)
  packed = pack(rows, np.zeros(1, np.int32))
  before = packed.copy()
  rows.generated[:] = 0
  np.testing.assert_array_equal(packed, before)


def test_numbers_of_another_size_are_refused():
  with pytest.raises(ValueError, match='bool'):
    pack((np.zeros(4, bool),), np.zeros(1, np.int32))


def test_a_free_slot_decodes_nothing():
  free = InputBatch.free(3)
  assert np.all(free.generated >= free.max_tokens)
  assert np.all(free.top_p == 1.0)
