"""The tensors of a folder by name, whatever files they lie in.

safetensors, or what `torch.save` wrote; in one file, or in several with an
index that says which tensor is in which.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import safetensors

from promptrl_jax.models.torch_file import CheckpointError, TorchFile

WEIGHTS = 'model.safetensors'
INDEX = 'model.safetensors.index.json'
TORCH_WEIGHTS = 'pytorch_model.bin'
TORCH_INDEX = 'pytorch_model.bin.index.json'


class Tensors:
  """The tensors of a folder, each read when it is asked for.

  Of two formats it takes safetensors, as transformers does.
  """

  def __init__(self, folder: str | os.PathLike[str]):
    """Reads the headers.

    Raises:
      FileNotFoundError: the folder, or a file that its index names, is missing.
      CheckpointError: a file is truncated or of another format.
    """
    self.folder = pathlib.Path(folder)
    self._file_of: dict[str, Any] = {}
    for path, named, index in _files(self.folder):
      opened = _open(path)
      names = opened.names()
      if named is not None and (missing := sorted(named - names)):
        raise CheckpointError(
          f'{path} lacks {missing[0]!r}, which {index} says it holds'
        )
      self._file_of |= dict.fromkeys(names, opened)

  def names(self) -> set[str]:
    return set(self._file_of)

  def shape(self, name: str) -> tuple[int, ...]:
    return self._file_of[name].shape(name)

  def read(self, name: str) -> np.ndarray:
    return self._file_of[name].read(name)


def has_safetensors(folder: str | os.PathLike[str]) -> bool:
  """Whether the weights of a folder are safetensors."""
  folder = pathlib.Path(folder)
  return any((folder / name).is_file() for name in (INDEX, WEIGHTS))


def paths(folder: str | os.PathLike[str]) -> list[pathlib.Path]:
  """The files that `Tensors` reads tensors from, sorted.

  Raises:
    FileNotFoundError, CheckpointError: as `Tensors`.
  """
  return [path for path, _, _ in _files(pathlib.Path(folder))]


class _Safetensors:
  """What `TorchFile` is, of a file of safetensors."""

  def __init__(self, path: pathlib.Path):
    try:
      self._opened: Any = safetensors.safe_open(path, framework='numpy')
    except safetensors.SafetensorError as error:
      raise CheckpointError(
        f'{path} cannot be read ({error}): truncated? Download it again'
      ) from None

  def names(self) -> set[str]:
    return set(self._opened.keys())

  def shape(self, name: str) -> tuple[int, ...]:
    return tuple(self._opened.get_slice(name).get_shape())

  def read(self, name: str) -> np.ndarray:
    return self._opened.get_tensor(name)


def _open(path: pathlib.Path) -> _Safetensors | TorchFile:
  is_torch = path.suffix != '.safetensors'
  return TorchFile(path) if is_torch else _Safetensors(path)


def _files(
  folder: pathlib.Path,
) -> Iterator[tuple[pathlib.Path, set[str] | None, str]]:
  """Each file, the tensors that an index says it holds, and which index."""
  kinds = ((INDEX, WEIGHTS), (TORCH_INDEX, TORCH_WEIGHTS))
  for index, single in kinds:
    if (folder / index).is_file():
      yield from _indexed(folder, index)
      return
    if (folder / single).is_file():
      yield folder / single, None, index
      return
  raise FileNotFoundError(
    f'no weights in {folder}: expected one of '
    f'{", ".join(name for kind in kinds for name in reversed(kind))}'
  )


def _indexed(
  folder: pathlib.Path, index: str
) -> Iterator[tuple[pathlib.Path, set[str], str]]:
  try:
    text = (folder / index).read_text(encoding='utf-8')
    files = json.loads(text)['weight_map']
  except (ValueError, KeyError) as error:
    raise CheckpointError(f'{folder / index} is no index: {error!r}') from None
  for name in sorted(set(files.values())):
    path = folder / name
    if not path.is_file():
      raise FileNotFoundError(f'{path} is missing; {index} names it')
    yield path, {key for key, file in files.items() if file == name}, index
