"""GGUF files are read as llama.cpp's converter writes them."""

import json
import struct

import gguf
import ml_dtypes
import numpy as np
import pytest
from safetensors import numpy as st_numpy

from promptrl_jax.models import native, pretrained
from promptrl_jax.models import tokenizer as tokenizer_lib
from promptrl_jax.models.config import RopeScaling
from promptrl_jax.models.gguf_file import TYPES, GgufFile
from promptrl_jax.models.gguf_tokenizer import PRE_TOKENIZERS
from promptrl_jax.models.torch_file import CheckpointError
from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling.batch_scorer import BatchScorer
from promptrl_jax.sampling.engine import make_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.sampling.requests import (
  EngineConfig,
  EngineRequest,
  SamplingParams,
)
from tests.golden import causal
from tests.models.causal_families_test import greedy, log_probs

ARCHITECTURES = {
  'codellama': 'llama',
  'mistral': 'mistral',
  'qwen2': 'qwen2',
  'qwen3': 'qwen3',
  'gemma3': 'gemma3',
}


def write(path, architecture='llama', tensors=(), **fields):
  """Writes a file; a tensor is an array, or (bytes of its rows, type).

  A field that is None is left out.
  """
  writer = gguf.GGUFWriter(path, architecture)
  for name, value in fields.items():
    name = name.replace('__', '.')
    if value is None:
      continue
    if isinstance(value, bool):
      writer.add_bool(name, value)
    elif isinstance(value, int):
      writer.add_uint32(name, value)
    elif isinstance(value, float):
      writer.add_float32(name, value)
    elif isinstance(value, str):
      writer.add_string(name, value)
    else:
      writer.add_array(name, value)
  for name, value in dict(tensors).items():
    data, kind = value if isinstance(value, tuple) else (value, None)
    writer.add_tensor(name, data, raw_dtype=kind)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return path


def rotated(weight, heads):
  """Rows of queries or keys as llama.cpp wants them for Llama."""
  halves = weight.reshape(heads, 2, -1, weight.shape[-1])
  return halves.swapaxes(1, 2).reshape(weight.shape)


def convert(folder, path, **more):
  """Writes a checkpoint of transformers as a file, as the converter does."""
  values = json.loads((folder / 'config.json').read_text())
  name = ARCHITECTURES[folder.name]
  known = 'LLAMA' if name == 'mistral' else name.upper()
  names = gguf.get_tensor_name_map(
    gguf.MODEL_ARCH[known], values['num_hidden_layers']
  )
  tensors = {}
  for theirs, tensor in st_numpy.load_file(
    folder / 'model.safetensors'
  ).items():
    tensor = tensor.astype(np.float32)
    if name in ('llama', 'mistral') and theirs.endswith('q_proj.weight'):
      tensor = rotated(tensor, values['num_attention_heads'])
    if name in ('llama', 'mistral') and theirs.endswith('k_proj.weight'):
      tensor = rotated(tensor, values['num_key_value_heads'])
    if name == 'gemma3' and theirs.endswith('norm.weight'):
      tensor = tensor + 1
    tensors[names.get_name(theirs, ('.weight', '.bias'))] = tensor
  rope = values['rope_parameters']
  fields = {
    'embedding_length': values['hidden_size'],
    'block_count': values['num_hidden_layers'],
    'attention__head_count': values['num_attention_heads'],
    'attention__head_count_kv': values['num_key_value_heads'],
    'feed_forward_length': values['intermediate_size'],
    'context_length': values['max_position_embeddings'],
    'attention__layer_norm_rms_epsilon': values['rms_norm_eps'],
    'rope__freq_base': rope.get('full_attention', rope)['rope_theta'],
  }
  if values.get('head_dim'):
    fields['attention__key_length'] = values['head_dim']
  if values.get('sliding_window'):
    fields['attention__sliding_window'] = values['sliding_window']
  fields = {f'{name}__{key}': value for key, value in fields.items()}
  return write(path, name, tensors, **(fields | more))


