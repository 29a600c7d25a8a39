"""The encoder-decoder reproduces stored outputs of transformers."""

import dataclasses
import functools
import json
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from safetensors import numpy as st_numpy

from promptrl_jax.models import encoder_decoder, pretrained, weights
from promptrl_jax.models import encoder_decoder_steps as steps
from promptrl_jax.models.encoder_decoder import EncoderDecoder
from promptrl_jax.parallel import sharding
from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.testing import tiny as tiny_causal
from promptrl_jax.testing import tiny_encoder_decoder as tiny
from tests.golden import encoder_decoder as golden

CODET5P = golden.FOLDER / 'codet5p'


@functools.cache
def load(folder):
  return pretrained.load_model(folder)


@functools.partial(jax.jit, static_argnums=0)
def log_probs(config, params, tokens, mask, decoder_tokens):
  logits = EncoderDecoder(config).apply(params, tokens, mask, decoder_tokens)
  return jax.nn.log_softmax(logits, axis=-1)


def largest_difference(config, params, folder):
  tokens, mask = golden.prompts()
  actual = log_probs(config, params, tokens, mask, golden.decoder_tokens())
  expected = np.load(folder / 'expected.npz')['log_probs']
  return np.abs(actual - expected).max()


@pytest.mark.parametrize('name', golden.CASES)
def test_log_probs_are_those_of_transformers(name):
  folder = golden.FOLDER / name
  assert largest_difference(*load(folder), folder) <= 1e-4


@pytest.mark.parametrize('name', golden.CASES)
def test_the_parameter_count_is_what_the_config_says(name):
  config, params = load(golden.FOLDER / name)
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == config.num_params


@pytest.mark.slow
@pytest.mark.parametrize('per_prompt', [1, 3])
def test_one_token_at_a_time_gives_the_teacher_forced_logits(per_prompt):
  config, params = tiny.CONFIG, tiny.params()
  tokens, mask = golden.prompts()
  rows = len(tokens) * per_prompt
  decoder_tokens = np.random.default_rng(2).integers(3, 96, (rows, 7))
  ready = prepare(params, make_data_mesh(1))

  @jax.jit
  def start():
    encoded = steps.encode(config, ready.top, tokens, mask)
    return steps.start_cache(config, ready.layers, encoded, rows, 7)

  @jax.jit
  def step(token, cache, slot):
    return steps.decode_step(
      config, ready.top, ready.layers, token, cache, cross, slot, mask
    )

  cache, cross = start()
  actual = []
  for slot in range(7):
    logits, cache = step(decoder_tokens[:, slot], cache, slot)
    actual.append(jax.nn.log_softmax(logits))
  repeat = lambda x: np.repeat(x, per_prompt, axis=0)
  expected = log_probs(
    config, params, repeat(tokens), repeat(mask), decoder_tokens
  )
  np.testing.assert_allclose(np.stack(actual, 1), expected, atol=2e-5)


def test_padding_does_not_change_a_row():
  tokens, mask = golden.prompts()
  decoder_tokens = golden.decoder_tokens()
  run = functools.partial(log_probs, tiny.CONFIG, tiny.params())
  expected = run(tokens, mask, decoder_tokens)
  padding = ((0, 0), (3, 4))
  # Not 0: what is masked may be anything.
  wider = np.pad(tokens, padding, constant_values=5), np.pad(mask, padding)
  np.testing.assert_allclose(run(*wider, decoder_tokens), expected, atol=1e-5)


def test_the_future_does_not_change_the_past_but_the_prompt_does():
  tokens, mask = golden.prompts()
  decoder_tokens = golden.decoder_tokens()
  run = functools.partial(log_probs, tiny.CONFIG, tiny.params())
  expected = run(tokens, mask, decoder_tokens)
  later = decoder_tokens.copy()
  later[:, 9:] = 7
  actual = run(tokens, mask, later)
  np.testing.assert_allclose(actual[:, :9], expected[:, :9], atol=1e-5)
  assert np.abs(actual[:, 9:] - expected[:, 9:]).max() > 0.1
  other = np.where(tokens == tokens[0, 0], 8, tokens)
  assert np.abs(run(other, mask, decoder_tokens) - expected)[0].max() > 0.1


