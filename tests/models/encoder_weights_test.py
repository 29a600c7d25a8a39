"""BERT folders: reading, writing, and errors for unfit checkpoints."""

import dataclasses
import json
import pathlib
import re
import shutil

import jax
import numpy as np
import pytest
import tokenizers
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from safetensors import numpy as st_numpy
from tokenizers import models

from promptrl_jax.models import encoder, encoder_weights, pretrained, weights
from promptrl_jax.models.encoder import Encoder
from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.parallel import sharding
from tests.variants import mostly_slow

GOLDEN = pathlib.Path(__file__).parents[1] / 'golden' / 'bert'
VALUES = json.loads((GOLDEN / 'config.json').read_text())


@pytest.fixture(scope='module')
def golden():
  return pretrained.load_model(GOLDEN)


@pytest.fixture
def tensors():
  return st_numpy.load_file(GOLDEN / weights.WEIGHTS)


def load(folder, tensors):
  """What is read from a copy of the golden folder with other tensors."""
  shutil.copy(GOLDEN / 'config.json', folder)
  st_numpy.save_file(tensors, folder / weights.WEIGHTS)
  return pretrained.load_model(folder)


def assert_equal(params, expected):
  jax.tree.map(np.testing.assert_array_equal, params, expected)


def test_what_is_saved_is_what_was_read(golden, tensors, tmp_path):
  pretrained.save_model(tmp_path, *golden)
  config, params = pretrained.load_model(tmp_path)
  assert config == golden[0]
  assert_equal(params, golden[1])
  saved = st_numpy.load_file(tmp_path / weights.WEIGHTS)
  assert saved.keys() == {f'bert.{name}' for name in tensors}
  for name, tensor in tensors.items():
    np.testing.assert_array_equal(saved[f'bert.{name}'], tensor)


def test_two_names_of_one_parameter_are_told(tensors, tmp_path):
  name = next(iter(tensors))
  tensors[f'bert.{name}'] = tensors[name] + 1
  with pytest.raises(ValueError, match=f'has both .*{re.escape(name)}'):
    load(tmp_path, tensors)


def test_old_names_of_norms_buffers_and_other_heads_are_understood(
  golden, tensors, tmp_path
):
  old = {
    'bert.'
    + name.replace('LayerNorm.weight', 'LayerNorm.gamma').replace(
      'LayerNorm.bias', 'LayerNorm.beta'
    ): tensor
    for name, tensor in tensors.items()
  }
  old['bert.embeddings.position_ids'] = np.arange(20)[None]
  old['cls.predictions.bias'] = np.zeros(60, np.float32)
  config, params = load(tmp_path, old)
  assert config == golden[0]
  assert_equal(params, golden[1])


def test_a_checkpoint_without_a_pooler_is_a_model_without_one(
  golden, tensors, tmp_path
):
  kept = {k: v for k, v in tensors.items() if not k.startswith('pooler')}
  config, params = load(tmp_path, kept)
  assert config == dataclasses.replace(golden[0], has_pooler=False)
  expected = {**golden[1]['params']}
  del expected['pooler'], expected['pooler_bias']
  assert_equal(params, {'params': expected})
  assert encoder_weights.from_hf(encoder_weights.to_hf(config)) == config


@pytest.mark.parametrize('change', ['missing', 'unknown', 'shape'])
def test_weights_that_do_not_fit_are_named(change, tensors, tmp_path):
  name = 'encoder.layer.1.attention.self.key.weight'
  if change == 'missing':
    del tensors[name]
  elif change == 'unknown':
    name = 'encoder.layer.3.attention.self.key.weight'
    tensors[name] = np.zeros((16, 16), np.float32)
  else:
    tensors[name] = np.zeros((16, 12), np.float32)
  with pytest.raises(weights.CheckpointError, match=re.escape(name)):
    load(tmp_path, tensors)


def test_an_empty_folder_is_no_model(tmp_path):
  with pytest.raises(FileNotFoundError, match=r'config\.json'):
    pretrained.load_model(tmp_path)


