"""Compilation of the C++ functions, and attention to a cache."""

import concurrent.futures
import contextlib
import dataclasses
import itertools
import pathlib
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax import files
from promptrl_jax.models import attention, native, rope, transformer
from promptrl_jax.models.cache import LayerCache, layout, wide
from promptrl_jax.testing import tiny
from tests.variants import mostly_slow

ROOT = pathlib.Path(__file__).parents[2]


# Queries that share a key, and threads.
GROUPS = mostly_slow(itertools.product((1, 3, 6), (1, 3)), {(1, 3), (6, 1)})


@pytest.mark.usefixtures('functions')
@pytest.mark.parametrize(('group', 'threads'), GROUPS)
@pytest.mark.parametrize('head', mostly_slow((16, 48, 64, 128), {48, 64}))
@pytest.mark.parametrize('slots', mostly_slow((7, 100, 320), {7, 320}))
@pytest.mark.parametrize('kind', ['plain', 'bfloat16'])
def test_attention_equals_that_of_xla(kind, slots, head, group, threads):
  rng = np.random.default_rng(slots + head)
  draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  cache = LayerCache.in_blocks(
    draw(5, slots, 2, head), draw(5, slots, 2, head), *layout(slots + 3), kind
  )
  token = (
    draw(5, 2, group + 2, head),
    rope.angles(jnp.arange(5) * 7, head, 1e4),
    head**-0.5,
    jnp.asarray([0, slots // 2, slots - 1, slots + 2, slots // 3]),
  )
  mask = rng.random((5, cache.num_slots)) < 0.5
  mask[:, slots:] = False
  mask[1] = np.arange(cache.num_slots) == slots - 1  # a single slot
  mask[2, : slots // 2] = False  # padding in front
  mask[3] = np.arange(cache.num_slots) < slots  # all written slots
  mask[[0, 2, 4], slots - 1] = True
  step = jax.jit(LayerCache.step, static_argnames=('scale', 'threads'))
  attended, after = step(cache, *token, mask, threads=threads)
  expected, same = step(cache, *token, mask)
  np.testing.assert_allclose(attended, expected, atol=2e-6)
  for actual, other in (after.keys, same.keys), (after.values, same.values):
    assert actual.dtype == other.dtype
    tolerance = {'rtol': 2**-7} if kind == 'bfloat16' else {'atol': 1e-6}
    numbers = [np.asarray(wide(x), np.float32) for x in (actual, other)]
    np.testing.assert_allclose(*numbers, **tolerance)
  # Masked keys and values have no influence.
  hidden = jnp.reshape(~mask, (5, 1, *cache.keys.shape[2:3], 1, -1))
  huge = jnp.asarray(1e30)
  if kind == 'bfloat16':  # Such a cache holds bits.
    huge = jax.lax.bitcast_convert_type(huge.astype(kind), jnp.uint16)
  spoilt = LayerCache(
    keys=jnp.where(hidden, huge, cache.keys),
    values=jnp.where(jnp.swapaxes(hidden, 3, 4), huge, cache.values),
  )
  again, _ = step(spoilt, *token, mask, threads=threads)
  np.testing.assert_allclose(again, expected, atol=2e-6)
  unseen = np.zeros_like(mask)
  nothing, _ = step(cache, *token, unseen, threads=threads)
  np.testing.assert_array_equal(nothing, 0)


@pytest.mark.usefixtures('functions')
@pytest.mark.parametrize('kind', ['plain', 'bfloat16'])
def test_a_loop_updates_a_cache_in_place(kind):
  shape = (3, 8, 2, 16)
  cache = LayerCache.in_blocks(
    jnp.zeros(shape), jnp.zeros(shape), *layout(8), kind
  )
  qkv = jnp.ones((3, 2, 4, 16))
  mask = jnp.ones((3, cache.num_slots), bool)

  def run(cache):
    def body(i, state):
      total, cache = state
      attended, cache = cache.step(qkv * i, None, 1.0, i, mask, threads=1)
      return total + attended, cache

    return jax.lax.fori_loop(0, 8, body, (jnp.zeros((3, 2, 2, 16)), cache))

  compiled = jax.jit(run, donate_argnums=0).lower(cache).compile()
  size = f'[{",".join(map(str, cache.keys.shape))}]'
  copies = [
    line for line in compiled.as_text().splitlines() if ' copy(' in line
  ]
  assert not [line for line in copies if size in line]
  _, after = compiled(cache)
  tokens = np.zeros((2, 8, 2, 16), np.uint16 if kind == 'bfloat16' else 'f4')
  after.copy_to(tokens, group=0, row=1, first=0)
  expected = jnp.broadcast_to(jnp.arange(8.0)[:, None, None], tokens.shape)
  if kind == 'bfloat16':
    tokens = wide(jnp.asarray(tokens))
  np.testing.assert_array_equal(np.asarray(tokens, np.float32), expected)


@pytest.mark.usefixtures('functions')
@pytest.mark.parametrize('slot', [-1, 16])
def test_a_slot_outside_of_the_cache_is_an_error(slot):
  nothing = jnp.zeros((1, 4, 1, 16))
  cache = LayerCache.in_blocks(nothing, nothing, *layout(4))
  mask = jnp.ones((1, cache.num_slots), bool)
  with pytest.raises(jax.errors.JaxRuntimeError, match='outside of the cache'):
    qkv = jnp.zeros((1, 1, 3, 16))
    step = cache.step(qkv, None, 1.0, slot, mask, threads=1)
    jax.block_until_ready(step)


# Tokens, head, group and threads.
EVERY_TIME = (7, 48, 3, 1), (100, 16, 3, 3)
PROMPTS = itertools.product((1, 7, 100, 320), (16, 48, 64), (1, 3), (1, 3))


@pytest.mark.usefixtures('functions')
@pytest.mark.parametrize(
  ('tokens', 'head', 'group', 'threads'), mostly_slow(PROMPTS, EVERY_TIME)
)
def test_attention_of_prompts_equals_that_of_xla(tokens, head, group, threads):
  config = dataclasses.replace(tiny.CONFIG, head_size=head)
  attend = jax.jit(attention.attend_fn(config, threads))
  rng = np.random.default_rng(tokens + head)
  draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  queries = draw(4, tokens, 2, group, head) / head**0.5
  keys, values = draw(2, 4, tokens, 2, head)
  valid = np.ones((4, tokens), bool)
  valid[1, : tokens // 2] = valid[3] = False  # padding in front
  valid[2, tokens - tokens // 3 :] = valid[2, : tokens // 3] = False  # around
  masks = {
    'causal': attention.prompt_mask(valid, tokens),
    'window': attention.prompt_mask(valid, tokens, 5),
  }
  seen = (rng.random((4, tokens, tokens)) < 0.5) | np.eye(tokens, dtype=bool)
  seen &= valid[:, None]
  masks['random'] = masks['causal'].replace(seen=jnp.asarray(seen))
  for name, mask in masks.items():
    seeing = np.any(mask.seen, -1)
    expected = attention.attend(queries, keys, values, mask.seen)[seeing]
    found = attend(queries, keys, values, mask)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[seeing], expected, atol=3e-6, err_msg=name)
  # Padding has no influence, and each row is the same bits alone.
  mask = masks['causal']
  hidden = ~valid[:, :, None, None]
  spoilt = [jnp.where(hidden, 1e30, x) for x in (keys, values)]
  again = attend(queries, *spoilt, mask)
  found = attend(queries, keys, values, mask)
  np.testing.assert_array_equal(again[valid], found[valid])
  for i in range(4):
    row = slice(i, i + 1)
    its = jax.tree.map(lambda x, row=row: x[row], mask)
    alone = attend(queries[row], keys[row], values[row], its)
    np.testing.assert_array_equal(alone[0], found[i])
  # So is each of the last tokens without those before, in less padding.
  few = tokens - tokens // 2
  for window in (None, 5):
    whole = attention.prompt_mask(valid, tokens, window)
    ends = attention.prompt_mask(valid[1:2, -few:], few // 2 + 1, window)
    found = attend(queries, keys, values, whole)[1, tokens - few // 2 - 1 :]
    alone = attend(
      queries[1:2, tokens - few // 2 - 1 :],
      keys[1:2, -few:],
      values[1:2, -few:],
      ends,
    )
    np.testing.assert_array_equal(alone[0], found)


@pytest.mark.usefixtures('functions')
def test_large_scores_do_not_overflow_and_nan_propagates():
  keys = jnp.ones((1, 2, 1, 16)) * jnp.array([1.0, -1.0])[None, :, None, None]
  values = jnp.ones((1, 2, 1, 16)) * jnp.array([2.0, 5.0])[None, :, None, None]
  cache = LayerCache.in_blocks(keys, values, *layout(2))
  mask = jnp.arange(cache.num_slots)[None] < 2
  queries = jnp.full((1, 1, 1, 16), 1e4)

  def attend(queries):  # The token is there already.
    qkv = jnp.stack([queries[:, 0], keys[:, 1], values[:, 1]], axis=2)
    return cache.step(qkv, None, 1.0, 1, mask, threads=1)[0]

  np.testing.assert_array_equal(attend(queries), 2.0)
  np.testing.assert_array_equal(attend(-queries), 5.0)
  assert np.isnan(attend(queries * np.nan)).all()


@pytest.mark.parametrize(
  ('environment', 'is_available'),
  [
    pytest.param({}, True, marks=pytest.mark.slow),
    pytest.param({'PROMPTRL_NATIVE': '0'}, False, marks=pytest.mark.slow),
    ({'PATH': ''}, False),  # no compiler
    pytest.param(
      {'PROMPTRL_COMPILATION_CACHE': ''}, True, marks=pytest.mark.slow
    ),
  ],
)
@pytest.mark.usefixtures('compiler')
def test_the_environment_decides_whether_functions_are_compiled(
  environment, is_available, tmp_path
):
  script = 'from promptrl_jax.models import native as f\n'
  script += 'print(f.is_available(), f.is_available())'
  cache = tmp_path / 'cache'
  done = subprocess.run(
    [sys.executable, '-c', script],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
    env={
      'PATH': '/usr/local/bin:/usr/bin:/bin',
      'JAX_PLATFORMS': 'cpu',
      'PROMPTRL_COMPILATION_CACHE': str(cache),
      **environment,
    },
  )
  assert done.stdout.split() == [str(is_available)] * 2
  kept = list(cache.iterdir()) if cache.exists() else []
  assert [p.suffix for p in kept] == ['.so'] * (not environment)


@pytest.mark.usefixtures('functions')
@pytest.mark.parametrize(
  ('is_held', 'times'),
  [
    (False, 1),
    (True, 3),  # Who holds the folder for too long is not waited for.
  ],
)
def test_one_of_those_that_start_at_once_compiles(
  is_held, times, tmp_path, monkeypatch
):
  library = pathlib.Path(native._load()._name)
  begun = []

  def compile_slowly(compiler, folder):
    begun.append(compiler)
    time.sleep(0.5)
    return library

  monkeypatch.setattr(native, '_compile', compile_slowly)
  monkeypatch.setattr(native, '_TIMEOUT_S', 0.2 if is_held else 30)
  monkeypatch.setenv('PROMPTRL_COMPILATION_CACHE', str(tmp_path))
  folder = files.held(tmp_path) if is_held else contextlib.nullcontext()
  with folder, concurrent.futures.ThreadPoolExecutor(3) as pool:
    loaded = list(pool.map(lambda _: native._load(), range(3)))
  assert len(begun) == times
  assert {path.suffix for path in tmp_path.iterdir()} == {'.so'}
  assert all(x.draw for x in loaded)


@pytest.mark.skipif(not native.is_available(), reason='needs a C++ compiler')
@pytest.mark.parametrize('size', [7, 300, 1537])
def test_tokens_are_drawn_by_the_cumulative_distribution(size):
  rng = np.random.default_rng(0)
  logits = rng.normal(scale=3, size=(64, size)).astype(np.float32)
  logits[:, rng.random(size) < 0.3] = -1e30
  uniform = np.linspace(0, 1, 64, endpoint=False).astype(np.float32)
  uniform[-1] = np.nextafter(np.float32(1), np.float32(0))
  temperature = np.where(np.arange(64) % 4, 1.0, 0.0).astype(np.float32)
  tokens, logps = map(np.asarray, native.draw(logits, temperature, uniform))
  exact = np.asarray(jax.nn.log_softmax(logits, axis=1), np.float64)
  chosen = np.take_along_axis(exact, tokens[:, None], axis=1)[:, 0]
  np.testing.assert_allclose(logps, chosen, atol=2e-5)
  cumulative = np.cumsum(np.exp(exact), axis=1)
  for i, token in enumerate(tokens):
    if temperature[i] == 0:
      assert token == np.argmax(logits[i])
      continue
    before = cumulative[i, token] - np.exp(exact[i, token])
    assert before - 1e-5 <= uniform[i] <= cumulative[i, token] + 1e-5
    assert logits[i, token] > -1e30


@pytest.mark.skipif(not native.is_available(), reason='needs a C++ compiler')
@pytest.mark.parametrize('offset', [0.0, 1.0])
def test_a_norm_does_not_depend_on_the_rows_beside_it(offset):
  x = jax.random.normal(jax.random.key(0), (9, 2, 48))
  scale = {'params': {'scale': jax.random.normal(jax.random.key(1), (48,))}}
  plain, fast = (transformer.RMSNorm(1e-5, offset, t) for t in (0, 1))
  expected = fast.apply(scale, x)
  np.testing.assert_allclose(expected, plain.apply(scale, x), rtol=2e-6)
  for count in (1, 4):
    alone = jax.jit(fast.apply)(scale, x[:count])
    np.testing.assert_array_equal(alone, expected[:count])
