"""Hugging Face families of causal models: `config.json` and tensor names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax.sharding import PartitionSpec as P

from promptrl_jax.models import gemma, hf_fields
from promptrl_jax.models.config import RopeScaling, TransformerConfig
from promptrl_jax.models.weights import Rule, Table, linear

# Our field -> the field of a `config.json`.
_FIELDS = {
  'vocab_size': 'vocab_size',
  'hidden_size': 'hidden_size',
  'num_layers': 'num_hidden_layers',
  'num_heads': 'num_attention_heads',
  'num_kv_heads': 'num_key_value_heads',
  'head_size': 'head_dim',
  'mlp_size': 'intermediate_size',
  'max_positions': 'max_position_embeddings',
  'norm_eps': 'rms_norm_eps',
}
_GPT2_FIELDS = {
  'vocab_size': 'vocab_size',
  'hidden_size': 'n_embd',
  'num_layers': 'n_layer',
  'num_heads': 'n_head',
  'max_positions': 'n_positions',
  'norm_eps': 'layer_norm_epsilon',
}
_ACTIVATIONS = {
  'silu': 'silu',
  'gelu': 'gelu',
  'gelu_new': 'gelu_tanh',
  'gelu_pytorch_tanh': 'gelu_tanh',
}
_HF_ACTIVATIONS = {'silu': 'silu', 'gelu': 'gelu', 'gelu_tanh': 'gelu_new'}
_ARCHITECTURES = {
  'llama': 'LlamaForCausalLM',
  'mistral': 'MistralForCausalLM',
  'qwen2': 'Qwen2ForCausalLM',
  'qwen3': 'Qwen3ForCausalLM',
  gemma.MODEL_TYPE: 'Gemma3ForCausalLM',
  'gpt2': 'GPT2LMHeadModel',
}
MODEL_TYPES = tuple(_ARCHITECTURES)

# Norms around the MLP, and after attention, by whether outputs pass one, too.
_NORMS = {
  False: {'post_attention': 'mlp_norm'},
  True: {
    'post_attention': 'attention_post_norm',
    'pre_feedforward': 'mlp_norm',
    'post_feedforward': 'mlp_post_norm',
  },
}

# (Regular expression of a leaf's path, mesh axes that the leaf is split over).
PARTITION = (
  (r'embedding', P('tensor', 'fsdp')),
  (r'position_embedding', P(None, 'fsdp')),
  (r'lm_head', P('fsdp', 'tensor')),
  (r'layers/qkv', P(None, 'fsdp', 'tensor')),
  (r'layers/qkv_bias', P(None, 'tensor')),
  (r'layers/out', P(None, 'tensor', 'fsdp')),
  (r'layers/gate_up', P(None, 'fsdp', None, 'tensor')),
  (r'layers/gate_up_bias', P(None, None, 'tensor')),
  (r'layers/down', P(None, 'tensor', 'fsdp')),
  (r'.*(norm/scale|norm/bias|out_bias|down_bias)', P()),
)


def from_hf(values: Mapping[str, Any]) -> TransformerConfig:
  """Reads a `config.json`.

  Raises:
    ValueError: a field is missing or has an unsupported value; the text names
      the field, its value and the supported values.
  """
  family = values.get('model_type')
  if family not in _ARCHITECTURES:
    raise ValueError(
      f'model_type={family!r}: expected one of {", ".join(MODEL_TYPES)}'
    )
  special = {
    'bos_token_id': values.get('bos_token_id'),
    'eos_token_ids': hf_fields.as_tuple(values.get('eos_token_id')),
    # Padding is masked, so any token can serve as the pad token.
    'pad_token_id': values.get('pad_token_id') or 0,
    'family': family,
  }
  if family == 'gpt2':
    return _from_gpt2(values, special)
  is_gemma = family == gemma.MODEL_TYPE
  if is_gemma:
    rope = gemma.rope_parameters(values)
  else:
    rope = {**(values.get('rope_parameters') or {})}
    rope |= values.get('rope_scaling') or {}
  theta = rope.get('rope_theta', values.get('rope_theta', 10_000.0))
  heads = hf_fields.field(values, 'num_attention_heads')
  defaults = {
    'num_key_value_heads': heads,
    'head_dim': hf_fields.field(values, 'hidden_size') // heads,
  }
  defaults |= {k: v for k, v in values.items() if v is not None}
  shape = hf_fields.required(defaults, _FIELDS)
  attention_bias = bool(values.get('attention_bias', False))
  own = gemma.from_hf(values) if is_gemma else _llama_fields(values, family)
  return TransformerConfig(
    **shape,
    **special,
    **own,
    rope_theta=theta,
    rope_scaling=_rope_scaling(rope, values),
    activation=_activation(
      values, 'hidden_activation' if is_gemma else 'hidden_act'
    ),
    qkv_bias=family == 'qwen2' or attention_bias,
    out_bias=family != 'qwen2' and attention_bias,
    mlp_bias=bool(values.get('mlp_bias', False)),
  )


def _llama_fields(values: Mapping[str, Any], family: str) -> dict[str, Any]:
  return {
    'qk_norm': family == 'qwen3',
    'sliding_window': _sliding_window(values, family),
    'tie_embeddings': bool(values.get('tie_word_embeddings', False)),
  }


def to_hf(config: TransformerConfig) -> dict[str, Any]:
  """Returns the content of a `config.json` for this config."""
  c = config
  eos = c.eos_token_ids[0] if len(c.eos_token_ids) == 1 else [*c.eos_token_ids]
  values = {
    'architectures': [_ARCHITECTURES[c.family]],
    'model_type': c.family,
    'tie_word_embeddings': c.tie_embeddings,
    'dtype': c.dtype,
    'bos_token_id': c.bos_token_id,
    'eos_token_id': eos or None,
    'pad_token_id': c.pad_token_id,
  }
  if c.family == 'gpt2':
    values |= {hf: getattr(c, ours) for ours, hf in _GPT2_FIELDS.items()}
    values['n_inner'] = c.mlp_size
    values['activation_function'] = _HF_ACTIVATIONS[c.activation]
    return values
  values |= {hf: getattr(c, ours) for ours, hf in _FIELDS.items()}
  if c.family == gemma.MODEL_TYPE:
    return values | gemma.to_hf(c)
  values['hidden_act'] = _HF_ACTIVATIONS[c.activation]
  values['rope_theta'] = c.rope_theta
  if c.rope_scaling is not None:
    scaling = c.rope_scaling
    values['rope_scaling'] = {
      'rope_type': scaling.kind,
      'factor': scaling.factor,
    }
    if scaling.kind == 'llama3':
      values['rope_scaling'] |= {
        'low_freq_factor': scaling.low_freq_factor,
        'high_freq_factor': scaling.high_freq_factor,
        'original_max_position_embeddings': scaling.original_positions,
      }
  if c.family in ('llama', 'qwen3'):
    values['attention_bias'] = c.qkv_bias
  if c.family == 'llama':
    values['mlp_bias'] = c.mlp_bias
  if c.family == 'mistral':
    values['sliding_window'] = c.sliding_window
  return values


def table(config: TransformerConfig) -> Table:
  """Returns the table of a checkpoint's tensors and our leaves."""
  if config.family == 'gpt2':
    return _gpt2_table(config)
  c = config
  heads = (c.num_kv_heads, c.group_size, c.head_size)
  layer = 'model.layers.{layer}.'
  size = c.group_size
  rules = [
    Rule('model.embed_tokens.weight', 'embedding'),
    Rule('model.norm.weight', 'final_norm/scale'),
    Rule(f'{layer}input_layernorm.weight', 'layers/attention_norm/scale'),
    linear(f'{layer}self_attn.o_proj.weight', 'layers/out'),
    linear(f'{layer}mlp.down_proj.weight', 'layers/down'),
  ]
  for name, leaf in _NORMS[c.post_norms].items():
    weight = f'{layer}{name}_layernorm.weight'
    rules.append(Rule(weight, f'layers/{leaf}/scale'))
  # Where queries, keys and values lie on the axis U + 2 of `qkv`.
  for name, index in (('q', (0, size)), ('k', size), ('v', size + 1)):
    shape = heads if name == 'q' else (c.num_kv_heads, c.head_size)
    rules.append(
      Rule(
        f'{layer}self_attn.{name}_proj.weight',
        'layers/qkv',
        lambda w, s=shape: w.T.reshape(w.shape[1], *s),
        lambda w: w.reshape(w.shape[0], -1).T,
        (None, None, index),
      )
    )
    if c.qkv_bias:
      rules.append(
        Rule(
          f'{layer}self_attn.{name}_proj.bias',
          'layers/qkv_bias',
          lambda b, s=shape: b.reshape(s),
          lambda b: b.reshape(-1),
          (None, index),
        )
      )
  for i, name in enumerate(('gate', 'up')):
    weight = f'{layer}mlp.{name}_proj.weight'
    rules.append(linear(weight, 'layers/gate_up', index=(None, i)))
    if c.mlp_bias:
      bias = f'{layer}mlp.{name}_proj.bias'
      rules.append(Rule(bias, 'layers/gate_up_bias', index=(i,)))
  if c.out_bias:
    rules.append(Rule(f'{layer}self_attn.o_proj.bias', 'layers/out_bias'))
  if c.mlp_bias:
    rules.append(Rule(f'{layer}mlp.down_proj.bias', 'layers/down_bias'))
  if c.qk_norm:
    rules.append(Rule(f'{layer}self_attn.q_norm.weight', 'layers/q_norm/scale'))
    rules.append(Rule(f'{layer}self_attn.k_norm.weight', 'layers/k_norm/scale'))
  ignored = [r'model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq']
  if c.tie_embeddings:
    ignored.append(r'lm_head\.weight')
  else:
    rules.append(linear('lm_head.weight', 'lm_head'))
  return Table(tuple(rules), ignored=tuple(ignored))


