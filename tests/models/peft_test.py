"""Adapters that PEFT saved reproduce the outputs of PEFT."""

import dataclasses
import functools
import json
import shutil

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors import numpy as st_numpy

from promptrl_jax.models import lora, peft, weights
from tests.golden import causal
from tests.golden import lora as golden
from tests.models import causal_families_test
from tests.variants import mostly_slow

KEY = 'base_model.model.model.layers.{}.self_attn.v_proj.lora_{}.weight'


@functools.cache
def model(name):
  """Config and parameters of the model that golden adapters belong to."""
  return causal_families_test.load(causal.FOLDER / golden.CASES[name][0])


MODEL, PARAMS = model('some')


@pytest.fixture
def folder(tmp_path):
  """A copy of the adapters of q, v and up, to break."""
  return shutil.copytree(golden.FOLDER / 'some', tmp_path / 'adapters')


def change_config(folder, **changes):
  path = folder / peft.CONFIG
  path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def change_tensors(folder, change):
  tensors = st_numpy.load_file(folder / peft.WEIGHTS)
  change(tensors)
  st_numpy.save_file(tensors, folder / peft.WEIGHTS)


@pytest.mark.parametrize('name', mostly_slow(golden.CASES, {'all'}))
def test_log_probs_and_greedy_text_are_those_of_peft(name):
  config, params = model(name)
  settings, adapters = peft.load(golden.FOLDER / name, config)
  attached = jax.jit(lora.attach, static_argnums=0)(settings, params, adapters)
  expected = np.load(golden.FOLDER / name / 'expected.npz')
  tokens, mask = causal.prompts(config.vocab_size)
  log_probs = causal_families_test.log_probs(config, attached, tokens, mask)
  actual = np.asarray(log_probs)[mask]
  assert np.abs(actual - expected['log_probs']).max() <= 1e-4
  np.testing.assert_array_equal(
    causal_families_test.greedy(config, attached, tokens, mask),
    expected['greedy'],
  )
  base = np.load(causal.FOLDER / golden.CASES[name][0] / 'expected.npz')
  assert np.abs(actual - base['log_probs']).max() > 0.5


@pytest.mark.parametrize('name', golden.CASES)
def test_merged_log_probs_are_those_of_peft(name):
  config, params = model(name)
  settings, adapters = peft.load(golden.FOLDER / name, config)
  merged = jax.jit(lora.merge, static_argnums=0)(settings, params, adapters)
  expected = np.load(golden.FOLDER / name / 'expected.npz')
  tokens, mask = causal.prompts(config.vocab_size)
  log_probs = causal_families_test.log_probs(config, merged, tokens, mask)
  actual = np.asarray(log_probs)[mask]
  assert np.abs(actual - expected['log_probs']).max() <= 1e-4


@pytest.mark.parametrize('name', golden.CASES)
def test_saving_writes_the_tensors_that_peft_wrote(name, tmp_path):
  config, _ = model(name)
  settings, adapters = peft.load(golden.FOLDER / name, config)
  peft.save(tmp_path, settings, adapters, 'some/model')
  ours = st_numpy.load_file(tmp_path / peft.WEIGHTS)
  theirs = st_numpy.load_file(golden.FOLDER / name / peft.WEIGHTS)
  assert ours.keys() == theirs.keys()
  for key, tensor in theirs.items():
    np.testing.assert_array_equal(ours[key], tensor)
  values = json.loads((tmp_path / peft.CONFIG).read_text())
  assert values['base_model_name_or_path'] == 'some/model'
  again, _ = peft.load(tmp_path, config)
  assert again == settings


@pytest.mark.parametrize(
  ('name', 'scale', 'parts'),
  [
    ('all', 2.0, 'q_proj k_proj v_proj o_proj gate_proj up_proj down_proj'),
    ('some', 3 / 2**0.5, 'q_proj v_proj up_proj'),
    ('gpt2', 1.5, 'c_attn c_proj'),
  ],
)
def test_scale_and_parts_are_those_of_the_settings(name, scale, parts):
  settings, _ = peft.load(golden.FOLDER / name, model(name)[0])
  assert settings.scale == scale
  assert [part.name for part in settings.parts] == parts.split()


def test_two_modules_of_one_name_are_told_apart():
  one = lora.LoraConfig(targets=('down',), family='gpt2')
  assert peft.to_peft(one)['target_modules'] == ['mlp.c_proj']
  both = lora.LoraConfig(targets=('down', 'out'), family='gpt2')
  assert peft.to_peft(both)['target_modules'] == ['c_proj']


