"""Frozen settings of a causal transformer, and their Hugging Face form."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
  """Shape of a Llama-family causal language model.

  Attributes:
    vocab_size: V.
    hidden_size: D, width of the residual stream.
    num_layers: L.
    num_heads: Q, query heads.
    num_kv_heads: K, key-value heads; divides Q (GQA, arXiv 2305.13245).
    head_size: H, even.
    mlp_size: F, width of the SwiGLU layer (arXiv 2002.05202).
    max_positions: longest sequence that the model was made for.
    rope_theta: base of the rotary embedding (arXiv 2104.09864).
    norm_eps: epsilon of RMSNorm (arXiv 1910.07467).
    bos_token_id, eos_token_id, pad_token_id: special tokens.
  """

  vocab_size: int
  hidden_size: int
  num_layers: int
  num_heads: int
  num_kv_heads: int
  head_size: int
  mlp_size: int
  max_positions: int
  rope_theta: float = 10_000.0
  norm_eps: float = 1e-5
  bos_token_id: int = 1
  eos_token_id: int = 2
  pad_token_id: int = 0

  def __post_init__(self):
    if self.num_heads % self.num_kv_heads:
      raise ValueError(
        f'num_heads={self.num_heads} must be a multiple of '
        f'num_kv_heads={self.num_kv_heads}'
      )
    if self.head_size % 2:
      raise ValueError(f'head_size={self.head_size} must be even for RoPE')

  @property
  def group_size(self) -> int:
    """Query heads per key-value head."""
    return self.num_heads // self.num_kv_heads

  @property
  def num_params(self) -> int:
    """Number of parameters; embedding and projection are tied."""
    d, h, f = self.hidden_size, self.head_size, self.mlp_size
    attention = d * h * (2 * self.num_heads + 2 * self.num_kv_heads)
    block = attention + 3 * d * f + 2 * d
    return self.vocab_size * d + self.num_layers * block + d


# Our field -> the field of a Hugging Face `config.json`.
_HF_FIELDS = {
  'vocab_size': 'vocab_size',
  'hidden_size': 'hidden_size',
  'num_layers': 'num_hidden_layers',
  'num_heads': 'num_attention_heads',
  'num_kv_heads': 'num_key_value_heads',
  'head_size': 'head_dim',
  'mlp_size': 'intermediate_size',
  'max_positions': 'max_position_embeddings',
  'rope_theta': 'rope_theta',
  'norm_eps': 'rms_norm_eps',
  'bos_token_id': 'bos_token_id',
  'eos_token_id': 'eos_token_id',
  'pad_token_id': 'pad_token_id',
}


def to_hf(config: TransformerConfig) -> dict[str, Any]:
  """The content of a Llama `config.json` for this config."""
  fields = {hf: getattr(config, ours) for ours, hf in _HF_FIELDS.items()}
  return {
    'architectures': ['LlamaForCausalLM'],
    'model_type': 'llama',
    'hidden_act': 'silu',
    'attention_bias': False,
    'mlp_bias': False,
    'tie_word_embeddings': True,
    'dtype': 'bfloat16',
    **fields,
  }


def from_hf(values: Mapping[str, Any]) -> TransformerConfig:
  """Reads a Llama `config.json`; says which field is missing or unsupported."""
  if values.get('model_type') != 'llama':
    raise ValueError(
      f'model_type={values.get("model_type")!r}: expected "llama"'
    )
  if not values.get('tie_word_embeddings'):
    raise ValueError('tie_word_embeddings must be true')
  # transformers 5 writes rope_theta inside rope_parameters.
  values = {**(values.get('rope_parameters') or {}), **values}
  missing = [hf for hf in _HF_FIELDS.values() if hf not in values]
  if missing:
    raise ValueError(f'config.json lacks {", ".join(missing)}')
  return TransformerConfig(
    **{ours: values[hf] for ours, hf in _HF_FIELDS.items()}
  )
