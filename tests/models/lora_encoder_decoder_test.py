"""Adapters of T5 reproduce stored outputs of PEFT."""

import dataclasses
import functools
import itertools
import json
import re

import jax
import numpy as np
import pytest
from safetensors import numpy as st_numpy

from promptrl_jax.models import (
  encoder_decoder_layers,
  lora,
  peft,
  pretrained,
  transformer,
  weights,
)
from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling.beam import Beams, beam_search
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.model import make_model
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.testing.reference_sampler import generate
from tests.golden import encoder_decoder
from tests.golden import lora as golden
from tests.models.encoder_decoder_test import log_probs
from tests.variants import mostly_slow

attach = jax.jit(lora.attach, static_argnums=0)
merge = jax.jit(lora.merge, static_argnums=0)


@functools.cache
def load(name):
  """The model of golden adapters, and the adapters."""
  folder = encoder_decoder.FOLDER / golden.T5_CASES[name][0]
  config, params = pretrained.load_model(folder)
  return config, params, *peft.load(golden.FOLDER / name, config)


def found_log_probs(config, variables):
  tokens, mask = encoder_decoder.prompts()
  decoder_tokens = encoder_decoder.decoder_tokens()
  return np.asarray(log_probs(config, variables, tokens, mask, decoder_tokens))


@pytest.mark.parametrize(
  ('name', 'combine'),
  mostly_slow(
    itertools.product(golden.T5_CASES, (attach, merge)),
    [('t5', attach), ('t5_gated', merge)],
  ),
)
def test_log_probs_are_those_of_peft(name, combine):
  config, params, settings, adapters = load(name)
  expected = np.load(golden.FOLDER / name / 'expected.npz')['log_probs']
  actual = found_log_probs(config, combine(settings, params, adapters))
  np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-4)
  assert np.abs(found_log_probs(config, params) - expected).max() > 0.5


@pytest.mark.slow
@pytest.mark.parametrize('name', golden.T5_CASES)
def test_greedy_text_with_attached_adapters_is_that_of_peft(name):
  config, params, settings, adapters = load(name)
  tokens, mask = encoder_decoder.prompts()
  rows, size = len(tokens), encoder_decoder.NEW
  endless = dataclasses.replace(config, eos_token_ids=())
  out = jax.jit(generate, static_argnums=(0, 1))(
    make_model(endless, tokens.shape[1], size),
    Sampling(),
    prepare(attach(settings, params, adapters), make_data_mesh(1)),
    tokens,
    mask,
    np.zeros(rows, np.float32),
    np.zeros(rows, np.uint32),
    np.full(rows, size, np.int32),
  )
  expected = np.load(golden.FOLDER / name / 'expected.npz')['greedy']
  np.testing.assert_array_equal(out.tokens, expected)


@pytest.mark.slow
def test_beams_with_attached_adapters_are_those_of_the_merged_model():
  config, params, settings, adapters = load('t5')
  search = jax.jit(beam_search, static_argnums=(0, 1, 2))
  actual, expected = (
    search(
      config,
      Beams(3, 1.0),
      8,
      prepare(combine(settings, params, adapters), make_data_mesh(1)),
      *encoder_decoder.prompts(),
      np.full(4, 8, np.int32),
    )
    for combine in (attach, merge)
  )
  np.testing.assert_array_equal(actual[0].tokens, expected[0].tokens)
  np.testing.assert_allclose(actual[1], expected[1], rtol=1e-4)


@pytest.mark.parametrize('name', golden.T5_CASES)
def test_saving_writes_the_tensors_that_peft_wrote(name, tmp_path):
  config, _, settings, adapters = load(name)
  peft.save(tmp_path, settings, adapters)
  ours = st_numpy.load_file(tmp_path / peft.WEIGHTS)
  theirs = st_numpy.load_file(golden.FOLDER / name / peft.WEIGHTS)
  assert ours.keys() == theirs.keys()
  for key, tensor in theirs.items():
    np.testing.assert_array_equal(ours[key], tensor)
  values = json.loads((tmp_path / peft.CONFIG).read_text())
  assert values['task_type'] == 'SEQ_2_SEQ_LM'
  again, _ = peft.load(tmp_path, config)
  assert again == settings


@pytest.mark.parametrize(
  ('name', 'count', 'some'),
  [
    ('t5', 16, {'encoder/gate_up/wi', 'decoder/cross_query/q'}),
    ('t5_gated', 8, {'decoder/qkv/q', 'decoder/gate_up/wi_1'}),
  ],
)
def test_parts_are_those_of_the_settings(name, count, some):
  _, _, settings, _ = load(name)
  paths = {part.path for part in settings.parts}
  assert len(paths) == count and some <= paths
  assert ('encoder/qkv/q' in paths) == (name == 't5')


@pytest.mark.parametrize(
  ('targets', 'expected'),
  [
    (('/[qv]$',), ['q', 'v']),
    (
      ('cross',),
      [
        'layer.1.EncDecAttention.q',
        'layer.1.EncDecAttention.k',
        'layer.1.EncDecAttention.v',
        'layer.1.EncDecAttention.o',
      ],
    ),
    (('encoder/out',), r'encoder\.block\.\d+\.layer\.0\.SelfAttention\.o'),
  ],
)
def test_target_modules_name_what_is_meant_and_nothing_else(targets, expected):
  config = lora.LoraConfig(targets=targets, family='t5')
  assert peft.to_peft(config)['target_modules'] == expected


@pytest.mark.slow
def test_gradients_reach_every_adapter():
  config, params, settings, adapters = load('t5_gated')

  def loss(adapters):
    variables = lora.attach(settings, params, adapters)
    values = log_probs(
      config,
      variables,
      *encoder_decoder.prompts(),
      encoder_decoder.decoder_tokens(),
    )
    return values[..., 5].mean()

  gradients = jax.jit(jax.grad(loss))(adapters)
  assert jax.tree.structure(gradients) == jax.tree.structure(adapters)
  assert all(np.abs(g).max() > 0 for g in jax.tree.leaves(gradients))


def test_without_adapters_the_program_is_the_same(monkeypatch):
  config, params, _, _ = load('t5')
  trace = lambda: str(
    jax.make_jaxpr(log_probs.__wrapped__, static_argnums=0)(
      config,
      params,
      *encoder_decoder.prompts(),
      encoder_decoder.decoder_tokens(),
    )
  )
  actual = trace()
  plain = lambda layer, x, name: transformer.dense(x, getattr(layer, name))
  monkeypatch.setattr(encoder_decoder_layers, 'adapted_dense', plain)
  assert trace() == actual


def test_the_decoder_has_its_own_number_of_layers(tmp_path):
  config, _, settings, adapters = load('t5')  # Three in the encoder.
  peft.save(tmp_path, settings, adapters)
  tensors = st_numpy.load_file(tmp_path / peft.WEIGHTS)
  block = 'base_model.model.decoder.block.{}'
  key = f'{block}.layer.0.SelfAttention.q.lora_A.weight'
  assert config.num_decoder_layers == 2
  tensors[key.format(2)] = tensors[key.format(1)]
  st_numpy.save_file(tensors, tmp_path / peft.WEIGHTS)
  message = f'{re.escape(key.format(2))} is of layer 2, the model has 2 layers'
  with pytest.raises(weights.CheckpointError, match=message):
    peft.load(tmp_path, config)