@pytest.fixture
def path(tmp_path):
  return tmp_path / 'model.gguf'


@pytest.mark.parametrize('name', [n for n in ARCHITECTURES if n != 'gemma3'])
def test_a_converted_model_writes_what_transformers_wrote(name, path):
  check(convert(causal.FOLDER / name, path), name)


def test_gemma_with_the_pattern_of_its_files(path):
  # Such a file does not say which layers have no window: every sixth.
  convert(causal.FOLDER / 'gemma3', path)
  config = pretrained.load_config(path)
  assert [config.is_global(i) for i in range(12)] == [
    i in (5, 11) for i in range(12)
  ]
  expected = pretrained.load_model(causal.FOLDER / 'gemma3')
  actual = pretrained.load_model(path)
  for field in ('sliding_window', 'local_rope_theta', 'embedding_scale'):
    assert getattr(actual[0], field) == getattr(expected[0], field)
  tokens, mask = causal.prompts(config.vocab_size)
  np.testing.assert_allclose(
    np.asarray(log_probs(expected[0], actual[1], tokens, mask))[mask],
    np.load(causal.FOLDER / 'gemma3' / 'expected.npz')['log_probs'],
    atol=1e-4,
  )


def check(path, name):
  config, params = pretrained.load_model(path)
  expected = np.load(causal.FOLDER / name / 'expected.npz')
  tokens, mask = causal.prompts(config.vocab_size)
  actual = np.asarray(log_probs(config, params, tokens, mask))
  assert np.abs(actual[mask] - expected['log_probs']).max() <= 1e-4
  np.testing.assert_array_equal(
    greedy(config, params, tokens, mask), expected['greedy']
  )


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


BYTES = list(tokenizer_lib.pre_tokenizers.ByteLevel.alphabet())


def byte_level(pre, merges=('a b', 'Ġ 1', '1 2'), **more):
  tokens = ['<|start|>', '<|end|>', '<tool>', *sorted(BYTES)]
  tokens += [merge.replace(' ', '') for merge in merges]
  fields = {
    'model': 'gpt2',
    'pre': pre,
    'tokens': tokens,
    'token_type': [3, 3, 4] + [1] * (len(tokens) - 3),
    'merges': list(merges),
    'bos_token_id': 0,
    'eos_token_id': 1,
  } | more
  return {f'tokenizer__ggml__{key}': value for key, value in fields.items()}


@pytest.mark.parametrize('pre', PRE_TOKENIZERS)
def test_byte_level_texts_come_back(pre, path):
  tokenizer = tokenizer_lib.load(write(path, **byte_level(pre)))
  text = 'ab 12\n\n  it\'s ünï<tool>\t"x"\r\n'
  (ids,) = tokenizer.encode([text])
  assert tokenizer.decode([ids]) == [text]
  assert tokenizer.backend.token_to_id('<tool>') in ids
  (ids,) = tokenizer.encode(['<|start|>ab<|end|>'])
  assert (ids[0], ids[-1], len(ids)) == (0, 1, 3)
  assert tokenizer.decode([ids]) == ['ab']  # Special tokens are left out.
  assert tokenizer.eos_ids == (1,)


@pytest.mark.parametrize(
  ('pre', 'expected'),
  [('gpt-2', ['Ġ1', '2']), ('smollm', ['Ġ', '1', '2']), ('qwen2', None)],
)
def test_digits_are_split_as_the_vocabulary_was_made(pre, expected, path):
  tokenizer = tokenizer_lib.load(write(path, **byte_level(pre)))
  tokens = tokenizer.backend.encode(' 12', add_special_tokens=False).tokens
  assert tokens == (expected or ['Ġ', '1', '2'])


@pytest.mark.parametrize('pre', ['qwen2', 'gpt-2'])
def test_accents_are_composed_as_the_vocabulary_was_made(pre, path):
  tokenizer = tokenizer_lib.load(write(path, **byte_level(pre)))
  one, two = tokenizer.encode(['\u00fc', 'u\u0308'])
  assert (one == two) == (pre == 'qwen2')


