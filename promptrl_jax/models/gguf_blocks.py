"""Quantized tensors of GGUF files in the parts that they are stored in.

`blocks.Blocks` keeps a code for each weight, and a scale and a minimum for each
32 weights of a row. Types that do not fit are dequantized by the package `gguf`
and quantized to 8 bits.

https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection
from typing import Any, Protocol

import jax
import numpy as np
from flax import traverse_util

from promptrl_jax.models import blocks, file_leaves, weights
from promptrl_jax.models.blocks import BLOCK, Blocks, quantize
from promptrl_jax.models.file_leaves import FileLeaf


@dataclasses.dataclass(frozen=True)
class _Layout:
  """A block of 32 weights: scale, minimum, fifth bits, and the codes.

  Attributes:
    bits: of a code, without the fifth.
    offset: what is taken off a code, if there is no minimum.
  """

  bits: int
  has_min: bool = False
  has_fifth: bool = False
  offset: int = 0


_LAYOUTS = {
  'Q4_0': _Layout(4, offset=8),
  'Q4_1': _Layout(4, has_min=True),
  'Q5_0': _Layout(4, has_fifth=True, offset=16),
  'Q5_1': _Layout(4, has_min=True, has_fifth=True),
  'Q8_0': _Layout(8),
}
_SUPER = 256  # weights of a block of Q4_K


class BlockSource(weights.Source, Protocol):
  """Tensors of which some are stored in blocks."""

  def type_name(self, name: str) -> str: ...

  def read_blocks(self, name: str, rows: np.ndarray) -> Blocks: ...


def load_tree(
  tensors: BlockSource,
  table: weights.Table,
  shapes: Any,
  dtype: Any,
  kernels: Collection[str],
) -> Any:
  """Returns a parameter tree whose kernels keep the blocks of the file.

  Args:
    shapes, dtype: as of `file_leaves.load_tree`.
    kernels: names of the leaves that become `KernelLeaf`s.

  Returns:
    The kernels in `blocks`, and the other leaves, `FileLeaf`s, in `params`.
  """
  leaves = weights.flat(file_leaves.load_tree(tensors, table, shapes, dtype))
  stored = {
    path: KernelLeaf(tensors, leaf)
    for path, leaf in leaves.items()
    if path.split('/')[-1] in kernels
  }
  others = {path: leaves[path] for path in leaves.keys() - stored.keys()}
  return {
    'params': traverse_util.unflatten_dict(others, sep='/'),
    'blocks': traverse_util.unflatten_dict(stored, sep='/'),
  }


@dataclasses.dataclass(frozen=True, eq=False)
class KernelLeaf:
  """A kernel that stays in its file until it is packed: a `blocks.Packable`."""

  tensors: BlockSource
  leaf: FileLeaf

  def __getitem__(self, layer: int) -> KernelLeaf:
    """The part of one layer, as of `FileLeaf`."""
    return KernelLeaf(self.tensors, self.leaf[layer])

  def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
    del dtype, copy  # Only what is not packed becomes an array.
    raise blocks.unfit(self.shape)

  @property
  def shape(self) -> tuple[int, int]:
    _, inputs = self.tensors.shape(self._names[0])
    return inputs, len(self._rows[0])

  @property
  def bits(self) -> int:
    return max(_bits(self.tensors.type_name(name)) for name in self._names)

  @property
  def has_mins(self) -> bool:
    return any(_has_mins(self.tensors.type_name(name)) for name in self._names)

  def read(self, outputs: slice) -> Blocks:
    """Returns some outputs, codes [in, n]."""
    tensors, rows = (x[outputs] for x in self._rows)
    count, inputs = len(rows), self.shape[0]
    found = Blocks(
      np.empty((count, inputs), np.int8),
      *(np.empty((count, inputs // BLOCK), np.float32) for _ in range(2)),
    )
    for i in np.unique(tensors):
      mine = tensors == i
      part = self.tensors.read_blocks(self._names[i], rows[mine])
      found.codes[mine], found.scales[mine] = part.codes, part.scales
      found.mins[mine] = part.mins
    return jax.tree.map(np.transpose, found)

  @functools.cached_property
  def _names(self) -> list[str]:
    """The tensors, by their names in the file."""
    leaf = self.leaf
    return [leaf.names[rule.name_of(leaf.layer)] for rule in leaf.rules]

  @functools.cached_property
  def _rows(self) -> tuple[np.ndarray, np.ndarray]:
    """Number of the tensor of each output, and the row in it."""
    rules, shape = self.leaf.rules, self.leaf.shape
    if rules[0].leaf == 'embedding':  # [out, in], unlike kernels.
      return np.zeros(shape[0], np.int32), np.arange(shape[0])
    tensors, rows = np.empty((2, 1, *shape[1:]), np.int32)
    for i, rule in enumerate(rules):
      count, _ = self.tensors.shape(self._names[i])
      tensors[rule.place] = i
      rows[rule.place] = rule.to_ours(np.arange(count)[:, None])
    return tensors.reshape(-1), rows.reshape(-1)


def _bits(kind: str) -> int:
  """Returns the bits of a code: 8 if the type is not kept as it is."""
  return 4 if kind in ('Q4_0', 'Q4_1', 'Q4_K') else 8


def _has_mins(kind: str) -> bool:
  return _bits(kind) == 4 or kind == 'Q5_1'


def read(rows: np.ndarray, kind: str) -> Blocks | None:
  """Splits the bytes of rows of weights; None if the type does not fit.

  Args:
    rows: uint8 [rows, bytes].
    kind: name of the type.

  Returns:
    Codes [rows, n], scales and mins [rows, n / 32].
  """
  if kind == 'Q4_K':
    parts = _read_q4_k(rows)
  elif kind in _LAYOUTS:
    parts = _read_simple(rows, _LAYOUTS[kind])
  else:
    return None
  return jax.tree.map(lambda part: part.reshape(len(rows), -1), parts)


def of_weights(
  shape: tuple[int, ...],
  read_parts: Callable[[Callable[[slice, np.ndarray], None]], None],
) -> Blocks:
  """Quantizes rows of weights to 8 bits, as `read` returns them.

  Args:
    shape: [rows, n].
    read_parts: hands some rows after the other to a function, as
      `GgufFile.read_parts`.
  """
  blocks = shape[0], shape[1] // BLOCK
  out = Blocks(
    np.empty(shape, np.int8),
    np.empty(blocks, np.float32),
    np.zeros(blocks, np.float32),
  )

  def write(part: slice, rows: np.ndarray) -> None:
    found = quantize(rows.T)
    out.codes[part], out.scales[part] = found.codes.T, found.scales.T

  read_parts(write)
  return out


def _read_simple(rows: np.ndarray, layout: _Layout) -> Blocks:
  size = 2 + 2 * layout.has_min + 4 * layout.has_fifth + 4 * layout.bits
  data = np.ascontiguousarray(rows).reshape(-1, size)
  fields = 1 + layout.has_min
  halves = data[:, : 2 * fields].copy().view(np.float16).astype(np.float32)
  data, scales = data[:, 2 * fields :], halves[:, 0]
  mins = halves[:, 1] if layout.has_min else np.zeros_like(scales)
  if layout.bits == 8:
    return Blocks(data.view(np.int8), scales, mins)
  codes = _nibbles(data[:, -BLOCK // 2 :]).astype(np.int8)
  if layout.has_fifth:
    codes += np.unpackbits(data[:, :4], axis=1, bitorder='little') << 4
  if layout.has_fifth and layout.offset:
    codes -= layout.offset
  elif layout.offset:  # Codes of 4 bits stay from 0 to 15.
    mins = -layout.offset * scales
  return Blocks(codes, scales, mins)


def _read_q4_k(rows: np.ndarray) -> Blocks:
  """Splits blocks of 256: eight scales and minima of 6 bits in 12 bytes."""
  data = np.ascontiguousarray(rows).reshape(-1, 4 + 12 + _SUPER // 2)
  halves = data[:, :4].copy().view(np.float16).astype(np.float32)
  low, middle, high = (data[:, 4:16].reshape(-1, 3, 4)[:, i] for i in range(3))
  scales = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], axis=1)
  mins = np.concatenate([middle & 63, (high >> 4) | (middle >> 6) << 4], axis=1)
  codes = _nibbles(data[:, 16:].reshape(-1, BLOCK)).astype(np.int8)
  return Blocks(codes, halves[:, :1] * scales, -halves[:, 1:] * mins)


def _nibbles(data: np.ndarray) -> np.ndarray:
  """The lower halves of the bytes of each row, then the upper ones."""
  return np.concatenate([data & 15, data >> 4], axis=1)
