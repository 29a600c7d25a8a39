"""Quantized tensors of GGUF files in the parts that they are stored in.

`blocks.Blocks` keeps a code for each weight, and a scale and a minimum for each
32 weights of a row. Types that do not fit are dequantized by the package `gguf`
and quantized to 8 bits.

https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Collection
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from promptrl_jax.models import file_leaves, weights
from promptrl_jax.models.blocks import BLOCK, Blocks, quantize


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

  def read_blocks(self, name: str) -> Blocks: ...


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
    kernels: names of the leaves that become `Blocks`.

  Returns:
    A tree of `FileLeaf`s: the kernels in `blocks`, the others in `params`.
  """
  leaves: dict[str, Any] = {
    **traverse_util.flatten_dict(shapes['params'], sep='/')
  }
  rules = [r for r in table.rules if r.leaf.split('/')[-1] in kernels]
  others = tuple(r for r in table.rules if r not in rules)
  names = {n for r in rules for n, _ in r.names(leaves[r.leaf].shape[0])}

  def load(rules, source, dtype, divisor=1):
    wanted = {r.leaf: _divided(leaves[r.leaf], r, divisor) for r in rules}
    tree = traverse_util.unflatten_dict(wanted, sep='/')
    part = dataclasses.replace(table, rules=tuple(rules))
    tree = file_leaves.load_tree(source, part, {'params': tree}, dtype)
    return tree['params']

  rest = _Part(tensors, tensors.names() - names, '')
  codes, scales, mins = (
    load(rules, _Part(tensors, names, kind), dtype, divisor)
    for kind, dtype, divisor in (
      ('codes', jnp.int8, 1),
      ('scales', jnp.float32, BLOCK),
      ('mins', jnp.float32, BLOCK),
    )
  )
  return {
    'params': load(others, rest, dtype),
    'blocks': jax.tree.map(Blocks, codes, scales, mins),
  }


def _divided(leaf: Any, rule: weights.Rule, divisor: int) -> Any:
  """Returns the shape of a leaf with fewer inputs."""
  axis = int(rule.is_layered or rule.leaf == 'embedding')
  shape = list(leaf.shape)
  shape[axis] //= divisor
  return jax.ShapeDtypeStruct(tuple(shape), leaf.dtype)


class _Part:
  """Some of the tensors: all of each, or one field of its blocks."""

  def __init__(self, tensors: BlockSource, names: set[str], field: str):
    self.folder: pathlib.Path = tensors.folder
    self._tensors, self._names, self._field = tensors, names, field

  def names(self) -> set[str]:
    return self._names

  def shape(self, name: str) -> tuple[int, ...]:
    shape = self._tensors.shape(name)
    if self._field in ('scales', 'mins'):
      return (*shape[:-1], shape[-1] // BLOCK)
    return shape

  def read(self, name: str) -> np.ndarray:
    if not self._field:
      return self._tensors.read(name)
    return getattr(self._tensors.read_blocks(name), self._field)


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
