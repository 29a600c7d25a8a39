"""GGUF files are read as llama.cpp's converter writes them."""

import dataclasses
import struct

import chex
import gguf
import jax
import ml_dtypes
import numpy as np
import pytest

from promptrl_jax.models import pretrained
from promptrl_jax.models.config import RopeScaling
from promptrl_jax.models.gguf_file import TYPES, GgufFile
from promptrl_jax.models.torch_file import CheckpointError
from tests.golden import causal
from tests.models.causal_families_test import greedy, log_probs
from tests.models.gguf_files import ARCHITECTURES, convert, write
from tests.variants import mostly_slow

PATTERN = 'attention__sliding_window_pattern'


@pytest.fixture
def path(tmp_path):
  return tmp_path / 'model.gguf'


@pytest.mark.parametrize('name', mostly_slow(ARCHITECTURES, ['gemma3']))
def test_a_converted_model_writes_what_transformers_wrote(name, path):
  folder = causal.FOLDER / name
  more = {f'gemma3__{PATTERN}': 2} if name == 'gemma3' else {}
  config, params = pretrained.load_model(convert(folder, path, **more))
  stated = pretrained.load_config(folder)
  if name == 'gemma3':  # See `convert`.
    stated = dataclasses.replace(stated, query_scale=None)
  assert config == stated
  expected = np.load(folder / 'expected.npz')
  tokens, mask = causal.prompts(config.vocab_size)
  actual = np.asarray(log_probs(config, params, tokens, mask))
  assert np.abs(actual[mask] - expected['log_probs']).max() <= 1e-4
  np.testing.assert_array_equal(
    greedy(config, params, tokens, mask), expected['greedy']
  )


def arrays(source):
  """Config and parameters, without compiling what loads them to devices."""
  config, leaves = pretrained.load_model(source, in_file=True)
  return config, jax.tree.map(np.asarray, leaves)


FFN = ('ffn_gate.bias', 'ffn_up.bias', 'ffn_down.bias')


@pytest.mark.parametrize(
  ('without', 'left_out', 'family'),
  [
    (FFN, {'gate_up_bias', 'down_bias'}, 'llama'),
    (
      (*FFN, 'attn_output.bias'),
      {'gate_up_bias', 'down_bias', 'out_bias'},
      'qwen2',
    ),
  ],
)
def test_a_llama_may_have_some_of_its_biases(
  without, left_out, family, path, tmp_path
):
  folder = causal.FOLDER / 'llama_biases'
  _, whole = arrays(folder)
  config, params = arrays(convert(folder, path, without))
  assert config.family == family
  layers = {
    name: leaf
    for name, leaf in whole['params']['layers'].items()
    if name not in left_out
  }
  chex.assert_trees_all_equal(params['params']['layers'], layers)
  # What is saved has the same biases.
  pretrained.save_model(tmp_path, config, params)
  again, saved = arrays(tmp_path)
  assert again == config
  chex.assert_trees_all_equal(saved, params)


LINEAR = RopeScaling('linear', 4.0)


@pytest.mark.parametrize(
  ('folder', 'metadata', 'expected'),
  [
    ('gemma3', {}, {'global_every': 6}),  # Most files do not say so.
    ('gemma3', {PATTERN: 3}, {'global_every': 3}),
    ('gemma3', {PATTERN: 0}, {'global_every': 4}),  # None of three layers.
    ('gemma3', {PATTERN: [True, False, True]}, {'global_every': 2}),
    ('gemma3', {'rope__freq_base_swa': 500.0}, {'local_rope_theta': 500.0}),
    ('gemma3', {'rope__scaling__factor': 4.0}, {'rope_scaling': LINEAR}),
    ('codellama', {'rope__scaling__factor': 4.0}, {'rope_scaling': LINEAR}),
    ('codellama', {'rope__scale_linear': 4.0}, {'rope_scaling': LINEAR}),
    ('deepseek_coder', {'rope__scaling__type': 'none'}, {'rope_scaling': None}),
    ('codellama', {'rope__dimension_count': 8}, {'head_size': 8}),
    ('codellama', {'final_logit_softcapping': 0.0}, {}),
  ],
)
def test_metadata_beside_the_shape_is_read(folder, metadata, expected, path):
  config = pretrained.load_config(converted(folder, path, metadata))
  assert {field: getattr(config, field) for field in expected} == expected


