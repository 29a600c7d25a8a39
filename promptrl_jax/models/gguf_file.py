"""Reads GGUF files, the format of llama.cpp.

A header holds metadata by name and describes the tensors; their bytes follow,
often quantized in blocks of 32 or 256 weights of a row. The package `gguf` of
llama.cpp's authors knows the types and dequantizes them. Its reader of headers
makes an array of every entry, 10 s for a vocabulary of 262,144 tokens, so that
the header is read here, in 0.3 s.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import mmap
import os
import pathlib
import struct
from collections.abc import Callable
from concurrent import futures
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from promptrl_jax import extras
from promptrl_jax.models.torch_file import CheckpointError
from promptrl_jax.parallel import host_memory

_MAGIC = b'GGUF'
_VERSIONS = (2, 3)
# Types of metadata by their number.
_SCALARS = {
  0: '<u1',
  1: '<i1',
  2: '<u2',
  3: '<i2',
  4: '<u4',
  5: '<i4',
  6: '<f4',
  7: '?',
  10: '<u8',
  11: '<i8',
  12: '<f8',
}
_STRING, _ARRAY = 8, 9
TYPES = ('F32', 'F16', 'BF16', 'Q8_0', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1')
TYPES += ('Q4_K', 'Q5_K', 'Q6_K')
_SIZE = struct.Struct('<Q')  # of a text
_AT_ONCE = 1 << 17  # weights that are dequantized at once, to stay in a cache
_ROWS = 32  # A part has a multiple of so many: panels of `few_rows`.
_ALIGNMENT = 32  # of tensors, if the file does not say


class _Info(NamedTuple):
  """A tensor: its shape, the outermost axis first, its type and its place."""

  shape: tuple[int, ...]
  type: Any
  start: int
  row_bytes: int


class GgufFile:
  """The metadata and the tensors of one file; it stands for its path.

  Attributes:
    metadata: numbers, texts, lists of texts and arrays of numbers, by name.
  """

  def __init__(self, path: str | os.PathLike[str]):
    """Reads the header.

    Raises:
      CheckpointError: the file has another format, is truncated or a part of
        several, or has a tensor of an unknown type.
      ImportError: the package `gguf` is not installed.
    """
    self._gguf = extras.require('gguf', 'real', 'a GGUF file')
    self.path = pathlib.Path(path)
    with open(self.path, 'rb') as file:
      start = file.read(len(_MAGIC))
      if start != _MAGIC:
        raise CheckpointError(
          f'{self.path} starts with {start!r}: expected {_MAGIC!r}, is it GGUF?'
        )
      self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    self._at = len(_MAGIC)
    try:
      self.metadata, self._tensors = self._read_header()
    except (struct.error, UnicodeDecodeError) as error:
      raise self._truncated(f'its header cannot be read ({error})') from None
    if (parts := self.metadata.get('split.count', 1)) > 1:
      raise CheckpointError(
        f'{self.path} is one part of {parts}: expected the whole, which '
        '`llama-gguf-split --merge FIRST_PART WHOLE` of llama.cpp writes'
      )

  def __fspath__(self) -> str:
    return str(self.path)

  def names(self) -> set[str]:
    return set(self._tensors)

  def shape(self, name: str) -> tuple[int, ...]:
    return self._tensors[name].shape

  def type_name(self, name: str) -> str:
    """Returns the type of a tensor, such as `Q4_K`."""
    return self._tensors[name].type.name

  def rows(self, name: str) -> np.ndarray:
    """Returns the bytes of a tensor as a view of the file, [rows, bytes]."""
    info = self._tensors[name]
    count = math.prod(info.shape[:-1])
    flat = np.frombuffer(
      self._bytes, np.uint8, count * info.row_bytes, info.start
    )
    return flat.reshape(count, info.row_bytes)

  def read(
    self, name: str, dtype: Any = np.float32, order: np.ndarray | None = None
  ) -> np.ndarray:
    """Returns a tensor, dequantized in parts.

    Args:
      dtype: of the result.
      order: the rows of the result; None: all in their order.
    """
    shape = self.shape(name)
    result = host_memory.empty((math.prod(shape[:-1]), shape[-1]), dtype)
    self.read_parts(name, result.__setitem__, order)
    return result.reshape(shape)

  def read_parts(
    self,
    name: str,
    write: Callable[[slice, np.ndarray], None],
    order: np.ndarray | None = None,
  ) -> None:
    """Dequantizes a tensor; hands each part to `write`, in several threads.

    Args:
      write: function of the place of some rows and their weights [rows, n],
        which have the type of the file or are float32.
      order: as of `read`.
    """
    info, rows = self._tensors[name], self.rows(name)
    step = max(1, _AT_ONCE // info.shape[-1] // _ROWS) * _ROWS
    count = len(rows) if order is None else len(order)

    def read(start: int) -> None:
      part = slice(start, min(start + step, count))
      some = rows[part] if order is None else rows[order[part]]
      write(part, self._dequantize(some, info.type))

    # NumPy lets go of the interpreter's lock meanwhile.
    with futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
      for _ in threads.map(read, range(0, count, step)):
        pass

  def _dequantize(self, rows: np.ndarray, kind: Any) -> np.ndarray:
    views = {'F32': np.float32, 'F16': np.float16, 'BF16': ml_dtypes.bfloat16}
    if kind.name in views:
      return np.ascontiguousarray(rows).view(views[kind.name])
    # `quants.dequantize` takes 16 rows at once: a NumPy call of so few numbers
    # waits for the interpreter's lock longer than it works.
    blocks = rows.reshape(-1, self._gguf.GGML_QUANT_SIZES[kind][1])
    weights = getattr(self._gguf.quants, kind.name).dequantize_blocks(blocks)
    return weights.reshape(len(rows), -1)

  def _read_header(self) -> tuple[dict[str, Any], dict[str, _Info]]:
    version, num_tensors, num_fields = self._unpack('<IQQ')
    if version not in _VERSIONS:
      raise CheckpointError(
        f'{self.path} has version {version} of GGUF: expected one of '
        f'{_VERSIONS}, little-endian'
      )
    metadata = {}
    for _ in range(num_fields):
      name = self._text()
      metadata[name] = self._value(*self._unpack('<I'))
    described = [self._describe() for _ in range(num_tensors)]
    alignment = int(metadata.get('general.alignment', _ALIGNMENT))
    if alignment < 1:
      raise CheckpointError(
        f'{self.path} has general.alignment={alignment}: expected 1 or more'
      )
    data = -(-self._at // alignment) * alignment
    tensors = {
      name: info._replace(start=info.start + data) for name, info in described
    }
    for name, info in tensors.items():
      end = info.start + math.prod(info.shape[:-1]) * info.row_bytes
      if end > len(self._bytes):
        raise self._truncated(
          f'{name} ends at byte {end}, the file at {len(self._bytes)}'
        )
    return metadata, tensors

  def _describe(self) -> tuple[str, _Info]:
    """Reads name and description of a tensor, with its place in the data."""
    name = self._text()
    (axes,) = self._unpack('<I')
    shape = tuple(reversed(self._unpack(f'<{axes}Q')))
    number, start = self._unpack('<IQ')
    known = {self._gguf.GGMLQuantizationType[t].value: t for t in TYPES}
    if number not in known:
      raise CheckpointError(
        f'{self.path}: {name} has the type {self._type_of(number)}: expected '
        f'one of {", ".join(TYPES)}'
      )
    kind = self._gguf.GGMLQuantizationType(number)
    block, block_bytes = self._gguf.GGML_QUANT_SIZES[kind]
    if not shape or shape[-1] % block:
      raise CheckpointError(
        f'{self.path}: {name} of shape {shape} is no tensor of {kind.name}, '
        f'whose rows have a multiple of {block} weights'
      )
    return name, _Info(shape, kind, start, shape[-1] // block * block_bytes)

  def _type_of(self, number: int) -> str:
    try:
      return self._gguf.GGMLQuantizationType(number).name
    except ValueError:
      return str(number)

  def _value(self, kind: int) -> Any:
    if kind == _STRING:
      return self._text()
    if kind == _ARRAY:
      item, count = self._unpack('<IQ')
      if item == _STRING:
        return self._texts(count)
      return self._numbers(item, count)
    number = self._numbers(kind, 1)[0]
    # The shortest decimal of a float32 is what its author wrote: 1e-6.
    return float(str(number)) if number.dtype == np.float32 else number.item()

  def _numbers(self, kind: int, count: int) -> np.ndarray:
    if kind not in _SCALARS:
      raise self._truncated(f'its header has a value of the type {kind}')
    dtype = np.dtype(_SCALARS[kind])
    start = self._advance(count * dtype.itemsize)
    return np.frombuffer(self._bytes, dtype, count, start)

  def _text(self) -> str:
    return self._texts(1)[0]

  def _texts(self, count: int) -> list[str]:
    # Half a million of them: without `_unpack`, in a third of the time.
    data, at, end, texts = self._bytes, self._at, len(self._bytes), []
    for _ in range(count):
      (size,) = _SIZE.unpack_from(data, at)
      start, at = at + _SIZE.size, at + _SIZE.size + size
      if at > end:
        raise self._too_short(size, start)
      texts.append(data[start:at].decode())
    self._at = at
    return texts

  def _unpack(self, layout: str) -> tuple[Any, ...]:
    start = self._advance(struct.calcsize(layout))
    return struct.unpack_from(layout, self._bytes, start)

  def _advance(self, size: int) -> int:
    """Moves past `size` bytes; returns where they start."""
    start = self._at
    if start + size > len(self._bytes):
      raise self._too_short(size, start)
    self._at = start + size
    return start

  def _too_short(self, size: int, start: int) -> CheckpointError:
    return self._truncated(
      f'its header asks for {size} bytes at byte {start}, the file has '
      f'{len(self._bytes)}'
    )

  def _truncated(self, reason: str) -> CheckpointError:
    return CheckpointError(f'{self.path}: {reason}: truncated? Fetch it again')
