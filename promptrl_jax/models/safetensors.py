"""Parameter trees <-> safetensors files in Hugging Face's Llama naming.

One table gives, for each leaf of our tree, the Hugging Face tensors that it is
made of. Every key of a file must be used exactly once and every leaf filled.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from safetensors import numpy as st_numpy

from promptrl_jax.models import config as config_lib
from promptrl_jax.models import tokenizer as tokenizer_lib
from promptrl_jax.models.config import TransformerConfig

WEIGHTS, CONFIG, TOKENIZER = (
  'model.safetensors',
  'config.json',
  'tokenizer.json',
)


def _layer_tensors(
  layer: Mapping[str, Any], c: TransformerConfig
) -> dict[str, np.ndarray]:
  """One layer of ours as Hugging Face tensors, each [out, in]."""
  groups, d = c.group_size, c.hidden_size
  qkv = np.asarray(layer['qkv'])  # [D, K, G + 2, H]
  gate_up = np.asarray(layer['gate_up'])  # [D, 2, F]
  return {
    'input_layernorm.weight': np.asarray(layer['attention_norm']['scale']),
    'post_attention_layernorm.weight': np.asarray(layer['mlp_norm']['scale']),
    'self_attn.q_proj.weight': qkv[:, :, :groups].reshape(d, -1).T,
    'self_attn.k_proj.weight': qkv[:, :, groups].reshape(d, -1).T,
    'self_attn.v_proj.weight': qkv[:, :, groups + 1].reshape(d, -1).T,
    'self_attn.o_proj.weight': np.asarray(layer['out']).T,
    'mlp.gate_proj.weight': gate_up[:, 0].T,
    'mlp.up_proj.weight': gate_up[:, 1].T,
    'mlp.down_proj.weight': np.asarray(layer['down']).T,
  }


def _layer_params(
  tensors: Mapping[str, np.ndarray], c: TransformerConfig
) -> dict[str, Any]:
  """The inverse of `_layer_tensors`."""
  heads = (c.hidden_size, c.num_kv_heads)
  q, k, v = (tensors[f'self_attn.{n}_proj.weight'].T for n in 'qkv')
  gate, up = (tensors[f'mlp.{n}_proj.weight'].T for n in ('gate', 'up'))
  return {
    'attention_norm': {'scale': tensors['input_layernorm.weight']},
    'mlp_norm': {'scale': tensors['post_attention_layernorm.weight']},
    'qkv': np.concatenate(
      [
        q.reshape(*heads, c.group_size, c.head_size),
        k.reshape(*heads, 1, c.head_size),
        v.reshape(*heads, 1, c.head_size),
      ],
      axis=2,
    ),
    'out': tensors['self_attn.o_proj.weight'].T,
    'gate_up': np.stack([gate, up], axis=1),
    'down': tensors['mlp.down_proj.weight'].T,
  }


def to_tensors(params: Any, c: TransformerConfig) -> dict[str, np.ndarray]:
  """Our parameter tree as a flat dict in Hugging Face's Llama naming."""
  tree = params['params']
  tensors = {
    'model.embed_tokens.weight': np.asarray(tree['embedding']),
    'model.norm.weight': np.asarray(tree['final_norm']['scale']),
  }
  for i in range(c.num_layers):
    layer = _index_tree(tree['layers'], i)
    for name, tensor in _layer_tensors(layer, c).items():
      tensors[f'model.layers.{i}.{name}'] = tensor
  return tensors


def from_tensors(
  tensors: Mapping[str, np.ndarray], c: TransformerConfig
) -> Any:
  """Hugging Face tensors as our parameter tree in float32.

  Raises:
    ValueError: a tensor is missing, left over, or of another shape; says which.
  """
  shapes = expected_shapes(c)
  missing = sorted(shapes.keys() - tensors.keys())
  unused = sorted(tensors.keys() - shapes.keys())
  if missing or unused:
    raise ValueError(
      f'weights do not fit the config: missing {missing}, unused {unused}'
    )
  for name, shape in shapes.items():
    if tensors[name].shape != shape:
      raise ValueError(
        f'{name} has shape {tensors[name].shape}, expected {shape}'
      )
  tensors = {k: np.asarray(v, np.float32) for k, v in tensors.items()}
  layers = [
    _layer_params(
      {
        name.removeprefix(f'model.layers.{i}.'): tensor
        for name, tensor in tensors.items()
        if name.startswith(f'model.layers.{i}.')
      },
      c,
    )
    for i in range(c.num_layers)
  ]
  tree = {
    'embedding': tensors['model.embed_tokens.weight'],
    'final_norm': {'scale': tensors['model.norm.weight']},
    'layers': _stack_trees(layers),
  }
  return {'params': _map_tree(jnp.asarray, tree)}


