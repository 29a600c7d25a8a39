"""Hugging Face checkpoints <-> parameter trees, leaf by leaf.

Each family of models has one `Table` that says, for every tensor of a
checkpoint, which part of which leaf of our tree it fills. Reading maps one
tensor at a time into memory, puts it on the devices and writes it there into
its leaf, so that the host never holds more than the largest tensor beside its
own shards.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from safetensors import numpy as st_numpy

from promptrl_jax.files import write_atomically
from promptrl_jax.models.tensor_files import (
  INDEX,
  WEIGHTS,
  CheckpointError,
  Tensors,
)

__all__ = [
  'INDEX',
  'WEIGHTS',
  'CheckpointError',
  'Rule',
  'Table',
  'Tensors',
  'linear',
  'load_tree',
  'save_tree',
  'transpose',
]

_LAYER = '{layer}'
_SHARD_BYTES = 5 * 10**9  # As transformers splits a checkpoint.

Piece = Callable[[Any], Any]


def _same(x: Any) -> Any:
  return x


def transpose(x: Any) -> Any:
  """A linear layer's [out, in] as our [in, out], and back."""
  return x.T


@dataclasses.dataclass(frozen=True)
class Rule:
  """Which part of a leaf one tensor of a checkpoint fills.

  Attributes:
    name: the tensor's name; `{layer}` in it stands for the layer's number.
    leaf: path in our tree below `params`, joined by `/`: `layers/down`. Leaves
      of a rule with `{layer}` have the layers on their first axis.
    to_ours: the tensor as it is stored -> its part of the leaf, by reshaping
      and transposing alone (jax and numpy arrays alike).
    to_theirs: the inverse.
    index: where in the leaf (of one layer) that part lies, axis by axis: a
      number, (start, stop), or None for all of the axis; () is all of it.
  """

  name: str
  leaf: str
  to_ours: Piece = _same
  to_theirs: Piece = _same
  index: tuple[Any, ...] = ()

  @property
  def is_layered(self) -> bool:
    return _LAYER in self.name

  def names(self, num_layers: int) -> Iterator[tuple[str, int | None]]:
    """Every tensor of this rule and the number of its layer."""
    if not self.is_layered:
      yield self.name, None
    else:
      for layer in range(num_layers):
        yield self.name.replace(_LAYER, str(layer)), layer


@dataclasses.dataclass(frozen=True)
class Table:
  """All tensors of a checkpoint.

  Attributes:
    rules: one for each name.
    prefix: that all names of a rule start with when written, and that may be
      missing when read: `bert.`.
    ignored: regular expressions of names that hold nothing to learn, such as
      masks, or a second copy of a tied tensor.
    renamed: (regular expression of the end of an older name, what stands there
      now).
  """

  rules: tuple[Rule, ...]
  prefix: str = ''
  ignored: tuple[str, ...] = ()
  renamed: tuple[tuple[str, str], ...] = ()

  def rule_name(self, name: str) -> str:
    """What the rules call a tensor that is called `name` in a file."""
    name = name.removeprefix(self.prefix)
    for old, new in self.renamed:
      name = re.sub(f'{old}$', new, name)
    return name


def linear(name: str, leaf: str, **kwargs: Any) -> Rule:
  """The weight of a linear layer: [out, in] there, [in, out] here."""
  return Rule(name, leaf, transpose, transpose, **kwargs)


