"""Filters and penalty equal those of transformers, in its order."""

import itertools

import jax
import numpy as np
import pytest

from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling.beam import Beams, beam_search
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.model import make_model
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.sampling.score import make_score_fn
from promptrl_jax.testing.reference_sampler import generate
from tests.golden import sampling as golden
from tests.models import causal_families_test, encoder_decoder_test
from tests.variants import mostly_slow

LOADERS = {
  'llama2': causal_families_test.load,
  'codet5p': encoder_decoder_test.load,
}
MESH = make_data_mesh(1)  # three rows are not split
ROWS = len(golden.prompts())


def load(name):
  return LOADERS[name](golden.MODELS[name].FOLDER / name)


def arguments(case):
  """Settings of transformers as ours: method, temperatures [3], top_p [3]."""
  options = dict(golden.CASES[case])
  heat = options.pop('temperature', 1.0) if options.pop('do_sample') else 0.0
  top_p = options.pop('top_p', 1.0)
  column = lambda value: np.full(ROWS, value, np.float32)
  return Sampling(**options), column(heat), column(top_p)


def score_of(name, case, tokens):
  """Log-probs of `tokens` [3, NEW] by our scorers."""
  config, params = load(name)
  method, temperature, top_p = arguments(case)
  prompts = golden.prompts()
  model = make_model(config, prompts.shape[1], golden.NEW)
  return make_score_fn(model, method, MESH)(
    prepare(params, MESH),
    prompts,
    np.ones_like(prompts, bool),
    tokens,
    np.ones_like(tokens, bool),
    temperature,
    top_p,
  )


def search_with_penalty():
  config, params = load('codet5p')
  prompts = golden.prompts()
  mask = np.ones_like(prompts, bool)
  return jax.jit(beam_search, static_argnums=(0, 1, 2))(
    config,
    Beams(**golden.BEAMS),
    golden.NEW,
    prepare(params, MESH),
    prompts,
    mask,
    np.full(ROWS, golden.NEW),
  )


@pytest.mark.parametrize(
  ('name', 'case'),
  mostly_slow(
    itertools.product(golden.MODELS, golden.CASES),
    {('llama2', 'all')},
  ),
)
def test_log_probs_are_those_of_transformers(name, case):
  expected = np.load(golden.FILE)
  found = score_of(name, case, expected[f'{name}/{case}/tokens'])
  np.testing.assert_allclose(found, expected[f'{name}/{case}/logps'], atol=1e-4)


@pytest.mark.parametrize('name', mostly_slow(golden.MODELS, ['codet5p']))
def test_the_greedy_text_with_a_penalty_is_that_of_transformers(name):
  config, params = load(name)
  method, temperature, top_p = arguments('greedy')
  prompts = golden.prompts()
  out = jax.jit(generate, static_argnums=(0, 1))(
    make_model(config, prompts.shape[1], golden.NEW),
    method,
    prepare(params, MESH),
    prompts,
    np.ones_like(prompts, bool),
    temperature,
    np.zeros(ROWS, np.uint32),
    np.full(ROWS, golden.NEW),
    top_p,
  )
  expected = np.load(golden.FILE)
  np.testing.assert_array_equal(out.tokens, expected[f'{name}/greedy/tokens'])
  np.testing.assert_allclose(
    out.logps, expected[f'{name}/greedy/logps'], atol=1e-4
  )


def test_beam_search_with_a_penalty_is_that_of_transformers():
  out, scores = search_with_penalty()
  expected = np.load(golden.FILE)
  np.testing.assert_array_equal(out.tokens, expected['codet5p/beams/tokens'])
  np.testing.assert_allclose(
    scores, expected['codet5p/beams/scores'], rtol=1e-4
  )
