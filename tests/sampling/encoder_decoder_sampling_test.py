"""The invariants of sampling from an encoder-decoder."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models import encoder_decoder
from promptrl_jax.parallel.mesh import make_data_mesh, make_mesh
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.model import make_model
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.sampling.score import make_score_fn
from promptrl_jax.testing import tiny_encoder_decoder as tiny
from promptrl_jax.testing.reference_sampler import make_generate_fn
from tests.golden import encoder_decoder as golden
from tests.models.encoder_decoder_test import load
from tests.variants import mostly_slow

NEW = 12
LONGEST = 37  # tokens of a prompt
MESH = make_data_mesh()
generate_fn = functools.cache(
  lambda method: make_generate_fn(tiny.CONFIG, method, LONGEST, NEW, MESH)
)
params = functools.cache(lambda: prepare(tiny.params(), MESH))
score_fn = functools.cache(
  lambda method: make_score_fn(
    make_model(tiny.CONFIG, LONGEST, NEW), method, MESH
  )
)


def run(
  tokens, mask, temperature=0.8, seeds=None, limit=NEW, method=Sampling()
):
  rows = len(tokens)
  seeds = np.arange(rows) if seeds is None else seeds
  out = generate_fn(method)(
    params(),
    tokens,
    mask,
    np.full(rows, temperature, np.float32),
    np.asarray(seeds, np.uint32),
    np.broadcast_to(np.asarray(limit, np.int32), rows),
  )
  return jax.device_get(out)


@pytest.mark.parametrize('name', mostly_slow(golden.CASES, {'flan_t5'}))
def test_greedy_text_is_that_of_transformers(name):
  folder = golden.FOLDER / name
  config, params = load(folder)
  config = dataclasses.replace(config, eos_token_ids=())
  tokens, mask = golden.prompts()
  generate = make_generate_fn(config, Sampling(), LONGEST, golden.NEW, MESH)
  out = generate(
    prepare(params, MESH),
    tokens,
    mask,
    np.zeros(4, np.float32),
    np.zeros(4, np.uint32),
    np.full(4, golden.NEW, np.int32),
  )
  expected = np.load(folder / 'expected.npz')['greedy']
  np.testing.assert_array_equal(out.tokens, expected)
  assert np.all(out.mask) and not np.any(out.stopped)


def test_sampler_logps_equal_scorer_logps():
  method = Sampling(top_k=9, min_p=0.05, repetition_penalty=1.4)
  tokens, mask = golden.prompts()
  top_p = np.array([1.0, 0.4, 0.8, 0.95], np.float32)
  temperature = np.array([0.0, 0.6, 1.0, 1.5], np.float32)
  out = generate_fn(method)(
    params(),
    tokens,
    mask,
    temperature,
    np.arange(4, dtype=np.uint32),
    np.full(4, NEW, np.int32),
    top_p,
  )
  scored = score_fn(method)(
    params(),
    tokens,
    mask,
    out.tokens,
    out.mask,
    jnp.asarray(temperature),
    top_p,
  )
  np.testing.assert_allclose(out.logps, scored, atol=1e-4)
  assert (np.asarray(out.logps)[np.asarray(out.mask)] <= 0).all()


@pytest.mark.slow
def test_padding_and_neighbours_do_not_change_a_row():
  tokens, mask = golden.prompts()
  together = run(tokens, mask, seeds=[5, 6, 7, 8])
  wider = [np.pad(x, ((0, 0), (4, 3))) for x in (tokens, mask)]
  padded = run(*wider, seeds=[5, 6, 7, 8])
  np.testing.assert_array_equal(together.tokens, padded.tokens)
  np.testing.assert_allclose(together.logps, padded.logps, atol=1e-4)
  swapped = run(tokens[::-1], mask[::-1], seeds=[8, 7, 6, 5])
  np.testing.assert_array_equal(together.tokens, swapped.tokens[::-1])


@pytest.mark.slow
def test_another_seed_gives_another_text_and_top_k_one_does_not():
  tokens, mask = golden.prompts()
  texts = [run(tokens, mask, 1.5, [seed] * 4).tokens for seed in (1, 2)]
  assert np.any(texts[0] != texts[1])
  greedy = run(tokens, mask, temperature=0.0)
  one = run(tokens, mask, temperature=2.0, method=Sampling(top_k=1))
  np.testing.assert_array_equal(one.tokens, greedy.tokens)


def test_nothing_follows_the_stop_token():
  tokens, mask = golden.prompts()
  draws = [
    run(tokens, mask, 1.5, np.arange(4) + 4 * draw) for draw in range(32)
  ]
  out = jax.tree.map(lambda *x: np.concatenate(x), *draws)
  assert out.stopped.any() and not out.stopped.all()
  (eos,) = tiny.CONFIG.eos_token_ids
  for row in np.flatnonzero(out.stopped):
    end = out.tokens[row].tolist().index(eos)
    assert out.mask[row].tolist() == [i <= end for i in range(NEW)]
    assert (out.tokens[row, end + 1 :] == tiny.CONFIG.pad_token_id).all()
    assert (out.logps[row, end + 1 :] == 0).all()
  assert out.mask[~out.stopped].all()


def test_limits_hold_per_row_and_empty_rows_stay_empty():
  tokens, mask = golden.prompts()
  mask[2] = False
  out = run(tokens, mask, temperature=0.0, limit=[3, 5, 5, 0])
  assert not out.stopped.any()
  assert out.mask.sum(axis=1).tolist() == [3, 5, 0, 0]
  assert (out.tokens[~out.mask] == tiny.CONFIG.pad_token_id).all()


@pytest.mark.slow
def test_devices_that_share_the_parameters_give_the_same_texts():
  config = dataclasses.replace(tiny.CONFIG, num_heads=4, vocab_size=96)
  params = tiny.params(config)
  rows = (
    *golden.prompts(),
    np.full(4, 0.8, np.float32),
    np.arange(4, dtype=np.uint32),
    np.full(4, 6, np.int32),
  )
  alone = make_generate_fn(config, Sampling(), LONGEST, 6, MESH)
  expected = alone(prepare(params, MESH), *rows)
  mesh = make_mesh({'tensor': 2})
  split = prepare(params, mesh, encoder_decoder.PARTITION)
  found = make_generate_fn(config, Sampling(), LONGEST, 6, mesh)(split, *rows)
  np.testing.assert_array_equal(found.tokens, expected.tokens)
  np.testing.assert_allclose(found.logps, expected.logps, atol=1e-5)


@pytest.mark.slow
def test_int8_kernels_of_the_decoder_change_log_probs_little():
  tokens, mask = golden.prompts()
  heat, seeds = np.full(4, 0.8, np.float32), np.arange(4, dtype=np.uint32)
  rounded = prepare(tiny.params(), MESH, bits=8)
  out = generate_fn(Sampling())(
    rounded, tokens, mask, heat, seeds, np.full(4, NEW, np.int32)
  )
  exact = score_fn(Sampling())(
    params(), tokens, mask, out.tokens, out.mask, heat
  )
  difference = np.abs(np.asarray(exact - out.logps))[np.asarray(out.mask)]
  assert 0 < difference.mean() < 0.02
  assert difference.max() < 0.1
