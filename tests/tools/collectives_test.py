"""Bytes read from HLO text are those counted by hand."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from promptrl_jax.tools import collectives

# An instruction of every kind, in synchronous and asynchronous forms. The sizes
# are worked out below.
TEXT = """HloModule jit_step, is_scheduled=true, num_partitions=8

%sum (a: f32[], b: f32[]) -> f32[] {
  ROOT %add = f32[] add(%a, %b)
}

%body.1 (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %reduced = f32[4]{0} all-reduce(%x), channel_id=1, \
replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=%sum
  ROOT %inner = (s32[], f32[4]{0}) while(%t), condition=%cond.2, body=%body.2
}

%cond.1 (p: (s32[], f32[4])) -> pred[] {
  ROOT %gathered = pred[8]{0} all-gather(%x), replica_groups=[1,8]<=[8]
}

%body.2 (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %scattered = bf16[4]{0} reduce-scatter(%x), \
replica_groups=[2,4]<=[4,2]T(1,0), to_apply=%sum
}

%cond.2 (p: (s32[], f32[4])) -> pred[] {
  ROOT %less = pred[] compare(%a, %b), direction=LT
}

%branch (p: f32[4]) -> f32[4] {
  ROOT %moved = f32[4,4]{1,0} collective-permute(%x), \
source_target_pairs={{0,1},{1,0},{2,2}}
}

%wrapped (p: f32[4]) -> f32[4] {
  ROOT %all = (f32[2]{0}, /*index=1*/f32[2]{0}) all-to-all(%x, %y), \
replica_groups=mesh['a'=4,'b'=2], device_ids=([2,2,2]T(0,2,1)) {'b'}
}

ENTRY %main (p: f32[4]) -> f32[4] {
  %start = (f32[2]{0}, f32[16]{0}) all-gather-start(%x), replica_groups={}
  %done = f32[16]{0} all-gather-done(%start)
  %loop = (s32[], f32[4]{0}) while(%t), condition=%cond.1, body=%body.1, \
backend_config={"known_trip_count":{"n":"3"},"x":1}
  %choice = f32[4]{0} conditional(%i, %p), branch_computations={%branch}
  %later = ((f32[4]{0}), f32[4]{0}) async-start(%p), calls=%wrapped
  ROOT %end = f32[4]{0} all-reduce(%x), replica_groups={{0}}, to_apply=%sum, \
metadata={op_name="body=%body.1"}
}
"""


def mesh_of(**sizes):
  devices = np.array(jax.devices()[:1] * 8).reshape(list(sizes.values()))
  return Mesh(devices, tuple(sizes))


@pytest.fixture(scope='module')
def read():
  return {x.name: x for x in collectives.read(TEXT)}


@pytest.mark.parametrize(
  ('name', 'size', 'times', 'is_exact', 'sent'),
  [
    ('reduced', 16, 3, True, 2 * 16 * 1 / 2 * 3),
    ('gathered', 8, 4, True, 8 * 7 / 8 * 4),  # the condition runs once more
    ('scattered', 32, 3, False, 32 * 3 / 4 * 3),
    ('moved', 64, 1, True, 64),
    ('all', 16, 1, True, 16 * 1 / 2),
    ('start', 64, 1, True, 64 * 7 / 8),
    ('end', 16, 1, True, 0),
  ],
)
def test_instructions_send_what_rings_send(
  read, name, size, times, is_exact, sent
):
  collective = read[name]
  assert (collective.size, collective.times) == (size, times)
  assert collective.is_exact == is_exact
  assert collective.sent == sent


def test_every_collective_is_read_once(read):
  names = {'reduced', 'gathered', 'scattered', 'moved', 'all', 'start', 'end'}
  assert read.keys() == names
  assert len(collectives.read(TEXT)) == len(names)


def test_all_forms_of_groups_are_read(read):
  assert read['reduced'].groups == ((0, 1), (2, 3), (4, 5), (6, 7))
  assert read['gathered'].groups == (tuple(range(8)),)
  assert read['start'].groups == (tuple(range(8)),)
  # 0..7 as [4, 2], transposed, in rows of four.
  assert read['scattered'].groups == ((0, 2, 4, 6), (1, 3, 5, 7))
  # 0..7 as [2, 2, 2], last two axes exchanged, as [4, 2].
  assert read['all'].groups == ((0, 2), (1, 3), (4, 6), (5, 7))


def test_bytes_are_summed_by_mesh_axis():
  sent = collectives.sent(
    collectives.read(TEXT), mesh_of(data=2, fsdp=2, tensor=2)
  )
  assert sent == {
    'tensor': 48,
    'data+fsdp+tensor': 28 + 56,
    'data+fsdp': 72,
    'fsdp': 8,
    'other': 64,
  }


def test_text_that_cannot_be_read_is_refused():
  with pytest.raises(ValueError, match='no ENTRY computation'):
    collectives.read('module @jit_step {}')
  with pytest.raises(ValueError, match='groups of devices cannot be read'):
    collectives.read(TEXT.replace("{'b'}", "{'b':(1)2}"))
  with pytest.raises(ValueError, match='are not in its text'):
    collectives.read(TEXT.replace(' all-gather-start', ' ragged-all-to-all'))