def sentence_piece(**more):
  pieces = {
    '<unk>': (2, 0.0),
    '<s>': (3, 0.0),
    '</s>': (3, 0.0),
    **{f'<0x{i:02X}>': (6, 0.0) for i in range(256)},
    '▁': (1, -10.0),
    'a': (1, -11.0),
    'b': (1, -12.0),
    'c': (1, -13.0),
    'ab': (1, -5.0),
    'bc': (1, -4.0),
    '▁a': (1, -6.0),
  }
  fields = {
    'model': 'llama',
    'tokens': list(pieces),
    'token_type': [kind for kind, _ in pieces.values()],
    'scores': [score for _, score in pieces.values()],
    'bos_token_id': 1,
    'eos_token_id': 2,
    'unknown_token_id': 0,
  } | more
  return {f'tokenizer__ggml__{key}': value for key, value in fields.items()}


def test_sentence_piece_merges_by_score_and_falls_back_to_bytes(path):
  tokenizer = tokenizer_lib.load(write(path, **sentence_piece()))
  encode = lambda text: (
    tokenizer.backend.encode(text, add_special_tokens=False).tokens
  )
  assert encode('abc') == ['▁a', 'bc']  # 'bc' has the best score.
  assert encode('é') == ['▁', '<0xC3>', '<0xA9>']
  for text in ('abc a\n b', '  é'):
    assert tokenizer.decode(tokenizer.encode([text])) == [text]
  assert (tokenizer.start, tokenizer.end) == ((1,), ())


def test_a_prefix_space_is_added_unless_the_file_says_no(path):
  fields = sentence_piece(add_space_prefix=False, add_bos_token=False)
  tokenizer = tokenizer_lib.load(write(path, **fields))
  assert tokenizer.backend.encode('abc', add_special_tokens=False).tokens == [
    'a',
    'bc',
  ]
  assert tokenizer.start == ()


def test_gemma_merges_in_the_order_of_its_tokens(path):
  fields = sentence_piece(add_space_prefix=False)
  tokenizer = tokenizer_lib.load(write(path, 'gemma3', **fields))
  assert tokenizer.backend.encode('abc', add_special_tokens=False).tokens == [
    'ab',
    'c',
  ]


def test_a_chat_is_rendered_by_the_template_of_the_file(path):
  template = (
    "{{ bos_token }}{% for m in messages %}[{{ m['content'] }}]{% endfor %}"
  )
  fields = byte_level('gpt-2') | {'tokenizer__chat_template': template}
  tokenizer = tokenizer_lib.load(write(path, **fields))
  ids = tokenizer.render([('user', 'ab')])
  assert tokenizer.backend.decode(ids, skip_special_tokens=False) == (
    '<|start|>[ab]'
  )


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    (byte_level('falcon'), "rules 'falcon'.*smollm"),
    (byte_level('gpt-2', model='bert'), "kind 'bert'.*gpt2, llama"),
    ({}, 'with 0 tokens'),
    (byte_level('gpt-2', eos_token_id=9999), 'eos_token_id=9999: expected one'),
    (byte_level('gpt-2', token_type=[1, 2]), '2 numbers in .*token_type'),
    (sentence_piece(scores=None), 'lacks tokenizer.ggml.scores'),
    (sentence_piece(scores=[0.0, 1.0]), '2 numbers in .*scores'),
    (sentence_piece(bos_token_id=None), 'expected tokenizer.ggml.bos_token_id'),
  ],
)
def test_a_tokenizer_that_cannot_be_built_says_why(fields, message, path):
  with pytest.raises(ValueError, match=message):
    tokenizer_lib.load(write(path, **fields))


def test_a_file_without_the_package_says_what_to_install(path, monkeypatch):
  monkeypatch.setitem(__import__('sys').modules, 'gguf', None)
  with pytest.raises(ImportError, match=r'promptrl_jax\[real\]'):
    GgufFile(path)


