"""Config and tensors of a GGUF file under the names of Hugging Face.

What llama.cpp's converter changes is changed back: the order of the rows of
queries and keys (Llama), and norms that already have their offset (Gemma).
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from promptrl_jax.models import gemma, gguf_blocks, gguf_tokenizer, rope
from promptrl_jax.models.blocks import Blocks
from promptrl_jax.models.config import RopeScaling, TransformerConfig
from promptrl_jax.models.gguf_file import GgufFile
from promptrl_jax.models.torch_file import CheckpointError

SUFFIX = '.gguf'
# Mistral's models are written as those of Llama.
_MODEL_TYPES = {
  'llama': 'llama',
  'mistral': 'mistral',
  'qwen2': 'qwen2',
  'qwen3': 'qwen3',
  'gemma3': gemma.MODEL_TYPE,
}
_ROTATED = ('llama', 'mistral')  # whose queries and keys are in another order
_BIASED = ('attn_q', 'attn_output', 'ffn_down')  # each for those beside it
_EMBEDDING = 'token_embd.weight'
_FACTORS = 'rope_freqs.weight'
# Field of a `config.json` -> field of the metadata, below the architecture.
_REQUIRED = {
  'hidden_size': 'embedding_length',
  'num_hidden_layers': 'block_count',
  'num_attention_heads': 'attention.head_count',
  'intermediate_size': 'feed_forward_length',
  'max_position_embeddings': 'context_length',
  'rms_norm_eps': 'attention.layer_norm_rms_epsilon',
}
_OPTIONAL = {
  'num_key_value_heads': 'attention.head_count_kv',
  'head_dim': 'attention.key_length',
  'rope_theta': 'rope.freq_base',
  'sliding_window': 'attention.sliding_window',
  'rope_local_base_freq': 'rope.freq_base_swa',
}
_PATTERN = 'attention.sliding_window_pattern'
_SPECIAL = {
  'bos_token_id': 'bos_token_id',
  'pad_token_id': 'padding_token_id',
}
_ENDS = ('eos_token_id', 'eot_token_id', 'eom_token_id')
_TOP = {
  'token_embd': 'model.embed_tokens',
  'output_norm': 'model.norm',
  'output': 'lm_head',
}
_LAYER = {
  'attn_norm': 'input_layernorm',
  'attn_q': 'self_attn.q_proj',
  'attn_k': 'self_attn.k_proj',
  'attn_v': 'self_attn.v_proj',
  'attn_output': 'self_attn.o_proj',
  'attn_q_norm': 'self_attn.q_norm',
  'attn_k_norm': 'self_attn.k_norm',
  'ffn_norm': 'post_attention_layernorm',
  'ffn_gate': 'mlp.gate_proj',
  'ffn_up': 'mlp.up_proj',
  'ffn_down': 'mlp.down_proj',
}
_GEMMA_LAYER = _LAYER | {
  'post_attention_norm': 'post_attention_layernorm',
  'ffn_norm': 'pre_feedforward_layernorm',
  'post_ffw_norm': 'post_feedforward_layernorm',
}
# The factors of Llama 3 depend on one number of the model.
_LLAMA3 = {'low_freq_factor': 1.0, 'high_freq_factor': 4.0}
_LLAMA3_POSITIONS = 8192
_THETA = 10_000.0  # where a file gives none
_GEMMA_27B_LAYERS = 62  # the model that divides by the root of D / Q, not of H


def is_gguf(source: str | os.PathLike[str]) -> bool:
  return pathlib.Path(source).suffix.lower() == SUFFIX


def opened(source: str | os.PathLike[str]) -> GgufFile:
  """Returns the file at a path, or the one that is open already."""
  return source if isinstance(source, GgufFile) else GgufFile(source)


class GgufTensors:
  """The tensors of a file, under the names of Hugging Face.

  Attributes:
    folder: the file, which messages name.
  """

  def __init__(
    self, file: GgufFile, config: TransformerConfig, dtype: Any = np.float32
  ):
    """`dtype` is the type in which tensors are read."""
    self.folder = file.path
    self._file = file
    self._config = config
    self._dtype = dtype
    self._stored = {
      _hf_name(name, config): name for name in file.names() - {_FACTORS}
    }
    self._is_rotated = _architecture(file) in _ROTATED

  def names(self) -> set[str]:
    return set(self._stored)

  def shape(self, name: str) -> tuple[int, ...]:
    return self._file.shape(self._stored[name])

  def read(self, name: str) -> np.ndarray:
    c, stored = self._config, self._stored[name]
    if c.norm_offset and stored.endswith('norm.weight'):
      return (self._file.read(stored) - c.norm_offset).astype(self._dtype)
    order = self._order(stored)
    if order is not None and stored.endswith('.bias'):
      return self._file.read(stored, self._dtype)[order]  # It is one row.
    return self._file.read(stored, self._dtype, order)

  def read_parts(
    self, name: str, write: Callable[[slice, np.ndarray], None]
  ) -> None:
    """Hands a kernel or an embedding to `write`, as `GgufFile.read_parts`."""
    stored = self._stored[name]
    self._file.read_parts(stored, write, self._order(stored))

  def type_name(self, name: str) -> str:
    return self._file.type_name(self._stored[name])

  def read_blocks(self, name: str, rows: np.ndarray) -> Blocks:
    """Returns some rows [n, in] of a kernel, as `gguf_blocks.read` does."""
    stored = self._stored[name]
    order = self._order(stored)
    if order is not None:
      rows = order[rows]
    found = gguf_blocks.read(
      self._file.rows(stored)[rows], self._file.type_name(stored)
    )
    if found is None:
      return gguf_blocks.of_weights(
        (len(rows), self._file.shape(stored)[-1]),
        lambda write: self._file.read_parts(stored, write, rows),
      )
    return found

  def _order(self, stored: str) -> np.ndarray | None:
    """Returns the order in which rows are read; None: that of the file."""
    c = self._config
    if self._is_rotated and '.attn_q.' in stored:
      return _half_order(c.num_heads, c.head_size)
    if self._is_rotated and '.attn_k.' in stored:
      return _half_order(c.num_kv_heads, c.head_size)
    return None


def _half_order(heads: int, size: int) -> np.ndarray:
  """Rows whose pairs are neighbours, in an order of pairs split in halves."""
  order = np.arange(heads * size).reshape(heads, size // 2, 2)
  return order.swapaxes(1, 2).reshape(-1)


def _hf_name(name: str, config: TransformerConfig) -> str:
  """Returns Hugging Face's name of a tensor; an unknown one stays as it is."""
  layers = _GEMMA_LAYER if config.post_norms else _LAYER
  found = re.fullmatch(r'(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)', name)
  if found is None:
    return name
  layer, part, kind = found.groups()
  if layer is None:
    return f'{_TOP.get(part, part)}.{kind}'
  if part not in layers:
    return name
  return f'model.layers.{layer}.{layers[part]}.{kind}'