def expected_shapes(c: TransformerConfig) -> dict[str, tuple[int, ...]]:
  """Name and shape of every tensor of a checkpoint of this config."""
  d, f = c.hidden_size, c.mlp_size
  q, kv = c.num_heads * c.head_size, c.num_kv_heads * c.head_size
  layer = {
    'input_layernorm.weight': (d,),
    'post_attention_layernorm.weight': (d,),
    'self_attn.q_proj.weight': (q, d),
    'self_attn.k_proj.weight': (kv, d),
    'self_attn.v_proj.weight': (kv, d),
    'self_attn.o_proj.weight': (d, q),
    'mlp.gate_proj.weight': (f, d),
    'mlp.up_proj.weight': (f, d),
    'mlp.down_proj.weight': (d, f),
  }
  shapes: dict[str, tuple[int, ...]] = {
    'model.embed_tokens.weight': (c.vocab_size, d),
    'model.norm.weight': (d,),
  }
  for i in range(c.num_layers):
    shapes |= {f'model.layers.{i}.{name}': s for name, s in layer.items()}
  return shapes


def save(
  folder: str | pathlib.Path,
  params: Any,
  c: TransformerConfig,
  tokenizer: tokenizer_lib.Tokenizer,
) -> None:
  """Writes weights (bfloat16), config and tokenizer; each file atomically."""
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  tensors = {
    name: np.ascontiguousarray(t.astype(ml_dtypes.bfloat16))
    for name, t in to_tensors(params, c).items()
  }
  contents = {
    WEIGHTS: st_numpy.save(tensors, metadata={'format': 'pt'}),
    CONFIG: (json.dumps(config_lib.to_hf(c), indent=2) + '\n').encode(),
    TOKENIZER: (tokenizer.backend.to_str(pretty=True) + '\n').encode(),
  }
  for name, content in contents.items():
    temporary = folder / f'.{name}.tmp'
    with open(temporary, 'wb') as file:
      file.write(content)
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, folder / name)


def load(
  folder: str | pathlib.Path,
) -> tuple[TransformerConfig, Any, tokenizer_lib.Tokenizer]:
  """Reads a folder that `save` (or Hugging Face) wrote."""
  folder = pathlib.Path(folder)
  for name in (CONFIG, WEIGHTS):
    if not (folder / name).is_file():
      raise FileNotFoundError(f'no {name} in {folder}: is this a model folder?')
  c = config_lib.from_hf(json.loads((folder / CONFIG).read_text()))
  tensors = st_numpy.load_file(folder / WEIGHTS)
  return c, from_tensors(tensors, c), tokenizer_lib.load(folder / TOKENIZER)


def digest(folder: str | pathlib.Path) -> str:
  """Short SHA-256 of weights and tokenizer: names a frozen model in results."""
  sha = hashlib.sha256()
  for name in (WEIGHTS, TOKENIZER):
    sha.update((pathlib.Path(folder) / name).read_bytes())
  return sha.hexdigest()[:16]


def _index_tree(tree: Any, i: int) -> Any:
  return _map_tree(lambda x: x[i], tree)


def _map_tree(fn, tree: Any) -> Any:
  if isinstance(tree, Mapping):
    return {k: _map_tree(fn, v) for k, v in tree.items()}
  return fn(tree)


def _stack_trees(trees: list[Any]) -> Any:
  if isinstance(trees[0], Mapping):
    return {k: _stack_trees([t[k] for t in trees]) for k in trees[0]}
  return np.stack(trees)