@pytest.mark.parametrize(
  ('folder', 'metadata', 'message'),
  [
    ('gemma3', {'final_logit_softcapping': 30.0}, 'softcapping=30.0: exp.* 0'),
    ('qwen2', {'attn_logit_softcapping': 50.0}, 'softcapping=50.0: expected 0'),
    ('gemma3', {PATTERN: [False, True, True]}, 'layer_types=.*not supported'),
    ('gemma3', {'attention__sliding_window': None}, 'lacks gemma3.*window'),
    ('qwen3', {PATTERN: 6}, 'qwen3.*pattern=6: expected 1'),
    ('mistral', {PATTERN: [True, False]}, r'pattern=\[ True False\]: exp.* 1'),
    ('codellama', {'rope__freq_base_swa': 1e4}, '10000.0: expected 1000000.0'),
    ('codellama', {'rope__dimension_count': 4}, 'count=4: expected 8'),
    ('codellama', {'rope__scaling__type': 'yarn'}, "'yarn': expected linear"),
    (
      'codellama',
      {'rope__scaling__type': 'linear'},
      'no llama.*factor',
    ),
  ],
)
def test_metadata_of_another_model_is_refused(folder, metadata, message, path):
  converted(folder, path, metadata)
  with pytest.raises(CheckpointError, match=message) as caught:
    pretrained.load_config(path)
  assert str(path) in str(caught.value)


def converted(folder, path, metadata):
  """A golden model with more metadata of its architecture."""
  name = ARCHITECTURES[folder]
  metadata = {f'{name}__{key}': value for key, value in metadata.items()}
  return convert(causal.FOLDER / folder, path, **metadata)