def test_bfloat16_adapters_are_read_as_float32(folder):
  def to_bfloat16(tensors):
    tensors |= {k: v.astype(ml_dtypes.bfloat16) for k, v in tensors.items()}

  _, exact = peft.load(folder, MODEL)
  change_tensors(folder, to_bfloat16)
  _, rounded = peft.load(folder, MODEL)
  assert {x.dtype for x in jax.tree.leaves(rounded)} == {jnp.dtype('float32')}
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=2**-8), rounded, exact
  )


@pytest.mark.parametrize(
  'modules',
  [
    '.*(q_proj|v_proj|up_proj)',
    ['self_attn.q_proj', 'v_proj', 'mlp.up_proj'],
  ],
)
def test_targets_may_be_written_in_every_way(folder, modules):
  change_config(folder, target_modules=modules)
  config, _ = peft.load(folder, MODEL)
  assert [p.name for p in config.parts] == ['q_proj', 'v_proj', 'up_proj']


@pytest.mark.parametrize(
  ('field', 'value'),
  [
    ('peft_type', 'IA3'),
    ('bias', 'all'),
    ('init_lora_weights', 'pissa'),
    ('use_dora', True),
    ('rank_pattern', {'q_proj': 8}),
    ('modules_to_save', ['lm_head']),
    ('layers_to_transform', [1]),
    ('not_yet_invented', True),
  ],
)
def test_a_setting_that_changes_the_formula_is_refused(folder, field, value):
  change_config(folder, **{field: value})
  with pytest.raises(ValueError, match=f'{field}=.*not supported'):
    peft.load(folder, MODEL)


def test_an_unknown_target_is_named(folder):
  change_config(folder, target_modules=['q_proj', 'c_attn'])
  with pytest.raises(
    ValueError, match=r"'c_attn', which is none of self_attn.q_proj"
  ):
    peft.load(folder, MODEL)


def test_another_rank_is_named_with_both_shapes(folder):
  change_config(folder, r=8)
  with pytest.raises(weights.CheckpointError) as error:
    peft.load(folder, MODEL)
  assert 'q_proj.lora_A.weight has shape (2, 32)' in str(error.value)
  assert 'r=8' in str(error.value) and '(8, 32)' in str(error.value)


def test_a_model_of_another_width_is_named_with_both_shapes(folder):
  wider = dataclasses.replace(MODEL, hidden_size=20)
  with pytest.raises(weights.CheckpointError, match=r'\(2, 32\).*\(2, 20\)'):
    peft.load(folder, wider)


def test_a_model_with_fewer_layers_is_told_the_layer(folder):
  shorter = dataclasses.replace(MODEL, num_layers=1)
  with pytest.raises(weights.CheckpointError, match=r'layer 1.*has 1 layers'):
    peft.load(folder, shorter)


def test_an_adapter_of_another_vocabulary_is_told_both_sizes(folder):
  name = 'base_model.model.model.embed_tokens.weight'
  change_tensors(folder, lambda t: t.update({name: np.zeros((70, 32))}))
  with pytest.raises(weights.CheckpointError, match=r'\(70, 32\).* of 96 '):
    peft.load(folder, MODEL)


def test_a_missing_tensor_is_named(folder):
  change_tensors(folder, lambda t: t.pop(KEY.format(1, 'B')))
  with pytest.raises(weights.CheckpointError, match=KEY.format(1, 'B')):
    peft.load(folder, MODEL)


def test_a_tensor_of_a_module_that_is_no_target_is_named(folder):
  change_config(folder, target_modules=['q_proj', 'up_proj'])
  with pytest.raises(weights.CheckpointError, match=r'v_proj.*is not known'):
    peft.load(folder, MODEL)


@pytest.mark.parametrize('name', [peft.CONFIG, peft.WEIGHTS])
def test_a_missing_file_is_named(folder, name):
  (folder / name).unlink()
  with pytest.raises(FileNotFoundError, match=name):
    peft.load(folder, MODEL)


def test_a_truncated_file_is_named(folder):
  content = (folder / peft.WEIGHTS).read_bytes()
  (folder / peft.WEIGHTS).write_bytes(content[:-40])
  with pytest.raises(weights.CheckpointError, match='truncated'):
    peft.load(folder, MODEL)


def test_a_config_that_lacks_a_field_says_which(folder):
  (folder / peft.CONFIG).write_text('{"peft_type": "LORA", "r": 2}')
  with pytest.raises(ValueError, match='lacks lora_alpha, target_modules'):
    peft.load(folder, MODEL)
