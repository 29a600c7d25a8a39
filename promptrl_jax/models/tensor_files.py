"""Reads the tensors of a checkpoint folder by name.

The tensors lie in safetensors files or files of `torch.save`: in one file, or
in several with an index that maps each tensor to its file.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import safetensors

from promptrl_jax.models.torch_file import CheckpointError, TorchFile

WEIGHTS = 'model.safetensors'
INDEX = 'model.safetensors.index.json'
TORCH_WEIGHTS = 'pytorch_model.bin'
TORCH_INDEX = 'pytorch_model.bin.index.json'


class Source(Protocol):
  """Tensors by their names in a checkpoint of Hugging Face.

  Attributes:
    folder: where they come from, for messages.
  """

  folder: pathlib.Path

  def names(self) -> set[str]: ...

  def shape(self, name: str) -> tuple[int, ...]: ...

  def read(self, name: str) -> np.ndarray: ...


class Tensors:
  """The tensors of a folder, each read on request.

  If a folder has both formats, safetensors are preferred, as by transformers.
  """

  def __init__(self, folder: str | os.PathLike[str]):
    """Reads the headers.

    Raises:
      FileNotFoundError: the folder, or a file that its index lists, is missing.
      CheckpointError: a file is truncated or has another format.
    """
    self.folder = pathlib.Path(folder)
    self._file_of: dict[str, Any] = {}
    for path, indexed, index in _files(self.folder):
      is_safe = path.suffix == '.safetensors'
      file = _Safetensors(path) if is_safe else TorchFile(path)
      names = file.names()
      if indexed is not None and (missing := sorted(indexed - names)):
        raise CheckpointError(
          f'{path} lacks {missing[0]!r}, which {index} says it holds'
        )
      self._file_of |= dict.fromkeys(names, file)

  def names(self) -> set[str]:
    return set(self._file_of)

  def shape(self, name: str) -> tuple[int, ...]:
    return self._file_of[name].shape(name)

  def read(self, name: str) -> np.ndarray:
    return self._file_of[name].read(name)


def has_safetensors(folder: str | os.PathLike[str]) -> bool:
  """Returns whether a folder has its weights as safetensors."""
  folder = pathlib.Path(folder)
  return any((folder / name).is_file() for name in (INDEX, WEIGHTS))


def paths(folder: str | os.PathLike[str]) -> list[pathlib.Path]:
  """Returns the sorted files from which `Tensors` reads."""
  return [path for path, _, _ in _files(pathlib.Path(folder))]


class _Safetensors:
  """The tensors of one safetensors file, with the interface of `TorchFile`."""

  def __init__(self, path: pathlib.Path):
    try:
      self._file: Any = safetensors.safe_open(path, framework='numpy')
    except safetensors.SafetensorError as error:
      raise CheckpointError(
        f'{path} cannot be read ({error}): truncated? Download it again'
      ) from None

  def names(self) -> set[str]:
    return set(self._file.keys())

  def shape(self, name: str) -> tuple[int, ...]:
    return tuple(self._file.get_slice(name).get_shape())

  def read(self, name: str) -> np.ndarray:
    return self._file.get_tensor(name)


def _files(
  folder: pathlib.Path,
) -> Iterator[tuple[pathlib.Path, set[str] | None, str]]:
  """Yields (file, names of its tensors in the index or None, index)."""
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
