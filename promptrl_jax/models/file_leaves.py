"""Leaves of a parameter tree that stay in their files until they are used.

`weights.load_tree` reads a whole tree. Parameters are laid out for decoding
from one leaf of one layer at a time (`sampling/prepare.py`), so that memory
never holds them twice.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from flax import traverse_util

from promptrl_jax.models import few_rows, weights
from promptrl_jax.parallel import host_memory


@runtime_checkable
class _InParts(Protocol):
  """Tensors that are read in parts, see `GgufFile.read_parts`."""

  def read_parts(
    self, name: str, write: Callable[[slice, np.ndarray], None]
  ) -> None: ...


@dataclasses.dataclass(frozen=True, eq=False)
class FileLeaf:
  """A leaf, or the part of one layer in it; `np.asarray` reads it.

  Attributes:
    names: of the tensors in `tensors`, by their names in the rules.
    rules: those that fill the leaf.
    layer: number of the layer, if this is its part of a stack.
  """

  tensors: weights.Source
  names: Mapping[str, str]
  rules: tuple[weights.Rule, ...]
  shape: tuple[int, ...]
  dtype: np.dtype
  layer: int | None = None

  def __getitem__(self, layer: int) -> FileLeaf:
    """The part of one layer of a leaf whose first axis is that of layers."""
    return dataclasses.replace(self, shape=self.shape[1:], layer=layer)

  def fill(self, out: np.ndarray) -> None:
    """Reads the leaf into an array of its shape and type."""
    if self._is_stack:
      for i in range(len(out)):
        self[i].fill(out[i])
      return
    for rule in self.rules:
      host_memory.copy(out[rule.place], self._read(rule))

  def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
    if dtype not in (None, self.dtype) or copy is False:
      raise ValueError(f'{self.names} are read as {self.dtype} and copied')
    if len(self.rules) == 1 and not self.rules[0].index and not self._is_stack:
      return self._read(self.rules[0])
    # Kernels with the inputs last, as the files have them: `few_rows.pack` then
    # moves pairs of them.
    out = host_memory.empty((*self.shape[1:], self.shape[0]), self.dtype)
    out = np.moveaxis(out, -1, 0)
    self.fill(out)
    return out

  @property
  def _is_stack(self) -> bool:
    return self.layer is None and self.rules[0].is_layered

  def _read(self, rule: weights.Rule) -> np.ndarray:
    name = self.names[rule.name_of(self.layer)]
    tensor = rule.to_ours(weights.read(self.tensors, name))
    return tensor.astype(self.dtype, copy=False)


@dataclasses.dataclass(frozen=True, eq=False)
class PackedRows:
  """An embedding [out, in] that is read into panels of `few_rows`."""

  leaf: FileLeaf

  @property
  def shape(self) -> tuple[int, ...]:
    return few_rows.packed_shape(self.leaf)

  @property
  def dtype(self) -> np.dtype:
    return self.leaf.dtype

  def fill(self, out: np.ndarray) -> None:
    """Reads the embedding into panels of its shape and type."""
    leaf = self.leaf
    name = leaf.names[leaf.rules[0].name]
    write = functools.partial(few_rows.pack_rows, out)
    if isinstance(leaf.tensors, _InParts):
      leaf.tensors.read_parts(name, write)
    else:  # A view of the file.
      write(slice(0, len(out) * few_rows.OUTPUTS), np.asarray(leaf))


def load_tree(
  tensors: weights.Source, table: weights.Table, shapes: Any, dtype: Any
) -> Any:
  """Returns the tree of `weights.load_tree` with `FileLeaf`s for its arrays.

  Raises:
    CheckpointError: a tensor is missing, unknown or of the wrong shape.
  """
  leaves = weights.flat(shapes)
  names = weights.check_tensors(tensors, table, leaves)
  found = {
    path: FileLeaf(
      tensors,
      names,
      tuple(rule for rule in table.rules if rule.leaf == path),
      leaf.shape,
      np.dtype(dtype),
    )
    for path, leaf in leaves.items()
  }
  return {'params': traverse_util.unflatten_dict(found, sep='/')}
