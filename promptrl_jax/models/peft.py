"""Reads and writes adapters in the format of the PEFT library.

A folder holds `adapter_config.json` and `adapter_model.safetensors`, which has
two tensors for each projection of each layer. For Llama-like families these are

  base_model.model.model.layers.N.self_attn.q_proj.lora_A.weight  [r, in]
  base_model.model.model.layers.N.self_attn.q_proj.lora_B.weight  [out, r]

T5 names them `base_model.model.decoder.block.N.layer.1.EncDecAttention.q`.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
from flax import traverse_util
from safetensors import numpy as st_numpy

from promptrl_jax.files import write_atomically
from promptrl_jax.models import lora, pretrained, weights
from promptrl_jax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  LanguageModelConfig,
)
from promptrl_jax.models.lora import PARTS, LoraConfig, Part

CONFIG = 'adapter_config.json'
WEIGHTS = 'adapter_model.safetensors'

_KEY = 'base_model.model.{module}.lora_{matrix}.weight'
_EMBEDDINGS = ('embed_tokens', 'lm_head', 'wte', 'shared')
# Fields that do not change what a trained adapter computes. All other fields
# must be empty, because an unknown setting could mean another formula.
_HARMLESS = {
  'auto_mapping',
  'base_model_name_or_path',
  'bias',
  'fan_in_fan_out',  # the storage order of the model's own weights
  'inference_mode',
  'init_lora_weights',
  'layers_pattern',
  'lora_alpha',
  'lora_dropout',
  'megatron_core',
  'peft_type',
  'peft_version',
  'qalora_group_size',
  'r',
  'revision',
  'target_modules',
  'task_type',
  'use_rslora',
}
_SUPPORTED: dict[str, tuple[Any, ...]] = {
  'peft_type': ('LORA',),
  'bias': ('none',),
  # The other initialisations also change the weights of the base model.
  'init_lora_weights': (True, False, 'gaussian', 'eva', 'orthogonal'),
}


def from_peft(
  values: Mapping[str, Any], model: LanguageModelConfig
) -> LoraConfig:
  """Reads an `adapter_config.json`, or raises a ValueError for a field."""
  missing = [
    f for f in ('r', 'lora_alpha', 'target_modules') if f not in values
  ]
  if missing:
    raise ValueError(f'{CONFIG} lacks {", ".join(missing)}')
  for field, supported in _SUPPORTED.items():
    value = values.get(field, supported[0])
    if value not in supported:
      raise ValueError(
        f'{CONFIG}: {field}={value!r} is not supported, only '
        f'{" or ".join(map(repr, supported))}'
      )
  for field, value in values.items():
    if field not in _HARMLESS and value:
      raise ValueError(
        f'{CONFIG}: {field}={value!r} is not supported, only plain LoRA with '
        'one rank; merge the adapter into its model with PEFT and load that'
      )
  return LoraConfig(
    rank=values['r'],
    alpha=float(values['lora_alpha']),
    targets=_targets(values['target_modules'], model),
    rslora=bool(values.get('use_rslora')),
    family=lora.family_of(model),
  )


def to_peft(config: LoraConfig, model_name: str = '') -> dict[str, Any]:
  """Returns the content of `adapter_config.json` for a base model's name."""
  alpha = config.alpha
  is_t5 = config.family.startswith('t5')
  return {
    'peft_type': 'LORA',
    'task_type': 'SEQ_2_SEQ_LM' if is_t5 else 'CAUSAL_LM',
    'base_model_name_or_path': model_name or None,
    'r': config.rank,
    'lora_alpha': int(alpha) if alpha.is_integer() else alpha,
    'target_modules': _modules(config),
    'use_rslora': config.rslora,
    'lora_dropout': 0.0,
    'bias': 'none',
    'fan_in_fan_out': config.family == 'gpt2',
    'inference_mode': True,
    'init_lora_weights': True,
  }


def save(
  folder: str | os.PathLike[str],
  config: LoraConfig,
  adapters: Any,
  model_name: str = '',
) -> None:
  """Writes adapters of a base model in float32, each file atomically."""
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  tensors = {}
  for part in config.parts:
    pair = jax.device_get(lora.leaf_of(adapters, part.path))
    for layer, (a, b) in enumerate(zip(pair['a'], pair['b'], strict=True)):
      if part.is_swapped:
        b = b.swapaxes(1, 2)
      stored = {'A': a.T, 'B': b.reshape(len(b), -1).T}
      for matrix, value in stored.items():
        name = _name(layer, part, matrix)
        tensors[name] = np.ascontiguousarray(value, np.float32)
  content = st_numpy.save(tensors, metadata={'format': 'pt'})
  write_atomically(folder / WEIGHTS, content)
  text = json.dumps(to_peft(config, model_name), indent=2) + '\n'
  write_atomically(folder / CONFIG, text.encode())


