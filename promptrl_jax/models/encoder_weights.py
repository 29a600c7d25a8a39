"""A Hugging Face folder of a BERT model <-> `EncoderConfig` and parameters."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from promptrl_jax.models import encoder, pretrained, weights
from promptrl_jax.models.encoder import EncoderConfig
from promptrl_jax.models.weights import Rule, Table, linear
from promptrl_jax.parallel import sharding

# Leaf of the parameter tree -> axes of the mesh that it is split over.
PARTITION: tuple[tuple[str, P], ...] = (
  (r'embedding', P('tensor', 'fsdp')),
  # A few hundred rows, and two: not worth splitting by rows.
  (r'(position|type)_embedding', P(None, 'fsdp')),
  (r'layers/(qkv|up)', P(None, 'fsdp', 'tensor')),
  (r'layers/(out|down)', P(None, 'tensor', 'fsdp')),
  (r'pooler', P('fsdp', 'tensor')),
  (r'.*(norm/scale|bias)', P()),
)

# Our field -> the field of a `config.json`.
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
# A field -> the one value that is supported, which is also its default.
_FIXED = {
  'hidden_act': 'gelu',
  'position_embedding_type': 'absolute',
  'is_decoder': False,
  'add_cross_attention': False,
}
# These are saved without a pooler.
_NO_POOLER = (
  'BertForMaskedLM',
  'BertForQuestionAnswering',
  'BertForTokenClassification',
)


def from_hf(values: Mapping[str, Any]) -> EncoderConfig:
  """Reads a `config.json`; dropout rates in it are left out.

  Raises:
    ValueError: a field is missing, or asks for what is not supported; names the
      field, its value and what is supported.
  """
  if values.get('model_type') != 'bert':
    raise ValueError(
      f'model_type={values.get("model_type")!r}: expected "bert"'
    )
  for field, supported in _FIXED.items():
    if values.get(field) not in (None, supported):
      raise ValueError(f'{field}={values[field]!r}: expected {supported!r}')
  if missing := [hf for hf in _FIELDS.values() if hf not in values]:
    raise ValueError(f'config.json lacks {", ".join(missing)}')
  architectures = values.get('architectures') or ()
  has_pooler = not any(name in _NO_POOLER for name in architectures)
  return EncoderConfig(
    **{ours: values[hf] for ours, hf in _FIELDS.items()},
    pad_token_id=values.get('pad_token_id') or 0,
    has_pooler=values.get('has_pooler', has_pooler),
  )


def to_hf(config: EncoderConfig) -> dict[str, Any]:
  """The content of a `config.json` for this config."""
  return {
    'architectures': ['BertModel'],
    'model_type': 'bert',
    **{hf: getattr(config, ours) for ours, hf in _FIELDS.items()},
    **_FIXED,
    'pad_token_id': config.pad_token_id,
    # Not a field of theirs: `BertModel(add_pooling_layer=...)` says it there.
    'has_pooler': config.has_pooler,
  }


def table(config: EncoderConfig, *, old_norms: bool = False) -> Table:
  """The tensors of a checkpoint.

  Args:
    config: the model.
    old_norms: the parameters of norms are called gamma and beta, as in
      checkpoints that were converted from TensorFlow.
  """
  ignored = [
    r'embeddings\.(position_ids|token_type_ids)',
    # Heads of other models; what they are put on is all that is read.
    r'(cls|classifier|qa_outputs)\..*',
  ]
  if not config.has_pooler:
    ignored.append(r'pooler\..*')
  rules = tuple(_rules(config, old_norms))
  return Table(rules, prefix='bert.', ignored=tuple(ignored))


def load(
  folder: str | os.PathLike[str],
  mesh: Mesh | None = None,
  dtype: Any = jnp.float32,
) -> tuple[EncoderConfig, Any]:
  """Reads a folder that Hugging Face or `save` wrote.

  Whether there is a pooler, and what norms are called, is seen from the names
  of the tensors.

  Args:
    folder: with `config.json` and safetensors.
    mesh: devices to spread the parameters over, by axes `fsdp` and `tensor`;
      None: the first device.
    dtype: of the parameters and of the activations.

  Returns:
    Config and parameters.

  Raises:
    FileNotFoundError: a file is missing.
    ValueError: the config is not supported, or the weights do not fit it.
  """
  config = pretrained.load_config(folder, from_hf)
  tensors = weights.Tensors(folder)
  names = tensors.names()
  config = dataclasses.replace(
    config,
    has_pooler=any(name.endswith('pooler.dense.weight') for name in names),
    dtype=jnp.dtype(dtype).name,
  )
  old_norms = any(name.endswith('LayerNorm.gamma') for name in names)
  shapes = encoder.shapes(config)
  placed = None
  if mesh is not None:
    placed = sharding.shardings(shapes, PARTITION, mesh)
  names_table = table(config, old_norms=old_norms)
  return config, weights.load_tree(tensors, names_table, shapes, dtype, placed)


def save(
  folder: str | os.PathLike[str], config: EncoderConfig, params: Any
) -> None:
  """Writes weights and `config.json`, each file atomically."""
  weights.save_tree(folder, params, table(config))
  dtype = jax.tree.leaves(params)[0].dtype
  pretrained.write_values(folder, to_hf(config), dtype)


def _rules(c: EncoderConfig, old_norms: bool) -> Iterator[Rule]:
  scale, bias = ('gamma', 'beta') if old_norms else ('weight', 'bias')
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
    yield Rule(f'{theirs}.LayerNorm.{scale}', f'{ours}/scale')
    yield Rule(f'{theirs}.LayerNorm.{bias}', f'{ours}/bias')
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
