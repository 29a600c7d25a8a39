"""Parameters laid out for decoding: one tree per layer instead of a stack.

A scan over stacked layers would copy each layer's weights once per token.
Kernels are stored with their outputs first, in int8 if asked for, or on CPU
packed for products of a few rows, in as many bits as a file has if it is loaded
that way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent import futures
from typing import Any

import jax
import numpy as np
from flax import struct
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.models import few_rows, native
from promptrl_jax.models import kernels as kernels_lib
from promptrl_jax.models.file_leaves import FileLeaf, PackedRows
from promptrl_jax.models.gguf_blocks import KernelLeaf
from promptrl_jax.parallel import host_memory, sharding

# The stack that is taken apart: of a causal model, of an encoder-decoder.
_STACKS = ('layers', 'decoder')
_Convert = Callable[[Any], Any]


def _unchanged(tree: Any) -> Any:
  return tree


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
    """At most how many share products and attention; 0: XLA decides."""
    return self.layers[0]['stored']['qkv'].threads

  @property
  def is_row_wise(self) -> bool:
    """Whether products are the same bits for any number of rows."""
    if any('lora' in layer for layer in self.layers):
      return False  # XLA multiplies by the adapters.
    head = self.top['stored'].keys() & {'lm_head', 'embedding'}
    trees = [self.top['stored'], *(layer['stored'] for layer in self.layers)]
    return bool(head) and all(
      kernel.threads for tree in trees for kernel in tree.values()
    )


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
  `bits` is as for `kernels.store`. `FileLeaf`s are read one by one there.
  """
  split = _split_fn(params, mesh, rules, bits)
  is_file = lambda leaf: isinstance(leaf, FileLeaf | KernelLeaf)
  if _can_share(mesh, rules):
    params = jax.tree.map(
      lambda leaf: leaf if is_file(leaf) else np.asarray(leaf), params
    )
    region = host_memory.Region()
    with futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
      return split(
        params,
        lambda tree: jax.tree.map(np.asarray, tree),
        lambda tree: jax.tree.map(
          lambda leaf: _shared(leaf, mesh, region), tree
        ),
        threads.map,
      )
  params = jax.tree.map(
    lambda leaf: np.asarray(leaf) if is_file(leaf) else leaf, params
  )
  parts, stack = jax.eval_shape(split, params), _stack(params['params'])
  placed = _placed(parts, stack, mesh, rules)
  return jax.jit(split, out_shardings=placed)(params)


def abstract(
  params: Any,
  mesh: Mesh,
  rules: sharding.Rules | None = None,
  bits: int | None = None,
) -> DecodeParams:
  """What `prepare` would give, as `jax.ShapeDtypeStruct`."""
  parts = jax.eval_shape(_split_fn(params, mesh, rules, bits), params)
  return jax.tree.map(
    lambda s, where: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=where),
    parts,
    _placed(parts, _stack(params['params']), mesh, rules),
  )


def _split_fn(
  params: Any, mesh: Mesh, rules: sharding.Rules | None, bits: int | None
) -> Callable[..., DecodeParams]:
  """Returns the function that takes the stack apart.

  Its further arguments read the leaves of a kernel, place those of what is
  stored before the next kernel is read, and map a function over the layers.
  """
  threads = 0
  if _can_share(mesh, rules) and native.is_available():
    threads = len(os.sched_getaffinity(0))
  stack = _stack(params['params'])
  num_layers = jax.tree.leaves(params['params'][stack])[0].shape[0]

  def split(
    params: Any,
    read: _Convert = _unchanged,
    place: _Convert = _unchanged,
    each: Callable[..., Iterable[Any]] = map,
  ) -> DecodeParams:
    def store(kernel: Any, transposed: bool = False) -> Any:
      if transposed and bits is None and isinstance(kernel, FileLeaf):
        turned = jax.ShapeDtypeStruct(kernel.shape[::-1], kernel.dtype)
        if few_rows.fits(turned):
          panels = PackedRows(kernel)
          return place(kernels_lib.StoredKernel(panels, threads=threads))
      if not isinstance(kernel, KernelLeaf):
        kernel = read(kernel)
        kernel = kernel.T if transposed else kernel
      return place(kernels_lib.store(kernel, bits, threads))

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
    if stack == _STACKS[0]:
      top = _with_tied_head(top, store, packs=threads > 0)
    return DecodeParams(
      _stored(top, store, place),
      tuple(each(lambda layer: _stored(layer, store, place), layers)),
    )

  return split


def _stack(params: Any) -> str:
  return next(name for name in _STACKS if name in params)


def _with_tied_head(
  top: dict[str, Any], store: Callable[..., Any], packs: bool
) -> dict[str, Any]:
  """Packs an embedding that is also the projection on the vocabulary."""
  params, given = dict(top['params']), dict(top.get('blocks', {}))
  if 'lm_head' in params or 'lm_head' in given:
    return top
  if 'embedding' in given:
    table = given.pop('embedding')
  elif packs:
    table = params.pop('embedding')
  else:
    return top
  stored = store(table, transposed=True)
  if not stored.threads:  # The sizes do not fit.
    return top
  named = {'embedding': stored}
  return {**top, 'params': params, 'blocks': given, 'stored': named}


def _stored(
  variables: dict[str, Any], store: Callable[..., Any], place: _Convert
) -> dict[str, Any]:
  """Moves the kernels from `params` and `blocks` to `stored`."""
  params = dict(variables['params'])
  given = {**params, **variables.get('blocks', {})}
  stored = {
    name: store(given[name]) for name in kernels_lib.KERNELS if name in given
  }
  others = {k: v for k, v in variables.items() if k not in ('blocks', 'stored')}
  others['params'] = {k: v for k, v in params.items() if k not in stored}
  stored |= variables.get('stored', {})
  return {**place(others), 'stored': stored}


def _placed(
  parts: DecodeParams, stack: str, mesh: Mesh, rules: sharding.Rules | None
) -> DecodeParams:
  """Returns the sharding of each leaf of `parts`."""
  place = lambda tree, prefix: jax.tree_util.tree_map_with_path(
    lambda path, leaf: _place(prefix, path, leaf, rules, mesh), tree
  )
  layers = tuple(place(layer, f'{stack}/') for layer in parts.layers)
  return DecodeParams(place(parts.top, ''), layers)


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
  """Whether all devices of a mesh read one copy of the parameters."""
  return rules is None and next(iter(mesh.devices.flat)).platform == 'cpu'


def _shared(leaf: Any, mesh: Mesh, region: host_memory.Region) -> jax.Array:
  """One array of the host that all devices of the mesh read."""
  aligned = region.empty(leaf.shape, leaf.dtype)
  if isinstance(leaf, FileLeaf | PackedRows):
    leaf.fill(aligned)
  else:
    host_memory.copy(aligned, np.asarray(leaf))
  aligned.flags.writeable = False
  parts = [
    jax.device_put(aligned, device, may_alias=True)
    for device in mesh.devices.flat
  ]
  return jax.make_array_from_single_device_arrays(
    leaf.shape, NamedSharding(mesh, P()), parts
  )
