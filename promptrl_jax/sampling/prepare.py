"""Parameters laid out for decoding: one tree per layer instead of a stack.

A scan over stacked layers would copy each layer's weights once per token.
Kernels are stored with their outputs first, in int8 if asked for, or on CPU
packed for products of a few rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import struct
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.models import kernels as kernels_lib
from promptrl_jax.models import native
from promptrl_jax.parallel import host_memory, sharding

# Kernels of `Block` and `DecoderLayer`, and the projection on the vocabulary.
_KERNELS = ('qkv', 'out', 'gate_up', 'down', 'lm_head')
_KERNELS += ('cross_query', 'cross_kv', 'cross_out')
# The stack that is taken apart: of a causal model, of an encoder-decoder.
_STACKS = ('layers', 'decoder')


@struct.dataclass
class DecodeParams:
  """Parameters of a causal language model or an encoder-decoder.

  Attributes:
    top: the variables of everything but the layers that write, with `stored`
      for the projection on the vocabulary if it has a kernel of its own.
    layers: the variables of each layer that writes: `params` without its
      kernels, which are under `stored` as `StoredKernel`, and `lora` if
      attached.
  """

  top: Any
  layers: tuple[Any, ...]

  @property
  def threads(self) -> int:
    """How many share a step's products and attention; 0: XLA decides."""
    return self.layers[0]['stored']['qkv'].threads


def prepare(
  params: Any,
  mesh: Mesh,
  rules: sharding.Rules | None = None,
  bits: int | None = None,
) -> DecodeParams:
  """Splits the stack of layers that write and places the parts on the mesh.

  `rules` split leaves; None: every device has all of it. CPU devices then share
  one copy in memory, so that the weights of a small model stay in a cache that
  its cores share: two of 17 MB each took 1.7 times as long to multiply 8 rows.
  `bits` is as for `kernels.store`.
  """
  split, placed = _split(params, mesh, rules, bits)
  if _can_share(mesh, rules):
    parts = split(jax.tree.map(np.asarray, params))
    return jax.tree.map(lambda leaf: _shared(np.asarray(leaf), mesh), parts)
  return jax.jit(split, out_shardings=placed)(params)


def abstract(
  params: Any,
  mesh: Mesh,
  rules: sharding.Rules | None = None,
  bits: int | None = None,
) -> DecodeParams:
  """What `prepare` would give, as `jax.ShapeDtypeStruct`."""
  split, placed = _split(params, mesh, rules, bits)
  return jax.tree.map(
    lambda s, where: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=where),
    jax.eval_shape(split, params),
    placed,
  )


def _split(
  params: Any, mesh: Mesh, rules: sharding.Rules | None, bits: int | None
) -> tuple[Callable[[Any], DecodeParams], DecodeParams]:
  threads = 0
  if _can_share(mesh, rules) and native.is_available():
    threads = 1 if mesh.size > 1 else len(os.sched_getaffinity(0))
  stack = next(name for name in _STACKS if name in params['params'])
  num_layers = jax.tree.leaves(params['params'][stack])[0].shape[0]

  def split(params: Any) -> DecodeParams:
    top = {
      name: {k: v for k, v in tree.items() if k != stack}
      for name, tree in params.items()
    }
    stacks = {
      name: tree[stack] for name, tree in params.items() if stack in tree
    }
    layers = (
      jax.tree.map(lambda leaf, i=i: leaf[i], stacks) for i in range(num_layers)
    )
    return DecodeParams(
      _stored(top, bits, threads),
      tuple(_stored(layer, bits, threads) for layer in layers),
    )

  place = lambda tree, prefix: jax.tree_util.tree_map_with_path(
    lambda path, leaf: _place(prefix, path, leaf, rules, mesh), tree
  )
  parts = jax.eval_shape(split, params)
  layers = tuple(place(layer, f'{stack}/') for layer in parts.layers)
  return split, DecodeParams(place(parts.top, ''), layers)


def _stored(
  variables: dict[str, Any], bits: int | None, threads: int
) -> dict[str, Any]:
  """Moves the kernels from `params` to `stored`."""
  params = dict(variables['params'])
  kernels = {
    name: kernels_lib.store(params.pop(name), bits, threads)
    for name in _KERNELS
    if name in params
  }
  return {**variables, 'params': params, 'stored': kernels}


def _place(
  prefix: str, path: Any, leaf: Any, rules: sharding.Rules | None, mesh: Mesh
) -> NamedSharding:
  if rules is None:
    return NamedSharding(mesh, P())
  is_stored = path[0].key == 'stored'
  field = path[-1].name if is_stored else None
  path = path[:-1] if is_stored else path
  name = prefix + sharding.path_of(path)
  spec = tuple(sharding.spec_of(name, rules))
  spec = spec[1:] if prefix else spec  # Without the axis of the layers.
  if is_stored:
    outputs = leaf.ndim - (field == 'values')
    spec = (*spec, *[None] * (1 + outputs - len(spec)))
    spec = (*spec[1:], spec[0])[: leaf.ndim]
  return sharding.fit(P(*spec), leaf.shape, mesh, name)


def _can_share(mesh: Mesh, rules: sharding.Rules | None) -> bool:
  return rules is None and next(iter(mesh.devices.flat)).platform == 'cpu'


def _shared(leaf: np.ndarray, mesh: Mesh) -> jax.Array:
  """One array of the host that all devices of the mesh read."""
  aligned = host_memory.empty(leaf.shape, leaf.dtype)
  aligned[...] = leaf
  aligned.flags.writeable = False
  parts = [
    jax.device_put(aligned, device, may_alias=True)
    for device in mesh.devices.flat
  ]
  return jax.make_array_from_single_device_arrays(
    leaf.shape, NamedSharding(mesh, P()), parts
  )