def _architecture(file: GgufFile) -> str:
  return file.metadata.get('general.architecture', '')


def hf_values(file: GgufFile) -> dict[str, Any]:
  """Returns the metadata as the fields of a `config.json`.

  Raises:
    CheckpointError: the architecture is not supported, or a field is missing.
  """
  name = _architecture(file)
  if name not in _MODEL_TYPES:
    raise CheckpointError(
      f'{file.path} has the architecture {name!r}: expected one of '
      f'{", ".join(_MODEL_TYPES)}'
    )
  metadata, is_gemma = file.metadata, name == 'gemma3'
  window = {'sliding_window': _OPTIONAL['sliding_window']} if is_gemma else {}
  missing = [
    f'{name}.{field}'
    for field in (_REQUIRED | window).values()
    if f'{name}.{field}' not in metadata
  ]
  missing += [_EMBEDDING] if _EMBEDDING not in file.names() else []
  if missing:
    raise CheckpointError(f'{file.path} lacks {", ".join(missing)}')
  fields = _REQUIRED | _OPTIONAL
  values = {
    ours: metadata[f'{name}.{theirs}']
    for ours, theirs in fields.items()
    if f'{name}.{theirs}' in metadata
  }
  if uneven := [k for k, v in values.items() if isinstance(v, np.ndarray)]:
    raise CheckpointError(
      f'{file.path} has a {uneven[0]} for each layer: expected one for all'
    )
  _check(file, name, values)
  biased = {part for part in _BIASED if f'blk.0.{part}.bias' in file.names()}
  values |= special_ids(file) | {
    'model_type': _MODEL_TYPES[name],
    'vocab_size': file.shape(_EMBEDDING)[0],
    'tie_word_embeddings': 'output.weight' not in file.names(),
    'attention_bias': 'attn_q' in biased,
    'mlp_bias': 'ffn_down' in biased,
  }
  if name == 'llama' and biased == {'attn_q'}:
    values['model_type'] = 'qwen2'  # A Llama of Hugging Face has one of `out`.
  if is_gemma:
    values |= _gemma_values(file, values)
  scaling = _rope_scaling(file, name, values)
  return values | ({'rope_scaling': scaling} if scaling else {})