def _gpt2_table(c: TransformerConfig) -> Table:
  # GPT-2 stores linear layers as [in, out]; its fused projection holds all
  # queries, then all keys, then all values.
  heads, h = c.num_kv_heads, c.head_size
  layer = 'h.{layer}.'
  rules = [
    Rule('wte.weight', 'embedding'),
    Rule('wpe.weight', 'position_embedding'),
    Rule(
      f'{layer}attn.c_attn.weight',
      'layers/qkv',
      lambda w: w.reshape(-1, 3, heads, h).swapaxes(1, 2),
      lambda w: w.swapaxes(1, 2).reshape(w.shape[0], -1),
    ),
    Rule(
      f'{layer}attn.c_attn.bias',
      'layers/qkv_bias',
      lambda b: b.reshape(3, heads, h).swapaxes(0, 1),
      lambda b: b.swapaxes(0, 1).reshape(-1),
    ),
    Rule(f'{layer}attn.c_proj.weight', 'layers/out'),
    Rule(f'{layer}attn.c_proj.bias', 'layers/out_bias'),
    Rule(f'{layer}mlp.c_fc.weight', 'layers/gate_up', index=(None, 0)),
    Rule(f'{layer}mlp.c_fc.bias', 'layers/gate_up_bias', index=(0,)),
    Rule(f'{layer}mlp.c_proj.weight', 'layers/down'),
    Rule(f'{layer}mlp.c_proj.bias', 'layers/down_bias'),
  ]
  for theirs, ours in (
    (f'{layer}ln_1', 'layers/attention_norm'),
    (f'{layer}ln_2', 'layers/mlp_norm'),
    ('ln_f', 'final_norm'),
  ):
    rules.append(Rule(f'{theirs}.weight', f'{ours}/scale'))
    rules.append(Rule(f'{theirs}.bias', f'{ours}/bias'))
  if not c.tie_embeddings:
    rules.append(linear('lm_head.weight', 'lm_head'))
  masks = r'h\.\d+\.attn\.(masked_)?bias'
  return Table(tuple(rules), 'transformer.', (masks, r'lm_head\.weight'))


