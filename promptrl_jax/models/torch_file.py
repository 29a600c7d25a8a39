"""Reads checkpoints of `torch.save` safely and without torch.

Since torch 1.6 such a file is a zip archive. Its entry `data.pkl` describes
each tensor by name, storage, offset and strides; the entries `data/0`,
`data/1`, ... hold the uncompressed bytes of the storages. A pickle can call any
Python function, so the unpickler of this module accepts only the three kinds of
globals that describe tensors, and refuses all others.
"""

from __future__ import annotations

import collections
import io
import math
import mmap
import os
import pathlib
import pickle
import zipfile
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

# Storage class in the pickle -> type of its elements.
_DTYPES = {
  'DoubleStorage': np.float64,
  'FloatStorage': np.float32,
  'HalfStorage': np.float16,
  'BFloat16Storage': ml_dtypes.bfloat16,
  'LongStorage': np.int64,
  'IntStorage': np.int32,
  'ShortStorage': np.int16,
  'CharStorage': np.int8,
  'ByteStorage': np.uint8,
  'BoolStorage': np.bool_,
}
# The first bytes of files from torch before 1.6: a pickled magic number.
_LEGACY = b'\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.'
_LOCAL_HEADER = 30  # bytes of a zip entry's header before its two names
_CONVERT = (
  'convert it where torch is installed: safetensors.torch.save_file('
  "torch.load('{0}', weights_only=True), 'model.safetensors')"
)


class CheckpointError(ValueError):
  """A checkpoint that cannot be read or does not fit its model."""


# These are tuples because a pickle can set attributes of other objects.
class _Storage(NamedTuple):
  """A storage: element type, name of its zip entry, and number of elements."""

  dtype: np.dtype
  key: str
  size: int


class _Tensor(NamedTuple):
  """A tensor as a view of a storage; offset and strides count elements."""

  storage: _Storage
  offset: int
  shape: tuple[int, ...]
  strides: tuple[int, ...]


