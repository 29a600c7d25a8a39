"""The invariants of sampling from a causal model."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models.transformer import Transformer
from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.model import make_model
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.sampling.score import make_score_fn
from promptrl_jax.testing import tiny
from promptrl_jax.testing.reference_sampler import make_generate_fn
from tests.variants import mostly_slow

NEW = 12
LONGEST = 16  # tokens of a prompt
MESH = make_data_mesh()


@functools.cache
def params():
  return tiny.params()


@functools.cache
def decode_params():
  return prepare(params(), MESH)


@functools.cache
def generate_fn(method=Sampling()):
  return make_generate_fn(tiny.CONFIG, method, LONGEST, NEW, MESH)


@functools.cache
def score_fn(method):
  return make_score_fn(make_model(tiny.CONFIG, LONGEST, NEW), method, MESH)


def prompts(rows, length, seed=0):
  """Left-padded random prompts of several lengths."""
  rng = np.random.default_rng(seed)
  sizes = rng.integers(1, length + 1, rows)
  mask = np.arange(length) >= length - sizes[:, None]
  tokens = rng.integers(3, tiny.CONFIG.vocab_size, (rows, length))
  return np.where(mask, tokens, 0).astype(np.int32), mask


def run(
  tokens,
  mask,
  temperature=0.8,
  seeds=None,
  limit=NEW,
  method=Sampling(),
  top_p=1.0,
):
  rows = len(tokens)
  seeds = np.arange(rows) if seeds is None else seeds
  return generate_fn(method)(
    decode_params(),
    tokens,
    mask,
    np.full(rows, temperature, np.float32),
    np.asarray(seeds, np.uint32),
    np.full(rows, limit, np.int32),
    np.broadcast_to(np.asarray(top_p, np.float32), rows),
  )


@jax.jit
def full_logits(params, tokens):
  """Logits after each token of a sequence [T], by the full forward."""
  model = Transformer(tiny.CONFIG)
  size = len(tokens)
  hidden, _ = model.apply(
    params,
    tokens[None],
    jnp.arange(size)[None],
    jnp.tril(jnp.ones((1, size, size), bool)),
  )
  return model.apply(params, hidden[0], method=Transformer.logits)


def test_greedy_decode_with_cache_equals_argmax_of_the_full_forward():
  tokens, mask = prompts(2, 7)
  out = run(tokens, mask, temperature=0.0)
  for row in range(2):
    prompt = tokens[row][mask[row]]
    drawn = np.asarray(out.tokens[row])[np.asarray(out.mask[row])]
    assert len(drawn)
    # Padded on the right, where a causal model does not look.
    sequence = np.zeros(tokens.shape[1] + NEW, np.int32)
    sequence[: len(prompt) + len(drawn)] = np.concatenate([prompt, drawn])
    likeliest = np.argmax(full_logits(params(), sequence), axis=-1)
    expected = likeliest[len(prompt) - 1 :][: len(drawn)]
    np.testing.assert_array_equal(drawn, expected)


def test_padding_and_neighbours_do_not_change_a_row():
  tokens, mask = prompts(4, 9)
  together = run(tokens, mask, seeds=[5, 6, 7, 8])
  wider = np.pad(tokens, ((0, 0), (7, 0))), np.pad(mask, ((0, 0), (7, 0)))
  padded = run(*wider, seeds=[5, 6, 7, 8])
  np.testing.assert_array_equal(together.tokens, padded.tokens)
  np.testing.assert_allclose(together.logps, padded.logps, atol=1e-4)
  swapped = run(tokens[::-1], mask[::-1], seeds=[8, 7, 6, 5])
  np.testing.assert_array_equal(together.tokens, swapped.tokens[::-1])


METHODS = (Sampling(), Sampling(top_k=9, min_p=0.05, repetition_penalty=1.4))


@pytest.mark.parametrize(
  ('method', 'temperature'),
  mostly_slow(
    itertools.product(METHODS, (0.0, 0.6, 1.3)),
    [(METHODS[0], 0.0), (METHODS[1], 0.6)],
  ),
  ids=str,
)
def test_sampler_logps_equal_scorer_logps(method, temperature):
  tokens, mask = prompts(4, 6, seed=1)
  top_p = np.array([1.0, 0.4, 0.8, 0.95], np.float32)
  out = run(tokens, mask, temperature, method=method, top_p=top_p)
  scored = score_fn(method)(
    decode_params(),
    tokens,
    mask,
    out.tokens,
    out.mask,
    jnp.full(4, temperature, jnp.float32),
    top_p,
  )
  np.testing.assert_allclose(out.logps, scored, atol=1e-4)
  assert (np.asarray(out.logps)[np.asarray(out.mask)] <= 0).all()


def test_top_k_one_is_greedy_at_any_temperature():
  tokens, mask = prompts(4, 6)
  one = run(tokens, mask, temperature=2.0, method=Sampling(top_k=1))
  greedy = run(tokens, mask, temperature=0.0)
  np.testing.assert_array_equal(one.tokens, greedy.tokens)


def test_nothing_follows_the_stop_token():
  tokens, mask = prompts(64, 4, seed=3)
  out = jax.device_get(run(tokens, mask, temperature=1.5))
  assert out.stopped.any()
  for row in np.flatnonzero(out.stopped):
    end = out.tokens[row].tolist().index(tiny.CONFIG.eos_token_ids[0])
    assert out.mask[row].tolist() == [i <= end for i in range(NEW)]
    assert (out.tokens[row, end + 1 :] == tiny.CONFIG.pad_token_id).all()
    assert (out.logps[row, end + 1 :] == 0).all()


def test_limits_hold_per_row_and_empty_rows_stay_empty():
  tokens, mask = prompts(4, 5)
  mask[2] = False
  out = generate_fn()(
    decode_params(),
    tokens,
    mask,
    np.zeros(4, np.float32),
    np.zeros(4, np.uint32),
    np.array([3, 5, 5, 0], np.int32),
  )
  counts = np.asarray(out.mask).sum(axis=1)
  assert counts[0] <= 3 and counts[1] <= 5
  assert counts[2] == counts[3] == 0


def test_padding_with_the_stop_token_does_not_look_like_a_stop():
  config = dataclasses.replace(tiny.CONFIG, pad_token_id=2)
  tokens, mask = prompts(4, 8)
  mask[1] = False
  args = (np.full(4, 0.8, np.float32), np.arange(4, dtype=np.uint32))
  limits = np.full(4, 3, np.int32)
  padded = make_generate_fn(config, Sampling(), LONGEST, NEW, MESH)(
    decode_params(), tokens, mask, *args, limits
  )
  expected = generate_fn()(decode_params(), tokens, mask, *args, limits)
  np.testing.assert_array_equal(padded.stopped, expected.stopped)
  np.testing.assert_array_equal(padded.mask, expected.mask)
  assert not expected.stopped.all()


def test_one_program_per_shape():
  generate = make_generate_fn(tiny.CONFIG, Sampling(), LONGEST, 4, MESH)
  rows = (
    np.zeros(2, np.float32),
    np.zeros(2, np.uint32),
    np.full(2, 4, np.int32),
  )
  for seed in range(3):
    generate(decode_params(), *prompts(2, 6, seed), *rows)
  assert generate._cache_size() == 1


def test_int8_weights_and_cache_change_log_probs_little():
  tokens, mask = prompts(8, 12)
  config = dataclasses.replace(tiny.CONFIG, kv_cache='int8')
  generate = make_generate_fn(config, Sampling(), LONGEST, NEW, MESH)
  out = generate(
    prepare(params(), MESH, bits=8),
    tokens,
    mask,
    np.full(8, 0.8, np.float32),
    np.arange(8, dtype=np.uint32),
    np.full(8, NEW, np.int32),
  )
  exact = score_fn(Sampling())(
    decode_params(),
    tokens,
    mask,
    out.tokens,
    out.mask,
    np.full(8, 0.8, np.float32),
  )
  difference = np.abs(np.asarray(exact - out.logps))[np.asarray(out.mask)]
  assert 0 < difference.mean() < 0.01
  assert difference.max() < 0.05