@pytest.mark.slow
def test_recomputing_layers_changes_no_gradient():
  tokens, mask = golden.prompts()
  decoder_tokens = golden.decoder_tokens()

  def loss(params, config):
    return log_probs(config, params, tokens, mask, decoder_tokens)[
      ..., 5
    ].mean()

  grad = jax.jit(jax.grad(loss), static_argnums=1)
  plain = grad(tiny.params(), tiny.CONFIG)
  again = grad(tiny.params(), dataclasses.replace(tiny.CONFIG, remat=True))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), plain, again
  )
  # Every leaf takes part.
  assert all(np.any(leaf) for leaf in jax.tree.leaves(plain))


def test_bfloat16_stays_near_float32():
  config, params = load(CODET5P)
  arguments = (params, *golden.prompts(), golden.decoder_tokens())
  half = dataclasses.replace(config, dtype='bfloat16')
  rounded = log_probs(half, *arguments)
  assert rounded.dtype == np.float32
  difference = np.abs(rounded - log_probs(config, *arguments))
  assert 0 < difference.mean() < 0.1


@pytest.mark.parametrize('name', golden.CASES)
def test_what_is_saved_has_the_names_and_numbers_of_transformers(
  name, tmp_path
):
  folder = golden.FOLDER / name
  config, params = load(folder)
  weights.save_tree(tmp_path, params, encoder_decoder.table(config), 'float16')
  saved = st_numpy.load_file(tmp_path / weights.WEIGHTS)
  expected = st_numpy.load_file(folder / weights.WEIGHTS)
  assert saved.keys() == expected.keys()
  for key, tensor in expected.items():
    np.testing.assert_array_equal(saved[key], tensor, err_msg=key)


def test_a_saved_folder_is_loaded_whole(tmp_path):
  tokenizer = tiny_causal.tokenizer()
  config = dataclasses.replace(tiny.GATED, vocab_size=tokenizer.vocab_size)
  params = tiny.params(config)
  pretrained.save_pretrained(tmp_path, config, params, tokenizer)
  actual, again, _ = pretrained.load_pretrained(tmp_path)
  assert actual == config
  jax.tree.map(np.testing.assert_array_equal, again, params)


def change_checkpoint(source, folder, change):
  shutil.copytree(source, folder, dirs_exist_ok=True)
  tensors = dict(st_numpy.load_file(source / weights.WEIGHTS))
  change(tensors)
  st_numpy.save_file(tensors, folder / weights.WEIGHTS)


def test_copies_of_a_tied_matrix_may_be_stored(tmp_path):
  def copy(tensors):
    for name in ('encoder.embed_tokens', 'decoder.embed_tokens', 'lm_head'):
      tensors[f'{name}.weight'] = tensors['shared.weight'].copy()
    cross = 'decoder.block.0.layer.1.EncDecAttention.'
    tensors[f'{cross}relative_attention_bias.weight'] = np.zeros((8, 3))

  change_checkpoint(CODET5P, tmp_path, copy)
  config, params = load(tmp_path)
  assert config.tie_embeddings
  assert largest_difference(config, params, CODET5P) <= 1e-4


@pytest.mark.slow
def test_whether_matrices_are_tied_is_read_from_the_checkpoint(tmp_path):
  def untie(tensors):
    tensors['lm_head.weight'] = -tensors['shared.weight']

  change_checkpoint(CODET5P, tmp_path, untie)
  config, params = pretrained.load_model(tmp_path)
  assert not config.tie_embeddings
  tree = params['params']
  np.testing.assert_array_equal(tree['lm_head'], -tree['embedding'].T)

  def tie(tensors):
    del tensors['lm_head.weight']

  change_checkpoint(golden.FOLDER / 'flan_t5', tmp_path, tie)
  config, _ = pretrained.load_model(tmp_path)
  assert config.tie_embeddings and not config.scaled


