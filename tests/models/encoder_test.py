"""The encoder reproduces stored outputs, and its invariances hold."""

import dataclasses
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models import encoder, encoder_weights, pretrained
from promptrl_jax.models.encoder import Encoder, EncoderConfig

GOLDEN = pathlib.Path(__file__).parents[1] / 'golden' / 'bert'
LENGTHS = np.array([20, 1, 7, 13])


@pytest.fixture(scope='module')
def golden():
  """The stored model, and its inputs and outputs."""
  config, params = pretrained.load_model(GOLDEN)
  with np.load(GOLDEN / 'outputs.npz') as arrays:
    return config, params, dict(arrays)


def run(config, params, arrays, **changes):
  inputs = arrays | changes
  apply_fn = jax.jit(Encoder(config).apply)
  return apply_fn(params, inputs['tokens'], inputs['mask'], inputs['types'])


def test_hidden_states_equal_those_of_the_reference(golden):
  config, params, arrays = golden
  mask = arrays['mask']
  assert (mask.sum(axis=1) == LENGTHS).all()
  hidden = run(config, params, arrays)
  assert hidden.shape == (4, 20, 16)
  np.testing.assert_allclose(hidden[mask], arrays['hidden'][mask], atol=1e-5)


def test_the_pooler_equals_that_of_the_reference(golden):
  config, params, arrays = golden
  pooled = Encoder(config).apply(
    params, arrays['hidden'], arrays['mask'], 'pooler', method=Encoder.pool
  )
  np.testing.assert_allclose(pooled, arrays['pooled'], atol=1e-5)


def test_padding_has_no_influence(golden):
  config, params, arrays = golden
  mask = arrays['mask']
  hidden = run(config, params, arrays)
  noise = np.where(mask, arrays['tokens'], 59)
  changed = run(config, params, arrays, tokens=noise)
  np.testing.assert_allclose(changed[mask], hidden[mask], atol=1e-6)
  alone = {name: value[2:3, :7] for name, value in arrays.items()}
  np.testing.assert_allclose(
    run(config, params, alone)[0], hidden[2, :7], atol=1e-5
  )


def test_token_types_matter_and_default_to_the_first(golden):
  config, params, arrays = golden
  zeros = run(config, params, arrays, types=np.zeros_like(arrays['types']))
  default = run(config, params, arrays, types=None)
  np.testing.assert_array_equal(zeros, default)
  assert np.abs(zeros - run(config, params, arrays))[2, :7].max() > 0.1


def test_bfloat16_is_close_and_its_pooling_float32(golden):
  config, params, arrays = golden
  config = dataclasses.replace(config, dtype='bfloat16')
  hidden = run(config, params, arrays)
  assert hidden.dtype == jnp.bfloat16
  mask = arrays['mask']
  error = np.abs(np.float32(hidden) - arrays['hidden'])[mask]
  assert 1e-4 < error.max() < 0.3
  for pooling in encoder.POOLINGS:
    pooled = Encoder(config).apply(
      params, hidden, mask, pooling, method=Encoder.pool
    )
    assert pooled.dtype == jnp.float32


def test_shapes_are_those_of_the_parameters(golden):
  config, params, _ = golden
  expected = jax.tree.map(lambda x: (x.shape, x.dtype), params)
  actual = jax.tree.map(lambda x: (x.shape, x.dtype), encoder.shapes(config))
  assert actual == expected
  layers = params['params']['layers']
  assert all(leaf.shape[0] == 3 for leaf in jax.tree.leaves(layers))


def test_the_mean_is_that_over_the_tokens_of_a_text():
  hidden = jnp.asarray([[[1.0, 2.0], [3.0, 6.0], [jnp.nan, jnp.inf]]] * 2)
  mask = jnp.asarray([[True, True, False], [False] * 3])
  pooled = encoder.mean_pool(hidden, mask)
  np.testing.assert_array_equal(pooled, [[2.0, 4.0], [0.0, 0.0]])


def test_normalised_vectors_have_norm_one_and_zero_stays_finite():
  vectors = jnp.asarray([[3.0, 4.0], [0.0, 0.0]])
  np.testing.assert_allclose(
    encoder.l2_normalize(vectors), [[0.6, 0.8], [0.0, 0.0]], atol=1e-6
  )
  gradient = jax.grad(lambda x: encoder.l2_normalize(x).sum())(vectors)
  assert np.isfinite(gradient).all()


def test_a_text_that_is_too_long_is_refused(golden):
  config, params, _ = golden
  long = jnp.ones((1, 21), jnp.int32)
  with pytest.raises(ValueError, match='21 tokens; the model takes 20'):
    Encoder(config).apply(params, long, long > 0)


def test_an_unknown_pooling_and_a_missing_pooler_are_named(golden):
  config, params, arrays = golden
  pool = lambda config, pooling: Encoder(config).apply(
    params, arrays['hidden'], arrays['mask'], pooling, method=Encoder.pool
  )
  with pytest.raises(ValueError, match=r"pooling='max'.*'mean', 'first'"):
    pool(config, 'max')
  with pytest.raises(ValueError, match='no pooler'):
    pool(dataclasses.replace(config, has_pooler=False), 'pooler')


def test_settings_that_make_no_model_are_refused():
  sizes = {'vocab_size': 9, 'num_layers': 1, 'num_heads': 3, 'mlp_size': 4}
  with pytest.raises(ValueError, match=r'hidden_size=16.*num_heads=3'):
    EncoderConfig(hidden_size=16, **sizes)
  with pytest.raises(ValueError, match=r"dtype='int8'.*float32"):
    EncoderConfig(hidden_size=15, dtype='int8', **sizes)


def test_the_config_file_of_the_reference_is_read():
  values = json.loads((GOLDEN / 'config.json').read_text())
  assert encoder_weights.from_hf(values) == EncoderConfig(
    vocab_size=60,
    hidden_size=16,
    num_layers=3,
    num_heads=4,
    mlp_size=24,
    max_positions=20,
  )
