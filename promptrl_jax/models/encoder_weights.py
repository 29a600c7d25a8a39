"""BERT checkpoints of Hugging Face: config, tensors and sharding."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from jax.sharding import PartitionSpec as P

from promptrl_jax.models import hf_fields, weights
from promptrl_jax.models.encoder import EncoderConfig
from promptrl_jax.models.weights import Rule, Table, linear

# (Regular expression of a leaf's path, mesh axes that the leaf is split over).
PARTITION: tuple[tuple[str, P], ...] = (
  (r'embedding', P('tensor', 'fsdp')),
  # These tables have too few rows to split them by rows.
  (r'(position|type)_embedding', P(None, 'fsdp')),
  (r'layers/(qkv|up)', P(None, 'fsdp', 'tensor')),
  (r'layers/(out|down)', P(None, 'tensor', 'fsdp')),
  (r'pooler', P('fsdp', 'tensor')),
  (r'.*(norm/scale|bias)', P()),
)

# Our field -> the field of `config.json`.
_FIELDS = {
  'vocab_size': 'vocab_size',
  'hidden_size': 'hidden_size',
  'num_layers': 'num_hidden_layers',
  'num_heads': 'num_attention_heads',
  'mlp_size': 'intermediate_size',
  'max_positions': 'max_position_embeddings',
  'num_token_types': 'type_vocab_size',
  'norm_eps': 'layer_norm_eps',
}
# Field of `config.json` -> its only supported value, which is the default.
_FIXED = {
  'hidden_act': 'gelu',
  'position_embedding_type': 'absolute',
  'is_decoder': False,
  'add_cross_attention': False,
}
# Names of norms in checkpoints that were converted from TensorFlow.
_OLD_NORMS = (
  (r'LayerNorm\.gamma', 'LayerNorm.weight'),
  (r'LayerNorm\.beta', 'LayerNorm.bias'),
)
# Architectures without a pooler.
_NO_POOLER = (
  'BertForMaskedLM',
  'BertForQuestionAnswering',
  'BertForTokenClassification',
)


def from_hf(values: Mapping[str, Any]) -> EncoderConfig:
  """Reads a `config.json`; dropout rates are ignored.

  Raises:
    ValueError: a field is missing or has an unsupported value; the text names
      the field, its value and the supported values.
  """
  hf_fields.expect(values, 'model_type', 'bert')
  for field, supported in _FIXED.items():
    hf_fields.expect(values, field, supported)
  architectures = values.get('architectures') or ()
  has_pooler = not any(name in _NO_POOLER for name in architectures)
  return EncoderConfig(
    **hf_fields.required(values, _FIELDS),
    pad_token_id=values.get('pad_token_id') or 0,
    has_pooler=values.get('has_pooler', has_pooler),
  )


def to_hf(config: EncoderConfig) -> dict[str, Any]:
  """Returns the content of a `config.json` for this config."""
  return {
    'architectures': ['BertModel'],
    'model_type': 'bert',
    **{hf: getattr(config, ours) for ours, hf in _FIELDS.items()},
    **_FIXED,
    'pad_token_id': config.pad_token_id,
    # Our own field; in transformers this is an argument of `BertModel`.
    'has_pooler': config.has_pooler,
  }


def table(config: EncoderConfig) -> Table:
  """Returns the table of a checkpoint's tensors and our leaves."""
  ignored = [
    r'embeddings\.(position_ids|token_type_ids)',
    # Task heads on top of the encoder.
    r'(cls|classifier|qa_outputs)\..*',
  ]
  if not config.has_pooler:
    ignored.append(r'pooler\..*')
  return Table(tuple(_rules(config)), 'bert.', tuple(ignored), _OLD_NORMS)


def as_stored(config: EncoderConfig, tensors: weights.Source) -> EncoderConfig:
  """Returns the config with `has_pooler` as in the checkpoint."""
  has_pooler = any(
    name.endswith('pooler.dense.weight') for name in tensors.names()
  )
  return dataclasses.replace(config, has_pooler=has_pooler)


def _rules(c: EncoderConfig) -> Iterator[Rule]:
  for theirs, ours in (
    ('word_embeddings', 'embedding'),
    ('position_embeddings', 'position_embedding'),
    ('token_type_embeddings', 'type_embedding'),
  ):
    yield Rule(f'embeddings.{theirs}.weight', ours)
  layer = 'encoder.layer.{layer}'
  for theirs, ours in (
    ('embeddings', 'embedding_norm'),
    (f'{layer}.attention.output', 'layers/attention_norm'),
    (f'{layer}.output', 'layers/mlp_norm'),
  ):
    yield Rule(f'{theirs}.LayerNorm.weight', f'{ours}/scale')
    yield Rule(f'{theirs}.LayerNorm.bias', f'{ours}/bias')
  d, heads = c.hidden_size, (c.num_heads, c.head_size)
  for i, name in enumerate(('query', 'key', 'value')):
    theirs = f'{layer}.attention.self.{name}'
    yield Rule(
      f'{theirs}.weight',
      'layers/qkv',
      to_ours=lambda x: x.T.reshape(d, *heads),
      to_theirs=lambda x: x.reshape(d, d).T,
      index=(None, None, i),
    )
    yield Rule(
      f'{theirs}.bias',
      'layers/qkv_bias',
      to_ours=lambda x: x.reshape(heads),
      to_theirs=lambda x: x.reshape(d),
      index=(None, i),
    )
  for theirs, ours in (
    (f'{layer}.attention.output.dense', 'layers/out'),
    (f'{layer}.intermediate.dense', 'layers/up'),
    (f'{layer}.output.dense', 'layers/down'),
    *([('pooler.dense', 'pooler')] if c.has_pooler else []),
  ):
    yield linear(f'{theirs}.weight', ours)
    yield Rule(f'{theirs}.bias', f'{ours}_bias')
