"""Causal families reproduce stored outputs of transformers."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models import pretrained, weights
from promptrl_jax.models.attention import by_layer, causal_mask
from promptrl_jax.models.transformer import Transformer
from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.model import make_model
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.testing.reference_sampler import generate
from tests.golden import causal
from tests.variants import mostly_slow

MESH = make_data_mesh()


def load(folder):
  config = pretrained.load_config(folder)
  of = pretrained.family(config.family)
  return config, weights.load_tree(
    weights.Tensors(folder), of.table(config), of.shapes(config)
  )


@functools.partial(jax.jit, static_argnums=0)
def log_probs(config, params, tokens, mask):
  """Returns log-probs [B, S, V] after each token of left-padded rows."""
  model = Transformer(config)
  positions = jnp.maximum(jnp.cumsum(mask, axis=-1) - 1, 0)
  visible = by_layer(config, functools.partial(causal_mask, mask))
  hidden, _ = model.apply(params, tokens, positions, visible)
  logits = model.apply(params, hidden, method=Transformer.logits)
  return jax.nn.log_softmax(logits, axis=-1)


def greedy(config, params, tokens, mask):
  rows = len(tokens)
  out = jax.jit(generate, static_argnums=(0, 1))(
    make_model(config, tokens.shape[1], causal.NEW),
    Sampling(),
    prepare(params, MESH),
    tokens,
    mask,
    np.zeros(rows, np.float32),
    np.zeros(rows, np.uint32),
    np.full(rows, causal.NEW, np.int32),
  )
  return out.tokens


# The kinds of layers that there are; the others mix them.
EVERY_TIME = ('gpt2', 'llama3', 'gemma3')


@pytest.mark.parametrize('name', mostly_slow(causal.CASES, EVERY_TIME))
def test_log_probs_and_greedy_text_are_those_of_transformers(name):
  folder = causal.FOLDER / name
  config, params = load(folder)
  expected = np.load(folder / 'expected.npz')
  tokens, mask = causal.prompts(config.vocab_size)
  actual = np.asarray(log_probs(config, params, tokens, mask))
  assert np.abs(actual[mask] - expected['log_probs']).max() <= 1e-4
  np.testing.assert_array_equal(
    greedy(config, params, tokens, mask), expected['greedy']
  )


@pytest.mark.parametrize('name', causal.CASES)
def test_the_parameter_count_is_what_the_config_says(name):
  config = pretrained.load_config(causal.FOLDER / name)
  shapes = pretrained.family(config.family).shapes(config)
  assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == config.num_params


def test_recomputing_layers_changes_nothing():
  config, params = load(causal.FOLDER / 'qwen2')
  tokens, mask = causal.prompts(config.vocab_size)

  def loss(params, config):
    return log_probs(config, params, tokens, mask)[mask].mean()

  plain = jax.grad(loss)(params, config)
  saved = jax.grad(loss)(params, dataclasses.replace(config, remat=True))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), plain, saved
  )


def test_bfloat16_stays_near_float32():
  config, params = load(causal.FOLDER / 'llama3')
  tokens, mask = causal.prompts(config.vocab_size)
  exact = log_probs(config, params, tokens, mask)
  half = dataclasses.replace(config, dtype='bfloat16')
  rounded = log_probs(half, params, tokens, mask)
  assert rounded.dtype == np.float32
  assert np.abs(rounded - exact)[mask].mean() < 0.1
