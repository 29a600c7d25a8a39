"""Parameters that are laid out for decoding."""

import dataclasses

import jax
import numpy as np
import pytest

from promptrl_jax.models import native
from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling import prepare
from promptrl_jax.testing import tiny, tiny_encoder_decoder

PARAMS = {
  'causal': (tiny.params, 'layers'),
  't5': (tiny_encoder_decoder.params, 'decoder'),
}
both = pytest.mark.parametrize('kind', PARAMS)


@both
def test_each_layer_has_its_slice_of_the_stack(kind):
  make, stack = PARAMS[kind]
  tree = make()['params']
  prepared = prepare.prepare({'params': tree}, make_data_mesh(1))
  leaves = jax.tree.leaves(tree[stack])
  assert len(prepared.layers) == len(leaves[0])
  for i, layer in enumerate(prepared.layers):
    for name, part in layer['params'].items():
      jax.tree.map(
        lambda ours, whole, i=i: np.testing.assert_array_equal(ours, whole[i]),
        part,
        tree[stack][name],
      )
    moved = tree[stack].keys() - layer['params'].keys()
    assert moved == layer['stored'].keys() and 'qkv' in moved
  assert stack not in prepared.top['params']


@both
@pytest.mark.parametrize('bits', [None, 8])
def test_shapes_without_parameters_are_those_of_the_parameters(kind, bits):
  make, _ = PARAMS[kind]
  mesh = make_data_mesh(1)
  prepared = prepare.prepare(make(), mesh, bits=bits)
  shapes = prepare.abstract(make(), mesh, bits=bits)
  assert jax.tree.structure(prepared) == jax.tree.structure(shapes)
  of = lambda tree: [(x.shape, x.dtype) for x in jax.tree.leaves(tree)]
  assert of(prepared) == of(shapes)


def test_eight_bits_round_the_kernels_alone():
  prepared = prepare.prepare(tiny.params(), make_data_mesh(1), bits=8)
  for layer in prepared.layers:
    for kernel in layer['stored'].values():
      # Packed into words, or one scale per output without a C++ compiler.
      found = {x.dtype.name for x in jax.tree.leaves(kernel)}
      assert found & {'uint32', 'int8'}
    assert {x.dtype for x in jax.tree.leaves(layer['params'])} == {
      np.dtype('float32')
    }


def test_cpu_devices_share_one_copy():
  prepared = prepare.prepare(tiny.params(), make_data_mesh(2))
  for leaf in jax.tree.leaves(prepared):
    pointers = {
      shard.data.unsafe_buffer_pointer() for shard in leaf.addressable_shards
    }
    assert len(leaf.addressable_shards) == 2 and len(pointers) == 1


@pytest.mark.skipif(not native.is_available(), reason='needs a C++ compiler')
def test_rows_are_alone_where_all_products_are_packed():
  packed = dataclasses.replace(
    tiny.CONFIG, vocab_size=320, hidden_size=64, head_size=16, mlp_size=64
  )
  tree, mesh = tiny.params(packed), make_data_mesh(1)
  assert prepare.prepare(tree, mesh).is_row_wise
  # XLA multiplies by adapters.
  adapters = {'layers': {'qkv': {'a': np.zeros((packed.num_layers, 64, 2))}}}
  adapted = {**tree, 'lora': adapters}
  assert not prepare.prepare(adapted, mesh).is_row_wise
  assert not prepare.prepare(tiny.params(), mesh).is_row_wise