class TorchFile:
  """The tensors of one file, each a view of the memory-mapped file."""

  def __init__(self, path: str | os.PathLike[str]):
    """Reads the descriptions of all tensors.

    Raises:
      CheckpointError: the file has another format, is truncated, names a
        forbidden global, or holds something other than tensors by name.
    """
    self._path = pathlib.Path(path)
    with open(self._path, 'rb') as file:
      start = file.read(len(_LEGACY))
      if not start.startswith(b'PK'):
        raise CheckpointError(self._no_archive(start))
      self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
      try:
        with zipfile.ZipFile(file) as archive:
          self._entries = {i.filename: i for i in archive.infolist()}
          self._root = self._find_root()
          pickled = archive.read(f'{self._root}data.pkl')
          order = b'little'
          if f'{self._root}byteorder' in self._entries:
            order = archive.read(f'{self._root}byteorder')
      except (zipfile.BadZipFile, EOFError, RuntimeError) as error:
        raise CheckpointError(
          f'{self._path} cannot be read ({error}): truncated? Download it again'
        ) from None
    if order != b'little':
      raise CheckpointError(
        f'{self._path} has the byte order {order!r}: expected little; '
        + _CONVERT.format(self._path.name)
      )
    self._tensors = self._unpickle(pickled)

  def names(self) -> set[str]:
    return set(self._tensors)

  def shape(self, name: str) -> tuple[int, ...]:
    return self._tensors[name].shape

  def read(self, name: str) -> np.ndarray:
    """Returns a tensor as a read-only view of the file."""
    tensor = self._tensors[name]
    storage = tensor.storage
    if not math.prod(tensor.shape):
      return np.zeros(tensor.shape, storage.dtype)
    start = self._data_start(storage)
    flat = np.frombuffer(self._bytes, storage.dtype, storage.size, start)
    return np.lib.stride_tricks.as_strided(
      flat[tensor.offset :],
      tensor.shape,
      [stride * storage.dtype.itemsize for stride in tensor.strides],
      writeable=False,
    )

  def _no_archive(self, start: bytes) -> str:
    if start == _LEGACY:
      return (
        f'{self._path} was written by torch before 1.6, in another format: '
        + _CONVERT.format(self._path.name)
      )
    return (
      f'{self._path} starts with {start!r} and is no file of torch.save: was '
      'a pointer downloaded instead of the file? Download it again'
    )

  def _find_root(self) -> str:
    """Returns the archive's root folder, named after the file when saved."""
    roots = [
      name.removesuffix('data.pkl')
      for name in self._entries
      if name.endswith('/data.pkl')
    ]
    if len(roots) != 1:
      raise CheckpointError(
        f'{self._path} is an archive with {len(roots)} files data.pkl: '
        'expected one, as torch.save writes it'
      )
    return roots[0]

  def _unpickle(self, pickled: bytes) -> dict[str, _Tensor]:
    """Returns the tensors that `data.pkl` describes."""
    try:
      content = _Unpickler(io.BytesIO(pickled)).load()
    except CheckpointError as error:
      raise CheckpointError(f'{self._path}: {error}') from None
    except Exception as error:  # Bytes that are no pickle raise anything.
      raise CheckpointError(
        f'{self._path}: data.pkl cannot be read ({error!r}): damaged? '
        'Download it again'
      ) from None
    if not isinstance(content, dict):
      raise CheckpointError(
        f'{self._path} holds a {type(content).__name__}: expected tensors by '
        'name'
      )
    # `content.items` is not safe: a pickle can replace it on an OrderedDict.
    tensors = dict(dict.items(content))
    for name, tensor in tensors.items():
      if not (isinstance(name, str) and isinstance(tensor, _Tensor)):
        raise CheckpointError(
          f'{self._path} has a {type(tensor).__name__} under {name!r}: '
          'expected tensors by name, as model.state_dict() gives them'
        )
      self._check(name, tensor)
    return tensors

  def _check(self, name: str, tensor: _Tensor) -> None:
    """Raises an error if a tensor exceeds its storage or the file."""
    if not math.prod(tensor.shape):
      return
    storage = tensor.storage
    steps = zip(tensor.shape, tensor.strides, strict=True)
    last = tensor.offset + sum((n - 1) * stride for n, stride in steps)
    if last >= storage.size:
      raise CheckpointError(
        f'{self._path}: {name} reaches to element {last} of a storage of '
        f'{storage.size}: damaged? Download it again'
      )
    entry = self._entries.get(f'{self._root}data/{storage.key}')
    size = storage.size * storage.dtype.itemsize
    if (
      entry is None
      or entry.compress_type != zipfile.ZIP_STORED
      or entry.file_size < size
      or self._data_start(storage) + size > len(self._bytes)
    ):
      raise CheckpointError(
        f'{self._path}: {name} needs {size} bytes of data/{storage.key}, not '
        'compressed, which are not there: truncated? Download it again'
      )

  def _data_start(self, storage: _Storage) -> int:
    """Returns the offset in the file at which the bytes of a storage start."""
    header = self._entries[f'{self._root}data/{storage.key}'].header_offset
    # The local header has its own lengths of name and padding, which may differ
    # from those in the central directory.
    lengths = self._bytes[header + 26 : header + _LOCAL_HEADER]
    name, extra = lengths[:2], lengths[2:]
    return (
      header
      + _LOCAL_HEADER
      + int.from_bytes(name, 'little')
      + int.from_bytes(extra, 'little')
    )


class _Unpickler(pickle.Unpickler):
  """An unpickler that accepts nothing but dictionaries of tensors."""

  def find_class(self, module: str, name: str) -> Any:
    if (module, name) == ('collections', 'OrderedDict'):
      return collections.OrderedDict
    if (module, name) == ('torch._utils', '_rebuild_tensor_v2'):
      return lambda *args: _rebuild(*args)  # A pickle can set its attributes.
    if module == 'torch' and name in _DTYPES:
      return name
    raise CheckpointError(
      f'the pickle asks for {module}.{name}, which is not read: expected '
      'nothing but tensors by name. Do not load it with torch unless you trust '
      'who wrote it'
    )

  def persistent_load(self, pid: Any) -> _Storage:
    kind, dtype, key, _, size = pid
    if kind != 'storage' or dtype not in _DTYPES:
      raise CheckpointError(f'the pickle asks for {pid!r}: expected a storage')
    return _Storage(np.dtype(_DTYPES[dtype]), str(key), _natural(size))


def _rebuild(
  storage: _Storage,
  offset: int,
  shape: tuple[int, ...],
  strides: tuple[int, ...],
  *_: Any,
) -> _Tensor:
  """Replaces `torch._utils._rebuild_tensor_v2`; ignores gradient settings."""
  if not isinstance(storage, _Storage) or len(shape) != len(strides):
    raise CheckpointError(f'a tensor of {storage!r}, {shape!r}, {strides!r}')
  return _Tensor(
    storage,
    _natural(offset),
    tuple(map(_natural, shape)),
    tuple(map(_natural, strides)),
  )


def _natural(value: Any) -> int:
  """Returns `value` if it is an integer of at least 0, else raises."""
  if not isinstance(value, int) or value < 0:
    raise CheckpointError(f'{value!r} stands where a size is expected')
  return value
