"""Beam search finds what transformers found, and what it promises."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling.beam import Beams, beam_search, make_beam_fn
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.model import make_model
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.sampling.score import score
from promptrl_jax.testing import tiny_encoder_decoder as tiny
from promptrl_jax.testing.reference_sampler import generate
from tests.golden import encoder_decoder as golden
from tests.models.encoder_decoder_test import load
from tests.variants import mostly_slow

search = jax.jit(beam_search, static_argnums=(0, 1, 2))
most = lambda new_tokens: np.full(4, new_tokens, np.int32)
ready = lambda params: prepare(params, make_data_mesh(1))


@pytest.mark.parametrize(
  ('name', 'case'),
  mostly_slow(
    itertools.product(golden.CASES, range(len(golden.BEAMS))),
    {('codet5p', 0)},
  ),
)
def test_results_are_those_of_transformers(name, case):
  folder = golden.FOLDER / name
  config, params = load(folder)
  expected = np.load(folder / 'expected.npz')
  width, length_penalty, count = golden.BEAMS[case]
  stops = golden.stop_tokens(expected['greedy'], count)
  config = dataclasses.replace(config, eos_token_ids=stops)
  search_fn = make_beam_fn(
    config, Beams(width, length_penalty), golden.BEAM_NEW, make_data_mesh()
  )
  out, scores = jax.device_get(
    search_fn(
      prepare(params, make_data_mesh()),
      *golden.prompts(),
      most(golden.BEAM_NEW),
    )
  )
  np.testing.assert_array_equal(out.tokens, expected[f'beams_{case}'])
  np.testing.assert_allclose(scores, expected[f'scores_{case}'], rtol=1e-4)
  np.testing.assert_array_equal(
    out.stopped, np.isin(out.tokens, stops).any(axis=1)
  )


def test_a_score_is_the_penalised_sum_of_the_log_probs_of_the_text():
  folder = golden.FOLDER / 'codet5p'
  config, params = load(folder)
  params = ready(params)
  stops = golden.stop_tokens(np.load(folder / 'expected.npz')['greedy'], 1)
  config = dataclasses.replace(config, eos_token_ids=stops)
  tokens, mask = golden.prompts()
  out, scores = jax.device_get(
    search(
      config,
      Beams(3, 0.7),
      golden.BEAM_NEW,
      params,
      tokens,
      mask,
      most(golden.BEAM_NEW),
    )
  )
  lengths = out.mask.sum(axis=1)
  assert len(set(lengths)) > 1
  np.testing.assert_allclose(
    scores, out.logps.sum(axis=1) / lengths**0.7, rtol=1e-5
  )
  scored = jax.jit(score, static_argnums=(0, 1))(
    make_model(config, tokens.shape[1], golden.BEAM_NEW),
    Sampling(),
    params,
    tokens,
    mask,
    out.tokens,
    out.mask,
    np.ones(4, np.float32),
  )
  np.testing.assert_allclose(out.logps, scored, atol=1e-4)


def test_one_beam_is_greedy():
  tokens, mask = golden.prompts()
  config = dataclasses.replace(tiny.CONFIG, eos_token_ids=())
  out, _ = search(
    config, Beams(1), 9, ready(tiny.params()), tokens, mask, most(9)
  )
  greedy = jax.jit(generate, static_argnums=(0, 1))(
    make_model(config, tokens.shape[1], 9),
    Sampling(),
    ready(tiny.params()),
    tokens,
    mask,
    np.zeros(4, np.float32),
    np.zeros(4, np.uint32),
    most(9),
  )
  np.testing.assert_array_equal(out.tokens, greedy.tokens)


def test_a_row_of_padding_gets_nothing_and_does_not_disturb():
  tokens, mask = golden.prompts()
  run = lambda: jax.device_get(
    search(
      tiny.CONFIG, Beams(2), 6, ready(tiny.params()), tokens, mask, most(6)
    )
  )
  expected, scores = run()
  mask[2] = False
  out, found = run()
  assert not out.mask[2].any() and not out.stopped[2] and found[2] == 0
  others = [0, 1, 3]
  np.testing.assert_array_equal(out.tokens[others], expected.tokens[others])
  np.testing.assert_allclose(found[others], scores[others], rtol=1e-5)


def test_impossible_widths_are_refused():
  with pytest.raises(ValueError, match='num_beams=0'):
    Beams(0)
  tokens, mask = golden.prompts()
  with pytest.raises(ValueError, match='100 continuations.*vocab_size=99'):
    beam_search(
      tiny.CONFIG, Beams(50), 3, ready(tiny.params()), tokens, mask, most(3)
    )


def test_a_row_with_a_limit_finds_what_a_shorter_search_finds():
  tokens, mask = golden.prompts()
  params = ready(tiny.params())
  run = lambda new_tokens, limits: jax.device_get(
    search(tiny.CONFIG, Beams(3), new_tokens, params, tokens, mask, limits)
  )
  mixed, scores = run(9, np.array([9, 4, 9, 4], np.int32))
  for length, rows in ((9, [0, 2]), (4, [1, 3])):
    expected, expected_scores = run(length, most(length))
    np.testing.assert_array_equal(
      mixed.tokens[rows, :length], expected.tokens[rows]
    )
    np.testing.assert_array_equal(
      mixed.mask[rows, :length], expected.mask[rows]
    )
    np.testing.assert_allclose(scores[rows], expected_scores[rows], rtol=1e-5)
  assert not mixed.mask[[1, 3], 4:].any()
