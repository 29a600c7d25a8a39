"""What Gemma 3 (arXiv 2503.19786) has beside the fields of Llama."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from promptrl_jax.models import hf_fields
from promptrl_jax.models.config import TransformerConfig

MODEL_TYPE = 'gemma3_text'
_WINDOWED, _FULL = 'sliding_attention', 'full_attention'
_LOCAL_THETA, _THETA = 10_000.0, 1e6  # where a config gives none
_EVERY = 6


def rope_parameters(values: Mapping[str, Any]) -> dict[str, Any]:
  """Returns those of the layers that attend to all tokens."""
  rope = values.get('rope_parameters') or {}
  rope = dict(rope.get(_FULL, rope))
  rope |= values.get('rope_scaling') or {}
  return {'rope_theta': values.get('rope_theta') or _THETA} | rope


def from_hf(values: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the fields of a `TransformerConfig` that Llama does not set.

  Raises:
    ValueError: a field has an unsupported value.
  """
  hf_fields.expect(values, 'attn_logit_softcapping')
  hf_fields.expect(values, 'final_logit_softcapping')
  hf_fields.expect(values, 'use_bidirectional_attention', False)
  local = (values.get('rope_parameters') or {}).get(_WINDOWED) or {}
  local_theta = local.get('rope_theta', values.get('rope_local_base_freq'))
  scalar = values.get('query_pre_attn_scalar')
  return {
    'sliding_window': hf_fields.field(values, 'sliding_window'),
    'global_every': _global_every(values),
    'local_rope_theta': float(local_theta or _LOCAL_THETA),
    'post_norms': True,
    'norm_offset': 1.0,
    'embedding_scale': math.sqrt(hf_fields.field(values, 'hidden_size')),
    'query_scale': scalar**-0.5 if scalar else None,
    'qk_norm': True,
    'tie_embeddings': bool(values.get('tie_word_embeddings', True)),
  }


def _global_every(values: Mapping[str, Any]) -> int:
  every = values.get('sliding_window_pattern') or _EVERY
  kinds = values.get('layer_types')
  if not kinds:
    return every
  if _FULL in kinds:
    every = kinds.index(_FULL) + 1
  else:
    every = len(kinds) + 1
  expected = layer_types(len(kinds), every)
  if list(kinds) != expected:
    raise ValueError(
      f'layer_types={kinds} is not supported: expected every n-th layer to be '
      f'{_FULL}, the others {_WINDOWED}'
    )
  return every


def layer_types(num_layers: int, every: int) -> list[str]:
  return [layer_type((i + 1) % every > 0) for i in range(num_layers)]


def layer_type(has_window: bool) -> str:
  return _WINDOWED if has_window else _FULL


def to_hf(config: TransformerConfig) -> dict[str, Any]:
  """Returns the fields of a `config.json` that Llama does not have."""
  c = config
  rope: dict[str, Any] = {'rope_type': 'default', 'rope_theta': c.rope_theta}
  if c.rope_scaling is not None:
    rope |= {
      'rope_type': c.rope_scaling.kind,
      'factor': c.rope_scaling.factor,
    }
  scalar = c.attention_scale**-2
  whole = round(scalar)
  return {
    'hidden_activation': 'gelu_pytorch_tanh',
    'sliding_window': c.sliding_window,
    'layer_types': layer_types(c.num_layers, c.global_every or _EVERY),
    'rope_parameters': {
      _FULL: rope,
      _WINDOWED: {'rope_type': 'default', 'rope_theta': c.local_rope_theta},
    },
    # transformers takes no 24.0 for 24.
    'query_pre_attn_scalar': whole if math.isclose(scalar, whole) else scalar,
  }