def load_tree(
  tensors: Tensors,
  table: Table,
  shapes: Any,
  dtype: Any = jnp.float32,
  shardings: Any = None,
) -> Any:
  """Reads a parameter tree.

  Args:
    tensors: the checkpoint.
    table: of the family.
    shapes: tree of `jax.ShapeDtypeStruct` with `params` at the top.
    dtype: of the parameters; a leaf of another float type is converted on the
      device.
    shardings: tree like `shapes` of `NamedSharding`; None: the first device.

  Raises:
    CheckpointError: a tensor is missing, of another shape, or left over; a leaf
      is not filled.
  """
  leaves = _flat(shapes)
  present = _by_rule_name(tensors, table)
  wanted = _wanted(table, leaves)
  missing = sorted(wanted.keys() - present.keys())
  unused = sorted(
    name
    for short, name in present.items()
    if short not in wanted
    and not any(re.fullmatch(p, short) for p in table.ignored)
  )
  if missing or unused:
    raise CheckpointError(
      f'{tensors.folder} does not fit its config: missing '
      f'{_some(missing)}, not known {_some(unused)}'
    )
  for short, (rule, _) in wanted.items():
    found = tensors.shape(present[short])
    expected = _stored_shape(rule, leaves[rule.leaf])
    if found != expected:
      raise CheckpointError(
        f'{present[short]} in {tensors.folder} has shape {found}; the config '
        f'says {expected}'
      )
  placed = _flat(shardings) if shardings is not None else {}
  filled: dict[str, jax.Array] = {}
  for rule in table.rules:
    leaf, sharding = leaves[rule.leaf], placed.get(rule.leaf)
    value = filled.pop(rule.leaf, None)
    if value is None:
      value = _zeros(leaf.shape, dtype, sharding)
    write = _make_write_fn(rule, sharding)
    for short, layer in rule.names(leaf.shape[0]):
      tensor = _spread(tensors.read(present[short]), sharding)
      value = write(value, tensor, layer or 0)
    filled[rule.leaf] = value
  return _nested({path: filled[path] for path in leaves})


def save_tree(
  folder: str | os.PathLike[str],
  params: Any,
  table: Table,
  dtype: Any = None,
  shard_bytes: int = _SHARD_BYTES,
) -> None:
  """Writes a parameter tree as safetensors, split into files with an index.

  Args:
    folder: where to; made if needed.
    params: tree with `params` at the top.
    table: of the family.
    dtype: of the file; None: as the parameters are.
    shard_bytes: most bytes of one file.
  """
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  leaves = _flat(params)
  names = _wanted(table, leaves)
  size_of = lambda rule: (
    np.prod(_stored_shape(rule, leaves[rule.leaf]))
    * (jnp.dtype(dtype or leaves[rule.leaf].dtype).itemsize)
  )
  shards: list[list[str]] = [[]]
  used = 0
  for name, (rule, _) in names.items():
    if shards[-1] and used + size_of(rule) > shard_bytes:
      shards.append([])
      used = 0
    shards[-1].append(name)
    used += int(size_of(rule))
  files = [WEIGHTS]
  if len(shards) > 1:
    files = [
      f'model-{i + 1:05}-of-{len(shards):05}.safetensors'
      for i in range(len(shards))
    ]
  placed: dict[str, str] = {}
  for file, shard in zip(files, shards, strict=True):
    tensors = {
      table.prefix + name: _stored(*names[name], leaves, dtype)
      for name in shard
    }
    placed |= dict.fromkeys(tensors, file)
    content = st_numpy.save(tensors, metadata={'format': 'pt'})
    write_atomically(folder / file, content)
  if len(shards) > 1:
    total = sum(int(size_of(rule)) for rule, _ in names.values())
    index = {'metadata': {'total_size': total}, 'weight_map': placed}
    content = json.dumps(index, indent=2).encode()
    write_atomically(folder / INDEX, content)
  else:
    (folder / INDEX).unlink(missing_ok=True)


def _by_rule_name(tensors: Tensors, table: Table) -> dict[str, str]:
  """Names in the files, by the name that a rule would give them."""
  found: dict[str, str] = {}
  for name in sorted(tensors.names()):
    short = table.rule_name(name)
    if short in found:
      raise CheckpointError(
        f'{tensors.folder} has both {found[short]} and {name}: expected one, '
        'they are the same parameter'
      )
    found[short] = name
  return found


def _wanted(
  table: Table, leaves: Mapping[str, Any]
) -> dict[str, tuple[Rule, int | None]]:
  """Every tensor of a checkpoint: its rule and the number of its layer."""
  wanted: dict[str, tuple[Rule, int | None]] = {}
  for rule in table.rules:
    if rule.leaf not in leaves:
      raise KeyError(f'{rule.name}: the model has no leaf {rule.leaf!r}')
    for name, layer in rule.names(leaves[rule.leaf].shape[0]):
      if name in wanted:
        raise KeyError(f'two rules for {name}')
      wanted[name] = (rule, layer)
  if empty := sorted(leaves.keys() - {rule.leaf for rule in table.rules}):
    raise KeyError(f'no rule fills {_some(empty)}')
  return wanted