@pytest.mark.parametrize(
  ('field', 'value', 'supported'),
  [
    ('model_type', 'roberta', 'bert'),
    ('hidden_act', 'relu', 'gelu'),
    ('position_embedding_type', 'relative_key', 'absolute'),
    ('is_decoder', True, 'False'),
  ],
)
def test_unsupported_settings_are_named(field, value, supported):
  with pytest.raises(ValueError, match=f'{field}={value!r}.*{supported}'):
    encoder_weights.from_hf(VALUES | {field: value})


def test_a_missing_field_is_named():
  values = {k: v for k, v in VALUES.items() if k != 'type_vocab_size'}
  with pytest.raises(ValueError, match='lacks type_vocab_size'):
    encoder_weights.from_hf(values)


def test_the_architecture_says_whether_there_is_a_pooler():
  of = lambda name: encoder_weights.from_hf(VALUES | {'architectures': [name]})
  assert of('BertForSequenceClassification').has_pooler
  assert not of('BertForMaskedLM').has_pooler


@pytest.mark.parametrize('axis', mostly_slow(['fsdp', 'tensor'], ['tensor']))
def test_weights_spread_over_devices_are_the_same_model(axis, golden):
  mesh = jax.make_mesh((2,), (axis,), axis_types=(AxisType.Auto,))
  config, params = pretrained.load_model(GOLDEN, mesh)
  assert_equal(params, golden[1])
  qkv = params['params']['layers']['qkv']
  assert {s.data.shape for s in qkv.addressable_shards} == {
    (3, 8, 4, 3, 4) if axis == 'fsdp' else (3, 16, 2, 3, 4)
  }
  with np.load(GOLDEN / 'outputs.npz') as arrays:
    inputs = arrays['tokens'], arrays['mask'], arrays['types']
    hidden = jax.jit(Encoder(config).apply)(params, *inputs)
    mask = arrays['mask']
    np.testing.assert_allclose(hidden[mask], arrays['hidden'][mask], atol=1e-4)


def test_bfloat16_is_that_of_parameters_and_files(golden, tmp_path):
  config, params = pretrained.load_model(GOLDEN, dtype='bfloat16')
  # A CPU is faster with activations in float32.
  assert config == golden[0] and config.dtype == 'float32'
  assert {x.dtype.name for x in jax.tree.leaves(params)} == {'bfloat16'}
  pretrained.save_model(tmp_path, config, params)
  values = json.loads((tmp_path / 'config.json').read_text())
  assert values['dtype'] == 'bfloat16'


def test_partition_splits_columns_rows_and_the_vocabulary(golden):
  config, _ = golden
  leaves, _ = jax.tree.flatten_with_path(encoder.shapes(config))
  specs = {
    name: sharding.spec_of(name, encoder_weights.PARTITION)
    for name in (sharding.path_of(path) for path, _ in leaves)
  }
  assert specs['embedding'] == P('tensor', 'fsdp')
  assert specs['layers/qkv'] == P(None, 'fsdp', 'tensor')
  assert specs['layers/down'] == P(None, 'tensor', 'fsdp')
  assert specs['layers/qkv_bias'] == specs['layers/mlp_norm/scale'] == P()


def test_a_model_with_its_tokenizer_is_saved_and_loaded_whole(golden, tmp_path):
  words = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', 'a', 'b')
  ids = {word: i for i, word in enumerate(words)}
  backend = tokenizers.Tokenizer(models.WordPiece(ids, unk_token='[UNK]'))
  tokenizer = Tokenizer(backend, pad_id=0, bos_id=2, eos_id=3)
  pretrained.save_pretrained(tmp_path, *golden, tokenizer)
  config, params, again = pretrained.load_pretrained(tmp_path)
  assert config == golden[0]
  assert_equal(params, golden[1])
  assert (again.pad_id, again.bos_id, again.eos_ids) == (0, 2, (3,))