def raw(kind, rows, row_weights):
  """Random bytes of a type, with small scales."""
  rng = np.random.default_rng(0)
  if kind in ('F32', 'F16', 'BF16'):
    dtype = {'F32': 'f4', 'F16': 'f2', 'BF16': ml_dtypes.bfloat16}[kind]
    return rng.normal(size=(rows, row_weights)).astype(dtype).view(np.uint8)
  number = gguf.GGMLQuantizationType[kind]
  block, size = gguf.GGML_QUANT_SIZES[number]
  return rng.integers(
    0, 60, (rows, row_weights // block * size), dtype=np.uint8
  )


@pytest.mark.parametrize('kind', TYPES)
def test_every_type_is_dequantized_as_by_its_authors(kind, path, monkeypatch):
  number = gguf.GGMLQuantizationType[kind]
  stored = raw(kind, 12, 512)
  write(path, tensors={'token_embd.weight': (stored, number)})
  monkeypatch.setattr('promptrl_jax.models.gguf_file._AT_ONCE', 5 * 512)
  file = GgufFile(path)
  assert file.type_name('token_embd.weight') == kind
  assert file.shape('token_embd.weight') == (12, 512)
  expected = gguf.quants.dequantize(stored, number).reshape(12, 512)
  assert np.isfinite(expected).all() and np.unique(expected).size > 10
  np.testing.assert_array_equal(file.read('token_embd.weight'), expected)
  order = np.arange(12)[::-1]
  read = file.read('token_embd.weight', ml_dtypes.bfloat16, order)
  np.testing.assert_array_equal(read, expected[::-1].astype(ml_dtypes.bfloat16))


def test_metadata_is_what_was_written(path):
  fields = {
    'a': 3,
    'b': 1e-6,
    'c': True,
    'd': 'text ü',
    'e': ['one', '', 'three'],
    'f': [-1, 2],
  }
  write(path, **fields)
  read = GgufFile(path).metadata
  assert read.pop('general.architecture') == 'llama'
  read['f'] = list(read['f'])
  assert read == fields


def llama_factors(theta=10_000.0, size=8, factor=8.0, original=8192):
  """Factors of Llama 3 as the converter computes them, frequency by one."""
  factors = []
  for i in range(0, size, 2):
    wavelength = 2 * np.pi * theta ** (i / size)
    if wavelength < original / 4:
      factors.append(1.0)
    elif wavelength > original:
      factors.append(factor)
    else:
      smooth = (original / wavelength - 1) / 3
      factors.append(1 / ((1 - smooth) / factor + smooth))
  return np.array(factors, np.float32)


def test_factors_of_rotary_frequencies_are_those_of_llama3(path, tmp_path):
  folder = causal.FOLDER / 'codellama'
  convert(folder, path)
  tensors = {n: GgufFile(path).read(n) for n in GgufFile(path).names()}
  fields = {k.replace('.', '__'): v for k, v in GgufFile(path).metadata.items()}
  fields.pop('general__architecture')
  for original, message in ((8192, None), (32, 'not those of Llama 3')):
    tensors['rope_freqs.weight'] = llama_factors(1e6, 8, 8.0, original)
    other = write(tmp_path / f'{original}.gguf', 'llama', tensors, **fields)
    if message is None:
      config, _ = pretrained.load_model(other)
      assert config.rope_scaling == RopeScaling('llama3', 8.0, 1.0, 4.0, 8192)
    else:
      with pytest.raises(CheckpointError, match=message):
        pretrained.load_config(other)


def test_a_file_that_ends_early_is_refused_wherever_it_ends(path):
  convert(causal.FOLDER / 'qwen2', path, tokenizer__ggml__tokens=['a'] * 40)
  whole = path.read_bytes()
  for size in (0, 3, 4, 20, 60, 400, len(whole) // 2, len(whole) - 40):
    path.write_bytes(whole[:size])
    with pytest.raises(CheckpointError, match=r'GGUF|truncated') as caught:
      pretrained.load_model(path)
    assert str(path) in str(caught.value)


def test_a_length_beyond_the_file_asks_for_no_memory(path):
  path.write_bytes(b'GGUF' + struct.pack('<IQQQ', 3, 0, 1, 1 << 60))
  with pytest.raises(CheckpointError, match='truncated'):
    GgufFile(path)


@pytest.mark.parametrize(
  ('start', 'message'),
  [
    (b'PK\x03\x04', 'expected b.GGUF'),
    (b'GGUF' + struct.pack('>IQQ', 3, 0, 0), 'version 50331648'),
    (b'GGUF' + struct.pack('<IQQ', 1, 0, 0), 'version 1'),
  ],
)
def test_another_format_is_named(start, message, path):
  path.write_bytes(start + bytes(64))
  with pytest.raises(CheckpointError, match=message):
    GgufFile(path)


def test_an_impossible_alignment_is_named(path):
  write(path, general__alignment=0)
  with pytest.raises(CheckpointError, match='general.alignment=0: expected'):
    GgufFile(path)


def test_a_part_of_a_model_says_how_to_join_them(tmp_path):
  path = write(tmp_path / 'model-00001-of-00002.gguf', split__count=2)
  with pytest.raises(CheckpointError, match='part of 2: .*gguf-split --merge'):
    pretrained.load_config(path)
  write(path, split__count=0)  # One that was joined.
  assert not GgufFile(path).names()


def test_a_file_may_have_an_upper_case_suffix(tmp_path):
  path = convert(causal.FOLDER / 'qwen2', tmp_path / 'MODEL.GGUF')
  assert pretrained.load_config(path).family == 'qwen2'


def test_an_unknown_type_is_named(path):
  number = gguf.GGMLQuantizationType.IQ4_NL
  stored = np.zeros((2, 18), np.uint8)
  write(path, tensors={'token_embd.weight': (stored, number)})
  with pytest.raises(CheckpointError, match='token_embd.weight .*IQ4_NL.*Q4_K'):
    GgufFile(path)


def test_an_unknown_architecture_and_missing_fields_are_named(path):
  write(path, 'mamba')
  with pytest.raises(CheckpointError, match="architecture 'mamba'.*llama"):
    pretrained.load_config(path)
  write(path, 'llama', llama__block_count=2)
  with pytest.raises(CheckpointError, match=r'lacks llama\.embedding_length'):
    pretrained.load_config(path)


def test_a_tensor_that_does_not_fit_is_named(path):
  folder = causal.FOLDER / 'qwen2'
  convert(folder, path, qwen2__feed_forward_length=39)
  with pytest.raises(CheckpointError, match=r'mlp\.\w+_proj\.weight'):
    pretrained.load_model(path)


def test_a_file_without_the_package_says_what_to_install(path, monkeypatch):
  monkeypatch.setitem(__import__('sys').modules, 'gguf', None)
  with pytest.raises(ImportError, match=r'promptrl_jax\[real\]'):
    GgufFile(path)


def test_the_digest_is_that_of_the_file(path):
  convert(causal.FOLDER / 'qwen2', path)
  before = pretrained.digest(path)
  path.write_bytes(path.read_bytes() + b'\0')
  assert pretrained.digest(path) != before