def _stored_shape(rule: Rule, leaf: Any) -> tuple[int, ...]:
  take = lambda x: rule.to_theirs(_part(rule, x))
  return jax.eval_shape(
    take, jax.ShapeDtypeStruct(leaf.shape, jnp.float32)
  ).shape


def _part(rule: Rule, leaf: Any, layer: int = 0) -> Any:
  """The part of a leaf that a tensor fills."""
  index = [slice(*i) if isinstance(i, tuple) else i for i in rule.index]
  index = [slice(None) if i is None else i for i in index]
  return leaf[(layer, *index)] if rule.is_layered else leaf[tuple(index)]


def _stored(
  rule: Rule, layer: int | None, leaves: Mapping[str, Any], dtype: Any
) -> np.ndarray:
  part = np.asarray(_part(rule, leaves[rule.leaf], layer or 0))
  return np.ascontiguousarray(rule.to_theirs(part).astype(dtype or part.dtype))


def _zeros(
  shape: tuple[int, ...], dtype: Any, sharding: NamedSharding | None
) -> jax.Array:
  make = functools.partial(jnp.zeros, shape, jnp.dtype(dtype))
  return jax.jit(make, out_shardings=sharding)()


def _make_write_fn(
  rule: Rule, sharding: NamedSharding | None
) -> Callable[..., jax.Array]:
  """Jitted: (leaf, tensor as stored, layer) -> leaf, in place."""

  def write(leaf: jax.Array, tensor: jax.Array, layer: jax.Array) -> jax.Array:
    part = rule.to_ours(tensor).astype(leaf.dtype)
    place = (layer, *rule.index) if rule.is_layered else rule.index
    starts = [jnp.int32(0)] * leaf.ndim
    for axis, at in enumerate(place):
      if isinstance(at, tuple):
        starts[axis] = jnp.int32(at[0])
      elif at is not None:
        starts[axis] = jnp.asarray(at, jnp.int32)
        part = jnp.expand_dims(part, axis)
    return jax.lax.dynamic_update_slice(leaf, part, starts)

  return jax.jit(write, donate_argnums=0, out_shardings=sharding)


def _spread(tensor: np.ndarray, sharding: NamedSharding | None) -> Any:
  """The stored tensor on the devices of `sharding`, no device holding all."""
  if tensor.dtype.kind == 'V':  # Without ml_dtypes, numpy has no bfloat16.
    tensor = tensor.view(ml_dtypes.bfloat16)
  if sharding is None:
    return jnp.asarray(tensor)
  mesh: Mesh = sharding.mesh  # pyright: ignore[reportAssignmentType]
  axis = next(
    (i for i, n in enumerate(tensor.shape) if n % mesh.size == 0), None
  )
  spec = P() if axis is None else P(*[None] * axis, mesh.axis_names)
  spread = NamedSharding(mesh, spec)
  return jax.make_array_from_callback(
    tensor.shape, spread, lambda index: tensor[index]
  )


def _flat(tree: Any) -> dict[str, Any]:
  """Leaves by their path below `params`."""

  def walk(node: Any, path: str) -> Iterable[tuple[str, Any]]:
    if isinstance(node, Mapping):
      for key, child in node.items():
        yield from walk(child, f'{path}/{key}' if path else key)
    else:
      yield path, node

  return dict(walk(tree['params'], ''))


def _nested(leaves: Mapping[str, Any]) -> Any:
  tree: dict[str, Any] = {}
  for path, leaf in leaves.items():
    *above, last = path.split('/')
    node = tree
    for key in above:
      node = node.setdefault(key, {})
    node[last] = leaf
  return {'params': tree}


def _some(names: list[str]) -> str:
  shown = ', '.join(names[:4]) or 'nothing'
  return shown if len(names) <= 4 else f'{shown} and {len(names) - 4} more'
