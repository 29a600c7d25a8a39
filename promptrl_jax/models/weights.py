"""Converts Hugging Face checkpoints to parameter trees and back.

Each model family has one `Table` that maps every tensor of a checkpoint to its
part of a leaf in our tree. The loader memory-maps one tensor at a time, puts it
on the devices and writes it into its leaf there, so that the host never holds
more than its own shards and the largest tensor.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from flax import traverse_util
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from safetensors import numpy as st_numpy

from promptrl_jax.files import write_atomically
from promptrl_jax.models.tensor_files import (
  INDEX,
  WEIGHTS,
  CheckpointError,
  Source,
  Tensors,
)

__all__ = [
  'INDEX',
  'WEIGHTS',
  'CheckpointError',
  'Rule',
  'Source',
  'Table',
  'Tensors',
  'check_tensors',
  'flat',
  'linear',
  'load_tree',
  'read',
  'save_tree',
  'transpose',
]

_LAYER = '{layer}'
_SHARD_BYTES = 5 * 10**9  # the default of transformers

Convert = Callable[[Any], Any]  # reshapes and transposes jax or numpy arrays


def transpose(x: Any) -> Any:
  """Converts a linear kernel between [out, in] and our [in, out]."""
  return x.T


@dataclasses.dataclass(frozen=True)
class Rule:
  """Maps one tensor of a checkpoint to a part of a leaf.

  Attributes:
    name: name of the tensor; `{layer}` in it stands for the layer's number.
    leaf: path of the leaf below `params`, such as `layers/down`. If `name` has
      a layer, the first axis of the leaf is L.
    to_ours: converts the stored tensor to its part of the leaf. It may only
      reshape and transpose, and must accept jax and numpy arrays.
    index: index of the part in the leaf (of one layer), for each axis a number,
      (start, stop), or None for the whole axis; () is the whole leaf.
  """

  name: str
  leaf: str
  to_ours: Convert = lambda x: x
  to_theirs: Convert = lambda x: x
  index: tuple[Any, ...] = ()

  @property
  def is_layered(self) -> bool:
    """Whether the rule covers one tensor per layer."""
    return _LAYER in self.name

  @property
  def place(self) -> tuple[int | slice, ...]:
    """Where the part lies in the leaf, or in that of one layer."""
    index = [slice(*i) if isinstance(i, tuple) else i for i in self.index]
    return tuple(slice(None) if i is None else i for i in index)

  def name_of(self, layer: int | None) -> str:
    """Returns the name of the tensor, or of that of a layer."""
    return self.name.replace(_LAYER, str(layer))

  def names(self, num_layers: int) -> Iterator[tuple[str, int | None]]:
    """Yields the name and the layer of each tensor of this rule."""
    if not self.is_layered:
      yield self.name, None
    else:
      for layer in range(num_layers):
        yield self.name_of(layer), layer


@dataclasses.dataclass(frozen=True)
class Table:
  """Maps all tensors of a checkpoint to a parameter tree.

  Attributes:
    prefix: prefix of all names in written files, such as `bert.`; optional in
      files that are read.
    ignored: regular expressions of names without parameters, such as masks or
      second copies of tied tensors.
    renamed: pairs (regular expression of the end of an older name, its
      replacement).
  """

  rules: tuple[Rule, ...]
  prefix: str = ''
  ignored: tuple[str, ...] = ()
  renamed: tuple[tuple[str, str], ...] = ()


def linear(name: str, leaf: str, **kwargs: Any) -> Rule:
  """Returns the rule of a linear kernel, which is stored as [out, in]."""
  return Rule(name, leaf, transpose, transpose, **kwargs)


def load_tree(
  tensors: Source,
  table: Table,
  shapes: Any,
  dtype: Any = jnp.float32,
  shardings: Any = None,
) -> Any:
  """Loads a parameter tree.

  Args:
    shapes: tree of `jax.ShapeDtypeStruct` with `params` at the top.
    dtype: type of the parameters; tensors of other types are converted on the
      device.
    shardings: tree of `NamedSharding` like `shapes`; None: the first device.

  Raises:
    CheckpointError: a tensor is missing, unknown or of the wrong shape.
  """
  leaves = flat(shapes)
  names = check_tensors(tensors, table, leaves)
  leaf_shardings = flat(shardings) if shardings is not None else {}
  filled: dict[str, jax.Array] = {}
  for rule in table.rules:
    leaf, sharding = leaves[rule.leaf], leaf_shardings.get(rule.leaf)
    value = filled.pop(rule.leaf, None)
    if value is None:
      make = functools.partial(jnp.zeros, leaf.shape, jnp.dtype(dtype))
      value = jax.jit(make, out_shardings=sharding)()
    write = _make_write_fn(rule, sharding)
    for name, layer in rule.names(leaf.shape[0]):
      tensor = _spread(read(tensors, names[name]), sharding)
      value = write(value, tensor, layer or 0)
    filled[rule.leaf] = value
  ordered = {path: filled[path] for path in leaves}
  return {'params': traverse_util.unflatten_dict(ordered, sep='/')}


def check_tensors(
  tensors: Source, table: Table, leaves: Mapping[str, Any]
) -> dict[str, str]:
  """Checks names and shapes; returns each tensor's name in the files."""
  present = _by_rule_name(tensors, table)
  expected = _rules_by_name(table, leaves)
  missing = sorted(expected.keys() - present.keys())
  unknown = sorted(
    stored
    for name, stored in present.items()
    if name not in expected
    and not any(re.fullmatch(p, name) for p in table.ignored)
  )
  if missing or unknown:
    raise CheckpointError(
      f'{tensors.folder} does not fit its config: missing '
      f'{_shortened(missing)}, not known {_shortened(unknown)}'
    )
  shapes = {
    rule: _stored_shape(rule, leaves[rule.leaf]) for rule in table.rules
  }
  for name, (rule, _) in expected.items():
    shape = tensors.shape(present[name])
    if shape != shapes[rule]:
      raise CheckpointError(
        f'{present[name]} in {tensors.folder} has shape {shape}; the config '
        f'says {shapes[rule]}'
      )
  return present