def _from_gpt2(
  values: Mapping[str, Any], special: dict[str, Any]
) -> TransformerConfig:
  for field, wanted in (
    ('scale_attn_weights', True),
    ('scale_attn_by_inverse_layer_idx', False),
    ('add_cross_attention', False),
  ):
    hf_fields.expect(values, field, wanted)
  shape = hf_fields.required(values, _GPT2_FIELDS)
  heads, d = shape['num_heads'], shape['hidden_size']
  return TransformerConfig(
    **shape,
    **special,
    num_kv_heads=heads,
    head_size=d // heads,
    mlp_size=values.get('n_inner') or 4 * d,
    norm='layer',
    positions='learned',
    activation=_activation(values, 'activation_function'),
    is_gated=False,
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
    tie_embeddings=bool(values.get('tie_word_embeddings', True)),
  )


def _activation(values: Mapping[str, Any], field: str) -> str:
  name = values.get(field, 'silu')
  if name not in _ACTIVATIONS:
    raise ValueError(
      f'{field}={name!r} is not supported: expected one of '
      f'{", ".join(_ACTIVATIONS)}'
    )
  return _ACTIVATIONS[name]


def _rope_scaling(
  rope: Mapping[str, Any], values: Mapping[str, Any]
) -> RopeScaling | None:
  kind = rope.get('rope_type', rope.get('type', 'default'))
  if kind == 'default':
    return None
  if kind == 'linear':
    return RopeScaling('linear', float(hf_fields.field(rope, 'factor')))
  if kind == 'llama3':
    limit = 'original_max_position_embeddings'
    original = rope.get(limit) or hf_fields.field(values, limit)
    return RopeScaling(
      'llama3',
      float(hf_fields.field(rope, 'factor')),
      float(hf_fields.field(rope, 'low_freq_factor')),
      float(hf_fields.field(rope, 'high_freq_factor')),
      int(original),
    )
  raise ValueError(
    f'rope_type={kind!r} is not supported: expected default, linear or llama3'
  )


def _sliding_window(values: Mapping[str, Any], family: str) -> int | None:
  window = values.get('sliding_window')
  if family == 'mistral':
    return window
  if values.get('use_sliding_window') and window is not None:
    # Some layers would attend to all tokens and others to the window only.
    raise ValueError(
      f'use_sliding_window=True is not supported for {family}: expected False'
    )
  return None