def _check(file: GgufFile, name: str, values: Mapping[str, Any]) -> None:
  """Refuses metadata that makes another model than the one that is built."""
  heads = values['num_attention_heads']
  size = values.get('head_dim') or values['hidden_size'] // heads
  expected = {
    'attn_logit_softcapping': 0,
    'final_logit_softcapping': 0,
    'rope.dimension_count': size,
  }
  if name != 'gemma3':  # All layers are alike.
    theta = values.get('rope_theta', _THETA)
    expected |= {_PATTERN: 1, 'rope.freq_base_swa': theta}
  for field, wanted in expected.items():
    value = file.metadata.get(f'{name}.{field}', wanted)
    if np.any(value != wanted):
      raise CheckpointError(
        f'{file.path} has {name}.{field}={value}: expected {wanted}, or none'
      )


def _gemma_values(file: GgufFile, values: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the fields that only Gemma has."""
  own: dict[str, Any] = {'hidden_activation': 'gelu_pytorch_tanh'}
  layers = values['num_hidden_layers']
  if layers == _GEMMA_27B_LAYERS:
    heads = values['num_attention_heads']
    own['query_pre_attn_scalar'] = values['hidden_size'] / heads
  pattern = file.metadata.get(f'gemma3.{_PATTERN}')
  if isinstance(pattern, np.ndarray):  # Whether each layer has a window.
    own['layer_types'] = [gemma.layer_type(bool(window)) for window in pattern]
  elif pattern is not None:  # 0: all of them have one.
    own['sliding_window_pattern'] = pattern or layers + 1
  return own


def special_ids(file: GgufFile) -> dict[str, Any]:
  """Returns the ids of BOS and padding, or None, and a list of those of EOS."""
  metadata = file.metadata
  ids: dict[str, Any] = {
    ours: metadata.get(f'tokenizer.ggml.{theirs}')
    for ours, theirs in _SPECIAL.items()
  }
  ends = [metadata.get(f'tokenizer.ggml.{end}') for end in _ENDS]
  ends += [*gguf_tokenizer.listed_ends(file), *gguf_tokenizer.turn_ends(file)]
  ids['eos_token_id'] = list(dict.fromkeys(i for i in ends if i is not None))
  return ids


def _rope_scaling(
  file: GgufFile, name: str, values: Mapping[str, Any]
) -> dict[str, Any] | None:
  if _FACTORS in file.names():
    return _llama3_scaling(file, values)
  get, scaling = file.metadata.get, f'{name}.rope.scaling'
  factor = get(f'{scaling}.factor') or get(f'{name}.rope.scale_linear')
  # A factor without a type is linear, as in llama.cpp.
  kind = get(f'{scaling}.type', 'linear' if factor else 'none')
  if kind == 'none':
    return None
  if kind != 'linear':
    raise CheckpointError(
      f'{file.path} has {scaling}.type={kind!r}: expected linear or none'
    )
  if not factor:
    raise CheckpointError(
      f'{file.path} has {scaling}.type={kind!r}, but no {scaling}.factor'
    )
  return {'rope_type': kind, 'factor': factor}


def _llama3_scaling(
  file: GgufFile, values: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns the settings that give the factors of a file's frequencies."""
  factors = file.read(_FACTORS).reshape(-1)
  factor = float(factors.max())
  scaling = RopeScaling(
    'llama3', factor, original_positions=_LLAMA3_POSITIONS, **_LLAMA3
  )
  theta, size = values.get('rope_theta', _THETA), 2 * len(factors)
  plain, scaled = (
    np.asarray(rope.frequencies(size, theta, s)) for s in (None, scaling)
  )
  if not np.allclose(plain / scaled, factors, rtol=1e-3):
    raise CheckpointError(
      f'{file.path}: {_FACTORS} holds factors of rotary frequencies that are '
      'not those of Llama 3: expected these or none'
    )
  return {
    'rope_type': 'llama3',
    'factor': factor,
    'original_max_position_embeddings': _LLAMA3_POSITIONS,
    **_LLAMA3,
  }