def test_the_digest_is_that_of_the_file(path):
  convert(causal.FOLDER / 'qwen2', path)
  before = pretrained.digest(path)
  path.write_bytes(path.read_bytes() + b'\0')
  assert pretrained.digest(path) != before


def quantized(path, kinds):
  """A small Llama with random weights in the given types."""
  rng = np.random.default_rng(0)
  heads, size, width, hidden = 4, 16, 64, 96
  shapes = {
    'attn_q': (heads * size, width),
    'attn_k': (2 * size, width),
    'attn_v': (2 * size, width),
    'attn_output': (width, heads * size),
    'ffn_gate': (hidden, width),
    'ffn_up': (hidden, width),
    'ffn_down': (width, hidden),
  }
  tensors = {'token_embd.weight': (64, width), 'output_norm.weight': (width,)}
  for layer in range(2):
    for name, shape in shapes.items():
      tensors[f'blk.{layer}.{name}.weight'] = shape
    for norm in ('attn_norm', 'ffn_norm'):
      tensors[f'blk.{layer}.{norm}.weight'] = (width,)
  for name, shape in tensors.items():
    values = rng.normal(scale=0.3, size=shape).astype(np.float32)
    if len(shape) == 1:
      tensors[name] = values
      continue
    kind = gguf.GGMLQuantizationType[kinds.get(name.split('.')[-2], 'Q4_1')]
    tensors[name] = (gguf.quants.quantize(values, kind), kind)
  fields = {
    'embedding_length': width,
    'block_count': 2,
    'attention__head_count': heads,
    'attention__head_count_kv': 2,
    'feed_forward_length': hidden,
    'context_length': 128,
    'attention__layer_norm_rms_epsilon': 1e-5,
  }
  fields = {f'llama__{key}': value for key, value in fields.items()}
  fields |= byte_level('smollm')
  fields['tokenizer__ggml__tokens'] = fields['tokenizer__ggml__tokens'][:64]
  return write(path, 'llama', tensors, **fields)


@pytest.mark.skipif(not native.is_available(), reason='needs a C++ compiler')
@pytest.mark.parametrize('kinds', [{}, {'attn_v': 'Q8_0', 'ffn_down': 'Q5_0'}])
def test_kernels_as_stored_give_the_log_probs_of_the_model(kinds, path):
  quantized(path, kinds)
  mesh = make_data_mesh(1)
  shapes = EngineConfig(slots=2, prompt_lengths=(8,), new_tokens=12)
  prompts, texts = [[5, 9, 11], [40, 2]], [[7, 3, 12, 50], [1]]
  logps = {}
  for dtype in ('float32', 'gguf'):
    config, tree = pretrained.load_model(path, dtype=dtype)
    params = prepare(tree, mesh)
    scorer = BatchScorer(config, params, mesh, shapes)
    logps[dtype] = np.concatenate(scorer.run(prompts, texts))
  # Rows are rounded to 8 bits before each product.
  np.testing.assert_allclose(logps['gguf'], logps['float32'], atol=0.05)
  stored = params.layers[0]['stored'] | params.top['stored']
  bits = {name: kernel.values.bits for name, kernel in stored.items()}
  eight = {'qkv', 'down'} if kinds else set()
  assert bits == {n: 8 if n in eight else 4 for n in bits} and len(bits) == 5
  engine = make_engine(config, Sampling(), params, mesh, shapes)
  ((sample,), _) = engine.run(
    [EngineRequest(p, [SamplingParams(12, temperature=0.0)]) for p in prompts]
  )
  again = scorer.run([prompts[0]], [sample.tokens.tolist()])[0]
  np.testing.assert_allclose(sample.logps, again, atol=1e-4)


def test_only_a_gguf_file_is_kept_as_stored():
  with pytest.raises(ValueError, match="dtype='gguf': expected a GGUF file"):
    pretrained.load_model(causal.FOLDER / 'qwen2', dtype='gguf')
