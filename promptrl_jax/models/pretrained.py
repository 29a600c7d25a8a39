"""Loads and saves models in Hugging Face's format; loads GGUF files.

A model folder holds `config.json`, the weights as safetensors or
`pytorch_model.bin`, and the tokenizer. A GGUF file holds all of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from promptrl_jax.files import write_atomically
from promptrl_jax.models import (
  causal_families,
  encoder,
  encoder_decoder,
  encoder_weights,
  file_leaves,
  gguf_blocks,
  gguf_model,
  lora,
  tensor_files,
  transformer,
  weights,
)
from promptrl_jax.models import tokenizer as tokenizer_lib
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.gguf_file import GgufFile
from promptrl_jax.models.kernels import KERNELS
from promptrl_jax.parallel import sharding

CONFIG, TOKENIZER = 'config.json', 'tokenizer.json'
AS_STORED = 'gguf'  # the dtype of kernels in the blocks of their file
# Files of older folders without `tokenizer.json`.
_VOCABULARIES = ('vocab.*', 'merges.txt', '*.model')


@dataclasses.dataclass(frozen=True)
class Family:
  """Functions that read and write the models of a family.

  Attributes:
    partition: sharding rules of the parameters and, if the family supports
      them, of adapters.
    as_stored: function from (config, tensors) to the config with those fields
      corrected that `config.json` does not state reliably.
  """

  from_hf: Callable[[Mapping[str, Any]], Any]
  to_hf: Callable[[Any], dict[str, Any]]
  shapes: Callable[[Any], Any]
  table: Callable[[Any], weights.Table]
  partition: sharding.Rules
  as_stored: Callable[[Any, weights.Source], Any] = lambda config, _: config


_CAUSAL = Family(
  causal_families.from_hf,
  causal_families.to_hf,
  transformer.shapes,
  causal_families.table,
  lora.partition(causal_families.PARTITION),
)
_T5 = Family(
  encoder_decoder.from_hf,
  encoder_decoder.to_hf,
  encoder_decoder.shapes,
  encoder_decoder.table,
  lora.partition(encoder_decoder.PARTITION),
  encoder_decoder.as_stored,
)
_BERT = Family(
  encoder_weights.from_hf,
  encoder_weights.to_hf,
  encoder.shapes,
  encoder_weights.table,
  encoder_weights.PARTITION,
  encoder_weights.as_stored,
)
FAMILIES = dict.fromkeys(causal_families.MODEL_TYPES, _CAUSAL) | {
  't5': _T5,
  'bert': _BERT,
}


def family(model_type: str | None) -> Family:
  """Returns the family of a model type."""
  if model_type not in FAMILIES:
    raise ValueError(
      f'model_type={model_type!r}: expected one of {", ".join(FAMILIES)}'
    )
  return FAMILIES[model_type]


def load_config(folder: str | os.PathLike[str]) -> Any:
  """Reads the `config.json` of a model folder, or the header of a GGUF file."""
  if gguf_model.is_gguf(folder):
    return _gguf_config(gguf_model.opened(folder))
  path = pathlib.Path(folder) / CONFIG
  if not path.is_file():
    raise FileNotFoundError(f'no {CONFIG} in {folder}: is this a model folder?')
  return _config(_json(path), path)


def _gguf_config(file: GgufFile) -> Any:
  return _config(gguf_model.hf_values(file), file.path)


def _config(values: Mapping[str, Any], path: pathlib.Path) -> Any:
  try:
    return family(values.get('model_type')).from_hf(values)
  except ValueError as error:
    raise weights.CheckpointError(f'{path}: {error}') from None


def _json(path: pathlib.Path) -> dict[str, Any]:
  try:
    return json.loads(path.read_text(encoding='utf-8'))
  except ValueError as error:
    raise ValueError(f'{path}: {error}') from None


def load_model(
  folder: str | os.PathLike[str],
  mesh: Mesh | None = None,
  dtype: Any = jnp.float32,
  in_file: bool = False,
) -> tuple[Any, Any]:
  """Loads config and parameters as `load_pretrained`, without a tokenizer."""
  in_blocks = dtype == AS_STORED
  if in_blocks:
    dtype = jnp.bfloat16
    if mesh is not None or not gguf_model.is_gguf(folder):
      raise ValueError(
        f'dtype={AS_STORED!r}: expected a GGUF file, not {os.fspath(folder)}, '
        'and a mesh that splits no parameters; or load the model as bfloat16 '
        'or int8'
      )
  if gguf_model.is_gguf(folder):
    file = gguf_model.opened(folder)
    config = _gguf_config(file)
    tensors = gguf_model.GgufTensors(file, config, dtype)
  else:
    config, tensors = load_config(folder), weights.Tensors(folder)
  model_family = family(config.family)
  on_cpu = jax.default_backend() == 'cpu'
  activations = jnp.float32 if on_cpu else dtype
  config = dataclasses.replace(
    model_family.as_stored(config, tensors), dtype=jnp.dtype(activations).name
  )
  shapes = model_family.shapes(config)
  shardings = None
  if mesh is not None:
    shardings = sharding.shardings(shapes, model_family.partition, mesh)
  table = model_family.table(config)
  if in_blocks and isinstance(tensors, gguf_model.GgufTensors):
    tied = ['embedding'] if config.tie_embeddings else []
    return config, gguf_blocks.load_tree(
      tensors, table, shapes, dtype, [*KERNELS, *tied]
    )
  if in_file and mesh is None:
    return config, file_leaves.load_tree(tensors, table, shapes, dtype)
  params = weights.load_tree(tensors, table, shapes, dtype, shardings)
  return config, params


def load_pretrained(
  source: str | os.PathLike[str],
  mesh: Mesh | None = None,
  dtype: Any = jnp.float32,
  revision: str | None = None,
  layout: Callable[[Any, Any], Any] | None = None,
) -> tuple[Any, Any, tokenizer_lib.Tokenizer]:
  """Loads a model and its tokenizer, each tensor directly onto its devices.

  Args:
    source: a model folder, a GGUF file, or the id of a model on the hub.
    mesh: devices for the parameters, which are split over the axes `fsdp` and
      `tensor`; None: the first device.
    dtype: type of the parameters and, on accelerators, of the activations. On
      CPU the activations are float32, which is faster there. `gguf` keeps the
      kernels of a GGUF file in 4 or 8 bits as they are stored, see
      `blocks.Blocks`, and the rest in bfloat16.
    layout: function from config and parameters to what is returned for them,
      called while the tokenizer is read. On CPU and without a mesh, its
      parameters are in their files (`file_leaves.FileLeaf`), as those of `gguf`
      always are, so that it holds no second copy.

  Raises:
    FileNotFoundError: the folder or model does not exist or lacks a file.
    ValueError: a file cannot be read, or the mesh does not divide a tensor; the
      text names the file, key or number.
  """
  folder = find(source, revision)
  files = gguf_model.opened(folder) if gguf_model.is_gguf(folder) else folder
  # A vocabulary of 262,144 tokens takes as long as weights of 250 MB.
  with futures.ThreadPoolExecutor(1) as thread:
    reading = thread.submit(_load_tokenizer, files, layout is not None)
    in_file = layout is not None and jax.default_backend() == 'cpu'
    config, params = load_model(files, mesh, dtype, in_file)
    if layout is not None:
      params = layout(config, params)
    tokenizer = reading.result()
  if tokenizer.vocab_size > config.vocab_size:
    raise ValueError(
      f'{folder}: the tokenizer has {tokenizer.vocab_size} tokens, more than '
      f'the {config.vocab_size} of the model'
    )
  if isinstance(config, TransformerConfig):
    # Causal models continue a text, so the prompt must not end with EOS.
    tokenizer = dataclasses.replace(tokenizer, end=())
  return config, params, tokenizer


def save_model(
  folder: str | os.PathLike[str], config: Any, params: Any, dtype: Any = None
) -> None:
  """Writes config and parameters as `save_pretrained`, without a tokenizer."""
  weights.save_tree(folder, params, family(config.family).table(config), dtype)
  write_config(folder, config, dtype or jax.tree.leaves(params)[0].dtype)


def save_pretrained(
  folder: str | os.PathLike[str],
  config: Any,
  params: Any,
  tokenizer: tokenizer_lib.Tokenizer,
  dtype: Any = None,
) -> None:
  """Writes a folder that `load_pretrained` and transformers can read.

  Each file is written atomically; `dtype` is the type of the tensors in the
  file, None that of the parameters.
  """
  save_model(folder, config, params, dtype)
  tokenizer_lib.save(folder, tokenizer)


def _load_tokenizer(source: Any, renders: bool) -> tokenizer_lib.Tokenizer:
  tokenizer = tokenizer_lib.load(source)
  if renders and tokenizer.chat is not None:
    _ = tokenizer.chat.renderer  # Half a second, which the weights take, too.
  return tokenizer


def write_config(
  folder: str | os.PathLike[str], config: Any, dtype: Any
) -> None:
  """Writes `config.json`; `dtype` is the type of the tensors in the folder."""
  values = {
    **family(config.family).to_hf(config),
    'dtype': jnp.dtype(dtype).name,
  }
  text = json.dumps(values, indent=2) + '\n'
  write_atomically(pathlib.Path(folder) / CONFIG, text.encode())


def find(
  source: str | os.PathLike[str], revision: str | None = None
) -> pathlib.Path:
  """Returns a model folder, which is downloaded if `source` is a hub id.

  A GGUF file stands for a folder.

  Raises:
    FileNotFoundError: `source` is neither a folder nor a model that can be
      downloaded; the text says whether the network, the name or a licence is
      the reason.
  """
  folder = pathlib.Path(source)
  if folder.is_dir() or (gguf_model.is_gguf(folder) and folder.is_file()):
    return folder
  if gguf_model.is_gguf(folder):
    raise FileNotFoundError(
      f'model {str(source)!r}: no such file; expected the path of a GGUF file'
    )
  import huggingface_hub
  from huggingface_hub import errors

  def download(*patterns: str) -> pathlib.Path:
    return pathlib.Path(
      huggingface_hub.snapshot_download(
        str(source), revision=revision, allow_patterns=list(patterns)
      )
    )

  try:
    folder = download('*.json', '*.safetensors', '*.model', '*.jinja', '*.txt')
    # Many models provide the same weights in both formats.
    if not tensor_files.has_safetensors(folder):
      folder = download('pytorch_model*.bin')
    return folder
  except errors.GatedRepoError:
    reason = (
      'its licence has to be accepted on its page first; then set HF_TOKEN to '
      'a token of that account'
    )
  except (errors.RepositoryNotFoundError, errors.HFValidationError):
    reason = 'no such folder, and the hub knows no such model'
  except errors.RevisionNotFoundError:
    reason = f'the hub has no revision {revision!r} of it'
  except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, OSError):
    reason = (
      'no such folder, it was not fetched before, and the hub cannot be '
      'reached: give a folder, or fetch it on a machine with a network'
    )
  raise FileNotFoundError(f'model {str(source)!r}: {reason}')


def digest(folder: str | os.PathLike[str]) -> str:
  """Returns a short SHA-256 of weights and tokenizer, to identify the model."""
  folder = pathlib.Path(folder)
  if gguf_model.is_gguf(folder):
    return _digest([folder])
  vocabulary = [folder / TOKENIZER]
  if not vocabulary[0].is_file():  # Older folders have these files instead.
    vocabulary = sorted(
      path for name in _VOCABULARIES for path in folder.glob(name)
    )
  return _digest([*tensor_files.paths(folder), *vocabulary])


def _digest(paths: Iterable[pathlib.Path]) -> str:
  sha = hashlib.sha256()
  for path in paths:
    with open(path, 'rb') as file:
      while chunk := file.read(1 << 22):
        sha.update(chunk)
  return sha.hexdigest()[:16]
