"""Continuous batching gives each request what it would get alone."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling.decode import make_generate_fn
from promptrl_jax.sampling.engine import EngineConfig, Request, make_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.testing import tiny

NEW = 24
LENGTHS = (6, 14)
SETTINGS = EngineConfig(
  slots=6, prompt_lengths=LENGTHS, new_tokens=NEW, steps=5, prefill_rows=2
)
MESH = mesh_lib.make_data_mesh()
METHOD = Sampling(top_k=120, min_p=0.01, repetition_penalty=1.2)


@functools.cache
def params():
  return prepare(tiny.params(), MESH)


@functools.cache
def engine(config=tiny.CONFIG, settings=SETTINGS):
  return make_engine(config, METHOD, params(), MESH, settings)


@functools.cache
def generate_fn(config):
  return make_generate_fn(config, METHOD, NEW, MESH)


def requests(count, seed=0, samples=1):
  """Prompts, limits, temperatures and seeds of all kinds."""
  rng = np.random.default_rng(seed)
  return [
    Request(
      prompt=rng.integers(
        3, tiny.CONFIG.vocab_size, rng.integers(1, LENGTHS[-1] + 1)
      ).tolist(),
      limit=int(rng.integers(1, NEW + 1)),
      temperature=float(rng.choice([0.0, 0.7, 1.0, 1.4])),
      top_p=float(rng.choice([1.0, 0.95, 0.5])),
      seed=int(rng.integers(2**32)),
      samples=samples,
    )
    for _ in range(count)
  ]


def expected(requests, config=tiny.CONFIG):
  """(tokens, log-probs, stopped) by `decode.generate`, one sample each."""
  length = LENGTHS[-1]
  rows = len(requests) + len(requests) % 2  # a multiple of the devices
  tokens = np.zeros((rows, length), np.int32)
  mask = np.zeros((rows, length), bool)
  for row, request in enumerate(requests):
    tokens[row, length - len(request.prompt) :] = request.prompt
    mask[row, length - len(request.prompt) :] = True
  column = lambda name, dtype: np.asarray(
    [getattr(r, name) for r in requests] + [0] * (rows - len(requests)), dtype
  )
  out = jax.device_get(
    generate_fn(config)(
      params(), tokens, mask, column('temperature', np.float32),
      column('seed', np.uint32), column('limit', np.int32),
      np.maximum(column('top_p', np.float32), 0.01),
    )
  )  # fmt: skip
  return [
    (out.tokens[i][out.mask[i]], out.logps[i][out.mask[i]], out.stopped[i])
    for i in range(len(requests))
  ]


def assert_same(samples, rows):
  for sample, (tokens, logps, stopped) in zip(samples, rows, strict=True):
    assert sample.tokens.tolist() == tokens.tolist()
    np.testing.assert_allclose(sample.logps, logps, atol=1e-4)
    assert sample.stopped == stopped


CONFIGS = {
  'full': tiny.CONFIG,
  'window, endless': dataclasses.replace(
    tiny.CONFIG, sliding_window=5, eos_token_ids=()
  ),
}


@pytest.mark.parametrize('config', CONFIGS.values(), ids=CONFIGS.keys())
def test_each_request_gets_what_generate_gives_it(config):
  asked = requests(30)
  results = engine(config).run(asked)
  rows = expected(asked, config)
  assert_same([sample for (sample,) in results], rows)
  assert any(stopped for *_, stopped in rows) == bool(config.eos_token_ids)
  assert len({len(tokens) for tokens, *_ in rows}) > 5


def test_order_of_arrival_changes_nothing():
  asked = requests(30)
  order = np.random.default_rng(1).permutation(len(asked))
  in_order = [sample for (sample,) in engine().run(asked)]
  shuffled = engine().run([asked[i] for i in order])
  for i, (found,) in zip(order, shuffled, strict=True):
    assert found.tokens.tolist() == in_order[i].tokens.tolist()
    np.testing.assert_array_equal(found.logps, in_order[i].logps)


@pytest.mark.parametrize('samples', [3, 11])  # more than a device's slots
def test_samples_of_a_prompt_are_those_of_consecutive_seeds(samples):
  asked = requests(5, seed=2, samples=samples)
  asked[0] = dataclasses.replace(asked[0], seed=2**32 - 1)
  alone = [
    dataclasses.replace(r, seed=(r.seed + i) % 2**32, samples=1)
    for r in asked
    for i in range(samples)
  ]
  results = engine().run(asked)
  assert [len(found) for found in results] == [samples] * len(asked)
  assert_same([s for found in results for s in found], expected(alone))


def test_mixed_calls_compile_nothing_after_the_first():
  fresh = make_engine(tiny.CONFIG, METHOD, params(), MESH, SETTINGS)
  fresh.run(requests(8))
  compiled = fresh.compiled_programs()
  # Empty, advance, one to read each length, one to copy: a block holds either.
  assert compiled == 5
  for seed in range(20):
    fresh.run(requests(1 + seed % 9, seed, samples=1 + seed % 3))
  assert fresh.compiled_programs() == compiled


def test_one_device_gives_what_two_give():
  one = Mesh(
    np.asarray(jax.devices()[:1]), ('data',), axis_types=(AxisType.Auto,)
  )
  asked = requests(9, seed=4)
  alone = make_engine(
    tiny.CONFIG, METHOD, prepare(tiny.params(), one), one, SETTINGS
  ).run(asked)
  assert_same([sample for (sample,) in alone], expected(asked))


def test_a_limit_of_zero_gives_an_empty_sample():
  asked = requests(3)
  asked[1] = dataclasses.replace(asked[1], limit=0)
  results = engine().run(asked)
  assert [len(found[0].tokens) > 0 for found in results] == [True, False, True]
  assert engine().run([asked[1]])[0][0].logps.shape == (0,)
  assert engine().run([]) == []


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'prompt': []}, r'0 tokens, expected 1 to 14'),
    ({'prompt': [5] * 15}, r'15 tokens, expected 1 to 14'),
    ({'prompt': [5, 300]}, r'token 300, expected 0 to 299'),
    ({'limit': 25}, r'limit=25, expected 0 to new_tokens=24'),
    ({'limit': -1}, r'limit=-1'),
    ({'temperature': -0.5}, r'temperature=-0.5'),
    ({'temperature': float('nan')}, r'temperature=nan'),
    ({'samples': 0}, r'samples=0, expected 1 or more'),
  ],
)
def test_requests_that_do_not_fit_are_refused(change, message):
  asked = [*requests(1), dataclasses.replace(requests(1)[0], **change)]
  with pytest.raises(ValueError, match=f'request 1: .*{message}'):
    engine().run(asked)


@pytest.mark.parametrize(
  'change', [{'slots': 0}, {'steps': 0}, {'prompt_lengths': (8, 8)}]
)
def test_impossible_settings_are_refused(change):
  (field,) = change
  with pytest.raises(ValueError, match=field):
    dataclasses.replace(SETTINGS, **change)


def test_prompts_beyond_the_context_are_refused():
  settings = dataclasses.replace(SETTINGS, prompt_lengths=(120,))
  with pytest.raises(ValueError, match=r'120 and new_tokens=24 .* of 128'):
    make_engine(tiny.CONFIG, METHOD, params(), MESH, settings)


def test_a_mesh_that_splits_parameters_is_refused():
  mesh = mesh_lib.make_mesh({'tensor': jax.device_count()})
  with pytest.raises(ValueError, match='mesh of data alone'):
    make_engine(tiny.CONFIG, METHOD, params(), mesh, SETTINGS)