def read(tensors: Source, name: str) -> np.ndarray:
  """Reads a tensor by its name in the files."""
  tensor = tensors.read(name)
  # NumPy itself has no bfloat16.
  is_bfloat16 = tensor.dtype.kind == 'V'
  return tensor.view(ml_dtypes.bfloat16) if is_bfloat16 else tensor


def save_tree(
  folder: str | os.PathLike[str],
  params: Any,
  table: Table,
  dtype: Any = None,
  shard_bytes: int = _SHARD_BYTES,
) -> None:
  """Writes a parameter tree as safetensors, split into files with an index.

  Args:
    dtype: type of the tensors in the file; None: that of the parameters.
    shard_bytes: upper limit on the bytes of tensors in one file.
  """
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  leaves = flat(params)
  rules = _rules_by_name(table, leaves)
  sizes = {}
  for name, (rule, _) in rules.items():
    leaf = leaves[rule.leaf]
    itemsize = jnp.dtype(dtype or leaf.dtype).itemsize
    sizes[name] = math.prod(_stored_shape(rule, leaf)) * itemsize
  shards = _split(sizes, shard_bytes)
  files = [WEIGHTS]
  if len(shards) > 1:
    name_of = f'model-{{:05}}-of-{len(shards):05}.safetensors'.format
    files = [name_of(i) for i in range(1, len(shards) + 1)]
  file_of: dict[str, str] = {}
  for file, shard in zip(files, shards, strict=True):
    tensors = {
      table.prefix + name: _stored(*rules[name], leaves, dtype)
      for name in shard
    }
    file_of |= dict.fromkeys(tensors, file)
    content = st_numpy.save(tensors, metadata={'format': 'pt'})
    write_atomically(folder / file, content)
  if len(shards) > 1:
    total = sum(sizes.values())
    index = {'metadata': {'total_size': total}, 'weight_map': file_of}
    content = json.dumps(index, indent=2).encode()
    write_atomically(folder / INDEX, content)
  else:
    (folder / INDEX).unlink(missing_ok=True)


def _split(sizes: Mapping[str, int], limit: int) -> list[list[str]]:
  """Splits tensors into files of at most `limit` bytes, in order."""
  shards: list[list[str]] = [[]]
  used = 0
  for name, size in sizes.items():
    if shards[-1] and used + size > limit:
      shards.append([])
      used = 0
    shards[-1].append(name)
    used += size
  return shards