def test_a_checkpoint_without_an_embedding_says_so(tmp_path):
  change_checkpoint(CODET5P, tmp_path, lambda x: x.pop('shared.weight'))
  with pytest.raises(weights.CheckpointError, match='has no .shared'):
    load(tmp_path)


@pytest.mark.slow
def test_an_initialised_model_is_neither_flat_nor_certain():
  tokens, mask = golden.prompts()
  decoder_tokens = golden.decoder_tokens()
  init = jax.jit(EncoderDecoder(tiny.CONFIG).init)
  params = init(jax.random.key(0), tokens, mask, decoder_tokens)
  values = log_probs(tiny.CONFIG, params, tokens, mask, decoder_tokens)
  assert 0.5 < np.std(values) < 2


def test_every_leaf_has_a_partition_rule_that_splits_its_matrices():
  shapes = encoder_decoder.shapes(
    dataclasses.replace(tiny.GATED, num_heads=4, vocab_size=96, hidden_size=24)
  )
  devices = np.asarray(jax.devices()[:2])
  for axis in ('fsdp', 'tensor'):
    mesh = Mesh(devices, (axis,))
    shardings = sharding.shardings(shapes, encoder_decoder.PARTITION, mesh)

    def check(shape, place, axis=axis):
      is_matrix = shape.size > 1000
      assert (axis in place.spec) == is_matrix, (shape, place)

    jax.tree.map(check, shapes, shardings)


@pytest.mark.parametrize('config', [tiny.CONFIG, tiny.GATED])
def test_a_config_goes_through_json_and_back(config):
  config = dataclasses.replace(config, eos_token_ids=(4, 2), norm_eps=1e-5)
  text = json.dumps(encoder_decoder.to_hf(config))
  assert encoder_decoder.from_hf(json.loads(text)) == config


def test_fields_that_old_files_leave_out_have_their_defaults():
  values = encoder_decoder.to_hf(tiny.CONFIG)
  for field in (
    'num_decoder_layers',
    'feed_forward_proj',
    'dense_act_fn',
    'eos_token_id',
    'relative_attention_num_buckets',
    'relative_attention_max_distance',
    'layer_norm_epsilon',
    'tie_word_embeddings',
    'scale_decoder_outputs',
    'is_gated_act',
  ):
    del values[field]
  assert encoder_decoder.from_hf(values) == dataclasses.replace(
    tiny.CONFIG, num_decoder_layers=3, num_buckets=32, max_distance=128
  )


@pytest.mark.parametrize(
  ('field', 'value', 'message'),
  [
    ('model_type', 'mt5', "model_type='mt5'.*'t5'"),
    ('architectures', ['T5EncoderModel'], "architectures='T5EncoderModel'"),
    ('feed_forward_proj', 'gated-silu', "feed_forward_proj='gated-silu'"),
    ('dense_act_fn', 'gelu', "dense_act_fn='gelu'.*'relu'"),
    ('is_encoder_decoder', False, 'is_encoder_decoder=False'),
    ('decoder_start_token_id', None, 'lacks decoder_start_token_id'),
    ('relative_attention_num_buckets', 30, 'num_buckets=30.*multiple of 4'),
    ('relative_attention_max_distance', 4, 'max_distance=4.*more than half'),
  ],
)
def test_a_setting_that_is_not_supported_is_named(field, value, message):
  values = {**encoder_decoder.to_hf(tiny.CONFIG), field: value}
  with pytest.raises(ValueError) as caught:
    encoder_decoder.from_hf(values)
  assert re.search(message, str(caught.value))


def test_float16_is_refused():
  with pytest.raises(ValueError, match=r"dtype='float16'.*bfloat16"):
    dataclasses.replace(tiny.CONFIG, dtype='float16')


def test_the_parameters_of_a_large_model_are_only_shapes():
  config = dataclasses.replace(tiny.CONFIG, vocab_size=10**9)
  embedding = encoder_decoder.shapes(config)['params']['embedding']
  assert embedding == jax.ShapeDtypeStruct((10**9, 24), jnp.float32)