def load(
  folder: str | os.PathLike[str], model: LanguageModelConfig
) -> tuple[LoraConfig, Any]:
  """Reads adapters in float32 that `save` or PEFT wrote.

  Raises:
    FileNotFoundError: a file is missing.
    ValueError: the adapter's config is not supported.
    weights.CheckpointError: the weights are damaged or do not fit the config or
      the model.
  """
  folder = pathlib.Path(folder)
  for name in (CONFIG, WEIGHTS):
    if not (folder / name).is_file():
      raise FileNotFoundError(
        f'no {name} in {folder}: is this the folder of an adapter? (Older '
        '*.bin files must be converted to safetensors)'
      )
  values = json.loads((folder / CONFIG).read_text(encoding='utf-8'))
  config = from_peft(values, model)
  path = folder / WEIGHTS
  try:
    tensors = st_numpy.load_file(path)
  except safetensors.SafetensorError as error:
    raise weights.CheckpointError(
      f'{path} cannot be read ({error}): truncated? Download it again'
    ) from None
  family = pretrained.family(model.family)
  shapes = lora.shapes(config, family.shapes(model))
  expected = {
    _name(layer, part, matrix): _stored_shape(shapes, part, matrix)
    for part in config.parts
    for layer in range(_num_layers(model, part))
    for matrix in 'AB'
  }
  for name in sorted(tensors.keys() - expected.keys()):
    raise weights.CheckpointError(
      f'{path}: {_why_unknown(name, tensors[name].shape, model, config)}'
    )
  for name, shape in expected.items():
    if name not in tensors:
      raise weights.CheckpointError(
        f'{path} lacks {name}: its config has target_modules='
        f'{values["target_modules"]!r} and the model {model.num_layers} layers'
      )
    if tensors[name].shape != shape:
      raise weights.CheckpointError(
        f'{path}: {name} has shape {tensors[name].shape}; r={config.rank} of '
        f'{CONFIG} and the model say {shape}'
      )
  return config, _tree(tensors, config, shapes)


def _tree(
  tensors: Mapping[str, np.ndarray], config: LoraConfig, shapes: Any
) -> Any:
  """Returns the tensors as a tree of adapters with the given shapes."""
  leaves = {}
  for part in config.parts:
    for matrix in 'AB':
      shape = lora.leaf_of(shapes, part.path)[matrix.lower()].shape
      layers = []
      for layer in range(shape[0]):
        stored = tensors[_name(layer, part, matrix)]
        ours = stored.T.astype(np.float32)
        if part.is_swapped and matrix == 'B':
          _, rank, heads, three, *rest = shape
          ours = ours.reshape(rank, three, heads, *rest).swapaxes(1, 2)
        layers.append(ours.reshape(shape[1:]))
      leaves[f'{part.path}/{matrix.lower()}'] = jnp.asarray(np.stack(layers))
  return {'params': traverse_util.unflatten_dict(leaves, sep='/')}


def _modules(config: LoraConfig) -> list[str] | str:
  """Returns the shortest unambiguous value of `target_modules`.

  This is the last part of the modules' names, as other programs expect. If that
  is ambiguous, as for GPT-2's two modules `c_proj`, it is the name inside the
  layer. If that is ambiguous, too, as between the two stacks of T5, it is a
  regular expression of full names.
  """
  untargeted = [p for p in PARTS[config.family] if p not in config.parts]
  names = {p.name for p in untargeted}
  modules = {p.module for p in untargeted}
  if any(p.module in modules for p in config.parts):
    # The expression matches any layer number in place of 0.
    full_names = [
      re.escape(p.full_name(0)).replace(r'\.0\.', r'\.\d+\.', 1)
      for p in config.parts
    ]
    return '|'.join(full_names)
  targets = [p.module if p.name in names else p.name for p in config.parts]
  return list(dict.fromkeys(targets))


def _num_layers(model: LanguageModelConfig, part: Part) -> int:
  if isinstance(model, EncoderDecoderConfig) and 'decoder' in part.stack:
    return model.num_decoder_layers
  return model.num_layers


def _name(layer: int, part: Part, matrix: str) -> str:
  return _KEY.format(module=part.full_name(layer), matrix=matrix)


def _stored_shape(shapes: Any, part: Part, matrix: str) -> tuple[int, ...]:
  shape = lora.leaf_of(shapes, part.path)[matrix.lower()].shape
  return int(np.prod(shape[2:])), shape[1]


def _targets(modules: Any, model: LanguageModelConfig) -> tuple[str, ...]:
  """Returns the paths of the parts that `target_modules` selects.

  PEFT accepts a list of name endings, a regular expression of full names, or
  `all-linear`, which it writes as a list of full names.
  """
  parts = PARTS[lora.family_of(model)]
  if modules == 'all-linear':
    modules = [part.module for part in parts]
  is_regex = isinstance(modules, str)
  targets = [modules] if is_regex else list(modules)

  def fits(target: str, part: Part) -> bool:
    pattern = target if is_regex else rf'(.*\.)?{re.escape(target)}'
    return any(
      re.fullmatch(pattern, part.full_name(layer))
      for layer in range(_num_layers(model, part))
    )

  for target in targets or ['']:
    if not any(fits(target, part) for part in parts):
      raise ValueError(
        f'{CONFIG}: target_modules has {target!r}, which is none of '
        f'{", ".join(part.module for part in parts)} in any of '
        f'{model.num_layers} layers'
      )
  return tuple(p.path for p in parts if any(fits(t, p) for t in targets))


def _why_unknown(
  name: str,
  shape: tuple[int, ...],
  model: LanguageModelConfig,
  config: LoraConfig,
) -> str:
  """Explains why a tensor of the file does not fit the model."""
  if any(word in name for word in _EMBEDDINGS):
    return (
      f'{name} has shape {shape}, the model a vocabulary of '
      f'{model.vocab_size} and a width of {model.hidden_size}; adapters of '
      'embeddings are not supported: merge the adapter into its model with '
      'PEFT and load that'
    )
  for part in config.parts:
    layer = re.search(rf'\.{part.stack}\.(\d+)\.', name)
    count = _num_layers(model, part)
    if layer and int(layer[1]) >= count:
      return f'{name} is of layer {layer[1]}, the model has {count} layers'
  known = ', '.join(part.module for part in config.parts)
  return f'{name} is not known; {CONFIG} has adapters for {known}'
