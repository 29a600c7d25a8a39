"""Saving and loading keeps every weight and refuses what does not fit."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models import config as config_lib
from promptrl_jax.models import safetensors
from promptrl_jax.testing import tiny


@pytest.fixture
def folder(tmp_path):
  safetensors.save(tmp_path, tiny.params(), tiny.CONFIG, tiny.tokenizer())
  return tmp_path


def test_what_is_saved_comes_back_rounded_to_bfloat16(folder):
  config, params, tokenizer = safetensors.load(folder)
  assert config == tiny.CONFIG
  assert tokenizer.decode(tokenizer.encode(['a + b'])) == ['a + b']
  rounded = jax.tree.map(
    lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), tiny.params()
  )
  jax.tree.map(np.testing.assert_array_equal, params, rounded)


def test_names_and_shapes_are_those_of_hugging_face():
  tensors = safetensors.to_tensors(tiny.params(), tiny.CONFIG)
  shapes = {name: tensor.shape for name, tensor in tensors.items()}
  assert shapes == safetensors.expected_shapes(tiny.CONFIG)
  assert shapes['model.layers.1.self_attn.k_proj.weight'] == (16, 32)


@pytest.mark.parametrize('change', ['missing', 'unused', 'shape'])
def test_weights_that_do_not_fit_are_named(change):
  tensors = dict(safetensors.to_tensors(tiny.params(), tiny.CONFIG))
  name = 'model.layers.0.mlp.up_proj.weight'
  if change == 'missing':
    del tensors[name]
  elif change == 'unused':
    name = 'model.layers.9.mlp.up_proj.weight'
    tensors[name] = np.zeros(1)
  else:
    tensors[name] = tensors[name].T
  with pytest.raises(ValueError, match=name.replace('.', r'\.')):
    safetensors.from_tensors(tensors, tiny.CONFIG)


def test_config_goes_through_json_and_back():
  text = json.dumps(config_lib.to_hf(tiny.CONFIG))
  assert config_lib.from_hf(json.loads(text)) == tiny.CONFIG


def test_a_config_that_lacks_a_field_says_which():
  values = config_lib.to_hf(tiny.CONFIG)
  del values['num_key_value_heads']
  with pytest.raises(ValueError, match='num_key_value_heads'):
    config_lib.from_hf(values)


def test_an_empty_folder_is_no_model(tmp_path):
  with pytest.raises(FileNotFoundError, match=r'config\.json'):
    safetensors.load(tmp_path)


def test_the_digest_changes_with_a_weight(folder, tmp_path):
  before = safetensors.digest(folder)
  params = tiny.params(seed=1)
  safetensors.save(tmp_path, params, tiny.CONFIG, tiny.tokenizer())
  assert safetensors.digest(tmp_path) != before