def _by_rule_name(tensors: Source, table: Table) -> dict[str, str]:
  """Returns the names in the files by their names in the rules."""
  names: dict[str, str] = {}
  for stored in sorted(tensors.names()):
    name = stored.removeprefix(table.prefix)
    for old, new in table.renamed:
      name = re.sub(f'{old}$', new, name)
    if name in names:
      raise CheckpointError(
        f'{tensors.folder} has both {names[name]} and {stored}: expected one, '
        'they are the same parameter'
      )
    names[name] = stored
  return names


def _rules_by_name(
  table: Table, leaves: Mapping[str, Any]
) -> dict[str, tuple[Rule, int | None]]:
  """Returns rule and layer of every tensor, each of its own part of a leaf."""
  rules: dict[str, tuple[Rule, int | None]] = {}
  for rule in table.rules:
    if rule.leaf not in leaves:
      raise KeyError(f'{rule.name}: the model has no leaf {rule.leaf!r}')
    for name, layer in rule.names(leaves[rule.leaf].shape[0]):
      if name in rules:
        raise KeyError(f'two rules for {name}')
      rules[name] = (rule, layer)
  if empty := sorted(leaves.keys() - {rule.leaf for rule in table.rules}):
    raise KeyError(f'no rule fills {_shortened(empty)}')
  return rules


def _stored_shape(rule: Rule, leaf: Any) -> tuple[int, ...]:
  """Returns the shape of a rule's tensor in a checkpoint."""
  convert = lambda x: rule.to_theirs(_part(rule, x))
  shape = jax.ShapeDtypeStruct(leaf.shape, jnp.float32)
  return jax.eval_shape(convert, shape).shape


def _part(rule: Rule, leaf: Any, layer: int = 0) -> Any:
  """Returns the part of a leaf that holds a rule's tensor."""
  return leaf[(layer, *rule.place) if rule.is_layered else rule.place]


def _stored(
  rule: Rule, layer: int | None, leaves: Mapping[str, Any], dtype: Any
) -> np.ndarray:
  """Returns a rule's tensor as a checkpoint stores it."""
  part = np.asarray(_part(rule, leaves[rule.leaf], layer or 0))
  return np.ascontiguousarray(rule.to_theirs(part).astype(dtype or part.dtype))


def _make_write_fn(
  rule: Rule, sharding: NamedSharding | None
) -> Callable[..., jax.Array]:
  """Returns a jitted function that writes a stored tensor into its leaf."""

  def write(leaf: jax.Array, tensor: jax.Array, layer: jax.Array) -> jax.Array:
    part = rule.to_ours(tensor).astype(leaf.dtype)
    index = (layer, *rule.index) if rule.is_layered else rule.index
    starts = [jnp.int32(0)] * leaf.ndim
    for axis, i in enumerate(index):
      if isinstance(i, tuple):
        starts[axis] = jnp.int32(i[0])
      elif i is not None:
        starts[axis] = jnp.asarray(i, jnp.int32)
        part = jnp.expand_dims(part, axis)
    return jax.lax.dynamic_update_slice(leaf, part, starts)

  return jax.jit(write, donate_argnums=0, out_shardings=sharding)


def _spread(tensor: np.ndarray, sharding: NamedSharding | None) -> Any:
  """Puts a stored tensor on the devices of `sharding`, split if possible."""
  if sharding is None:
    return jax.device_put(tensor, may_alias=True)
  mesh: Mesh = sharding.mesh  # pyright: ignore[reportAssignmentType]
  axis = next(
    (i for i, n in enumerate(tensor.shape) if n % mesh.size == 0), None
  )
  spec = P() if axis is None else P(*[None] * axis, mesh.axis_names)
  spread = NamedSharding(mesh, spec)
  return jax.make_array_from_callback(
    tensor.shape, spread, lambda index: tensor[index]
  )


def flat(tree: Any) -> dict[str, Any]:
  """Returns the leaves by their path below `params`."""
  return traverse_util.flatten_dict(tree['params'], sep='/')


def _shortened(names: list[str]) -> str:
  """Returns at most four names, and how many there are beyond them."""
  shown = ', '.join(names[:4]) or 'nothing'
  return shown if len(names) <= 4 else f'{shown} and {len(names) - 4} more'
