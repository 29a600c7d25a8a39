"""Continuous batching gives each request what it would get alone."""

import dataclasses
import functools
import itertools

import jax
import numpy as np
import pytest

from promptrl_jax.models import native
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling.batch_scorer import BatchScorer
from promptrl_jax.sampling.engine import make_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.sampling.requests import (
  EngineConfig,
  EngineRequest,
  SamplingParams,
)
from promptrl_jax.testing import tiny, tiny_encoder_decoder
from promptrl_jax.testing.reference_sampler import make_generate_fn
from tests.variants import mostly_slow

NEW = 24
LENGTHS = (6, 100)  # Caches of one block, and of two.
SETTINGS = EngineConfig(
  slots=6,
  prompt_lengths=LENGTHS,
  new_tokens=NEW,
  steps=5,
  prefill_rows=2,
  prompt_cache_bytes=1 << 30,
)
MESH = mesh_lib.make_data_mesh()
METHOD = Sampling(top_k=120, min_p=0.01, repetition_penalty=1.2)
STOPS = tuple(range(2, 20))  # Random texts hardly ever draw a single one.
CONFIG = dataclasses.replace(tiny.CONFIG, eos_token_ids=STOPS)
T5 = dataclasses.replace(
  tiny_encoder_decoder.CONFIG,
  vocab_size=CONFIG.vocab_size,
  eos_token_ids=STOPS,
)


@functools.cache
def params(config=CONFIG):
  is_t5 = config.family == T5.family
  tree = tiny_encoder_decoder.params(T5) if is_t5 else tiny.params()
  return prepare(tree, MESH)


def make(config=CONFIG):
  return make_engine(config, METHOD, params(config), MESH, SETTINGS)


engine = functools.cache(make)


@functools.cache
def generate_fn(config):
  return make_generate_fn(config, METHOD, LENGTHS[-1], NEW, MESH)


def requests(count, seed=0, samples=1):
  """Random prompts, and samples with all kinds of settings."""
  rng = np.random.default_rng(seed)

  def one():
    longest = rng.choice(LENGTHS)
    prompt = rng.integers(3, CONFIG.vocab_size, rng.integers(1, longest + 1))
    return EngineRequest(prompt.tolist(), [params() for _ in range(samples)])

  params = lambda: SamplingParams(
    max_tokens=int(rng.integers(1, NEW + 1)),
    temperature=float(rng.choice([0.0, 0.7, 1.0, 1.4])),
    top_p=float(rng.choice([1.0, 0.95, 0.5])),
    seed=int(rng.integers(2**32)),
  )
  return [one() for _ in range(count)]


def expected(requests, config=CONFIG):
  """(tokens, log-probs, stopped) of each sample by the reference."""
  jobs = [(r.prompt, params) for r in requests for params in r.samples]
  rows, length = 30, LENGTHS[-1]
  assert len(jobs) <= rows
  tokens = np.zeros((rows, length), np.int32)
  mask = np.zeros((rows, length), bool)
  for row, (prompt, _) in enumerate(jobs):
    tokens[row, length - len(prompt) :] = prompt
    mask[row, length - len(prompt) :] = True
  settings = [params for _, params in jobs]
  settings += [SamplingParams(0)] * (rows - len(jobs))
  column = lambda name, dtype: np.asarray(
    [getattr(params, name) for params in settings], dtype
  )
  out = jax.device_get(
    generate_fn(config)(
      params(config),
      tokens,
      mask,
      column('temperature', np.float32),
      column('seed', np.uint32),
      column('max_tokens', np.int32),
      column('top_p', np.float32),
    )
  )
  return [
    (out.tokens[i][out.mask[i]], out.logps[i][out.mask[i]], out.stopped[i])
    for i in range(len(jobs))
  ]


def flat(results):
  return [sample for samples in results for sample in samples]


def as_rows(results):
  return [(s.tokens, s.logps, s.stopped) for s in flat(results)]


def assert_same(samples, rows):
  for sample, (tokens, logps, stopped) in zip(samples, rows, strict=True):
    assert sample.tokens.tolist() == tokens.tolist()
    np.testing.assert_allclose(sample.logps, logps, atol=1e-4)
    assert sample.stopped == stopped


CONFIGS = {
  'full': CONFIG,
  'window, endless, int8': dataclasses.replace(
    tiny.CONFIG, sliding_window=5, eos_token_ids=(), kv_cache='int8'
  ),
  'encoder-decoder': T5,
}
both = pytest.mark.parametrize('config', [CONFIG, T5], ids=['causal', 't5'])
mostly_causal = pytest.mark.parametrize(
  'config', mostly_slow([CONFIG, T5], [CONFIG]), ids=['causal', 't5']
)


@pytest.mark.parametrize(
  'config',
  mostly_slow(CONFIGS.values(), [CONFIG]),
  ids=CONFIGS.keys(),
)
def test_each_request_gets_what_the_reference_gives_it(config):
  asked = requests(30)
  rows = expected(asked, config)
  assert_same(flat(engine(config).run(asked)), rows)
  assert any(stopped for *_, stopped in rows) == bool(config.eos_token_ids)
  assert len({len(tokens) for tokens, *_ in rows}) > 5


def test_order_of_arrival_changes_nothing():
  asked = requests(30)
  order = np.random.default_rng(1).permutation(len(asked))
  in_order = flat(engine().run(asked))
  shuffled = flat(engine().run([asked[i] for i in order]))
  for i, found in zip(order, shuffled, strict=True):
    assert found.tokens.tolist() == in_order[i].tokens.tolist()
    np.testing.assert_array_equal(found.logps, in_order[i].logps)


@both
@pytest.mark.parametrize('count', [3, 11])  # more than a group's slots
def test_samples_of_a_prompt_that_is_prefilled_once_are_those_of_each_alone(
  count, config
):
  asked = requests(2, seed=2, samples=count)
  asked[0].samples[0] = dataclasses.replace(asked[0].samples[0], seed=2**32 - 1)
  results = engine(config).run(asked)
  assert [len(found) for found in results] == [count] * len(asked)
  assert_same(flat(results), expected(asked, config))


@mostly_causal
def test_a_run_that_failed_leaves_nothing_behind(config):
  def fail(tokens):
    raise RuntimeError('the caller gave up')

  asked = requests(30, seed=4)
  samples = (dataclasses.replace(asked[5].samples[0], watch=fail),)
  broken = [*asked[:5], dataclasses.replace(asked[5], samples=samples)]
  other = make(config)
  alone = as_rows(engine(config).run(asked))
  for _ in range(2):
    with pytest.raises(RuntimeError, match='gave up'):
      other.run(broken)
    assert_same(flat(other.run(asked)), alone)


@mostly_causal
def test_samples_of_one_prompt_are_shared_out_over_the_groups(config):
  (request,) = requests(1, samples=6)
  prompts = []
  other = make(config)
  real = other.programs.prefill_fn
  other.programs = dataclasses.replace(
    other.programs,
    prefill_fn=lambda params, tokens, mask: (
      prompts.append(np.any(mask, axis=1).tolist())
      or real(params, tokens, mask)
    ),
  )
  other.run([request])
  assert prompts == [[True, False, True, False]]  # Two rows of two groups.


# Of sizes that `cpp/few_rows.cc` multiplies, whose rows are alone.
PACKED = dataclasses.replace(
  CONFIG, vocab_size=320, hidden_size=64, head_size=16, mlp_size=64
)


def make_packed(dtype, config=PACKED, **shapes):
  tree = jax.tree.map(lambda x: x.astype(dtype), tiny.params(PACKED))
  settings = dataclasses.replace(SETTINGS, **shapes)
  return make_engine(config, METHOD, prepare(tree, MESH), MESH, settings)


def watch(engine):
  """Returns lists of the rows of each prefill and each decode from here on."""
  programs, read, decoded = engine.programs, [], []

  def prefill(params, tokens, mask):
    read.append(len(tokens))
    return programs.prefill_fn(params, tokens, mask)

  def decode(params, slots, packed):
    decoded.append(len(slots.logits))
    return programs.decode_fn(params, slots, packed)

  engine.programs = dataclasses.replace(
    programs, prefill_fn=prefill, decode_fn=decode
  )
  return read, decoded


def assert_same_bits(asked, one, other):
  pairs = zip(flat(one.run(asked)), flat(other.run(asked)), strict=True)
  for sample, expected in pairs:
    np.testing.assert_array_equal(sample.tokens, expected.tokens)
    np.testing.assert_array_equal(sample.logps, expected.logps)


@pytest.mark.slow
@pytest.mark.skipif(not native.is_available(), reason='needs a C++ compiler')
@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_the_last_samples_are_decoded_with_fewer_slots(dtype):
  other, few = (make_packed(dtype, slots=slots) for slots in (32, 8))
  programs, (_, sizes) = other.programs, watch(other)
  assert_same_bits(requests(60, seed=1), other, few)
  assert list(dict.fromkeys(sizes)) == [32, 16, 8, 2]
  sizes.clear()
  assert_same_bits(requests(5, seed=8), other, few)
  assert list(dict.fromkeys(sizes)) == [8, 2]
  compiled = programs.compiled()
  assert_same_bits(with_seeds(requests(60, seed=1), 3), other, few)
  assert programs.compiled() == compiled


@pytest.mark.skipif(not native.is_available(), reason='needs a C++ compiler')
@pytest.mark.parametrize(
  'dtype', mostly_slow(('float32', 'bfloat16'), {'bfloat16'})
)
def test_a_request_is_read_and_decoded_alone_to_the_same_bits(dtype):
  engine = make_packed(dtype, slots=8)
  asked = requests(9, seed=2)
  expected = engine.run(asked)[:2]
  alone = make_packed(dtype, slots=8)
  read, decoded = watch(alone)
  found = [alone.run([request])[0] for request in asked[:2]]
  assert set(read) == set(decoded) == {2}  # one of each group
  for sample, same in zip(flat(found), flat(expected), strict=True):
    np.testing.assert_array_equal(sample.tokens, same.tokens)
    np.testing.assert_array_equal(sample.logps, same.logps)


@pytest.mark.skipif(not native.is_available(), reason='needs a C++ compiler')
@pytest.mark.parametrize(
  ('dtype', 'window'),
  mostly_slow(
    itertools.product(('float32', 'bfloat16'), (20, None)), {('bfloat16', None)}
  ),
)
def test_prompts_that_begin_alike_are_read_once_to_the_same_bits(dtype, window):
  kind = 'plain' if dtype == 'float32' else dtype
  config = dataclasses.replace(PACKED, sliding_window=window, kv_cache=kind)
  lengths = (60, 100)
  other, plain = (
    make_packed(dtype, config, prompt_lengths=lengths, ends=ends)
    for ends in ((16, 30), ())
  )
  rng = np.random.default_rng(3)
  starts = rng.integers(3, 300, (3, 80)).tolist()
  samples = requests(1, samples=2)[0].samples
  asked = [
    EngineRequest(
      [*start[: rng.integers(20, 81)], *rng.integers(3, 300, size).tolist()],
      samples,
    )
    for size in rng.integers(1, 18, 10)
    for start in starts
  ]
  ends, programs = [], other.programs

  def finish(params, tokens, mask, before):
    ends.append(tokens.shape[1] - before.shape[3])
    return programs.finish_fn(params, tokens, mask, before)

  other.programs = dataclasses.replace(programs, finish_fn=finish)
  assert_same_bits(asked, other, plain)
  assert set(ends) == {16, 30} and len(ends) > 4
  compiled = programs.compiled()
  other.run(with_seeds(asked, 3))
  other.run(asked[::-1])
  assert programs.compiled() == compiled


def counting(other):
  """Counts the prefills of an engine, in a list that grows."""
  calls, real = [], other.programs.prefill_fn
  other.programs = dataclasses.replace(
    other.programs,
    prefill_fn=lambda *args: calls.append(1) or real(*args),
  )
  return calls


def with_seeds(asked, seed):
  return [
    EngineRequest(
      r.prompt,
      [dataclasses.replace(p, seed=p.seed ^ seed) for p in r.samples],
    )
    for r in asked
  ]


@mostly_causal
def test_a_prompt_that_is_asked_again_is_not_prefilled_again(config):
  other = make(config)
  calls = counting(other)
  asked = requests(14, seed=3, samples=2)
  assert_same(flat(other.run(asked)), expected(asked, config))
  before = len(calls)
  assert before > 1
  again = with_seeds(asked, 77)
  more = requests(1, seed=9, samples=2)
  assert_same(
    flat(other.run([*again[::-1], *more])),
    expected([*again[::-1], *more], config),
  )
  assert len(calls) == before + 1
  # A prompt that only one group has read is read by the other one as well.
  crowd = [EngineRequest(asked[0].prompt, requests(1, 4, 11)[0].samples)]
  assert_same(flat(other.run(crowd)), expected(crowd, config))


def test_other_parameters_read_prompts_again():
  other = make()
  calls = counting(other)
  asked = requests(3)
  before = flat(other.run(asked))
  prefills = len(calls)
  double = jax.tree.map(lambda x: 2 * x, params(CONFIG))
  other.replace_params(double)
  after = flat(other.run(asked))
  assert len(calls) == 2 * prefills
  alone = make_engine(CONFIG, METHOD, double, MESH, SETTINGS)
  assert_same(after, as_rows(alone.run(asked)))
  assert any(
    not np.array_equal(a.logps, b.logps)
    for a, b in zip(before, after, strict=True)
  )


@pytest.mark.parametrize('prefills', mostly_slow([0, 1.5], [1.5]))
def test_memory_for_prompts_is_bounded(prefills):
  engine().run(requests(1))
  state = next(iter(engine()._cache._states.values()), None)
  size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
  limited = make_engine(
    CONFIG,
    METHOD,
    params(CONFIG),
    MESH,
    dataclasses.replace(SETTINGS, prompt_cache_bytes=int(prefills * size)),
  )
  calls = counting(limited)
  asked = requests(20, seed=6)
  for _ in range(2):
    before = len(calls)
    assert_same(flat(limited.run(asked)), expected(asked))
    assert limited._cache._bytes <= prefills * size
  assert len(calls) - before >= before // 2  # Most were dropped.
  assert len(limited._cache._places) < len(asked)


@both
def test_a_watch_ends_a_sample_and_frees_its_slot(config):
  asked = [
    EngineRequest(r.prompt, [dataclasses.replace(r.samples[0], max_tokens=NEW)])
    for r in requests(12, seed=5)
  ]
  whole = flat(engine(config).run(asked))
  told = [[] for _ in asked]
  limit = int(np.median([len(sample.tokens) for sample in whole]))

  def watch(i):
    def fn(tokens):
      before = len(told[i])
      told[i] += tokens.tolist()
      return limit - before if len(told[i]) >= limit else None

    return fn

  cut = flat(
    engine(config).run(
      [
        EngineRequest(
          r.prompt, [dataclasses.replace(r.samples[0], watch=watch(i))]
        )
        for i, r in enumerate(asked)
      ]
    )
  )
  ended = [len(sample.tokens) >= limit for sample in whole]
  assert any(ended) and not all(ended)
  for i, (found, sample) in enumerate(zip(cut, whole, strict=True)):
    assert found.tokens.tolist() == sample.tokens[:limit].tolist()
    np.testing.assert_allclose(found.logps, sample.logps[:limit], atol=1e-5)
    assert found.stopped
    # Bursts of five steps: nobody is asked beyond the one that ended it.
    assert len(told[i]) < limit + 5
    assert told[i] == sample.tokens[: len(told[i])].tolist()


@mostly_causal
def test_mixed_calls_compile_nothing_after_the_first(config):
  fresh = make(config)
  shorter = [r for r in requests(9) if len(r.prompt) <= LENGTHS[0]]
  fresh.run(shorter)
  # Empty slots, one prefill, one insert, one decode.
  assert fresh.compiled_programs() == 4
  fresh.run(requests(9))
  compiled = fresh.compiled_programs()
  # The same for slots of two blocks, which take prompts of one block, too.
  assert compiled == 9
  for seed in range(20):
    fresh.run(requests(1 + seed % 9, seed, samples=1 + seed % 3))
  assert fresh.compiled_programs() == compiled


def test_a_limit_of_zero_gives_an_empty_sample():
  asked = requests(3)
  asked[1] = EngineRequest(asked[1].prompt, [SamplingParams(0)])
  results = engine().run(asked)
  assert [len(found[0].tokens) > 0 for found in results] == [True, False, True]
  assert engine().run([asked[1]])[0][0].logps.shape == (0,)
  assert engine().run([]) == []


@pytest.mark.parametrize(
  ('prompt', 'params', 'message'),
  [
    ([], SamplingParams(1), r'0 tokens, expected 1 to 100'),
    ([5] * 101, SamplingParams(1), r'101 tokens, expected 1 to 100'),
    ([5, 300], SamplingParams(1), r'token 300, expected 0 to 299'),
    ([5], None, r'samples is empty'),
    ([5], SamplingParams(25), r'max_tokens=25, expected 0 to new_tokens=24'),
    ([5], SamplingParams(-1), r'max_tokens=-1'),
    ([5], SamplingParams(1, temperature=-0.5), r'temperature=-0.5'),
    ([5], SamplingParams(1, top_p=0.0), r'top_p=0.0'),
  ],
)
def test_requests_that_do_not_fit_are_refused(prompt, params, message):
  asked = [*requests(1), EngineRequest(prompt, [params] if params else [])]
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


def test_certainty_is_that_of_the_unfiltered_distribution():
  asked = requests(8, samples=2)
  shapes = dataclasses.replace(SETTINGS, certainty=True)
  plain = engine().run(asked)
  found = make_engine(CONFIG, METHOD, params(), MESH, shapes).run(asked)
  assert {s.certainty for s in flat(plain)} == {None}
  for expected_one, sample in zip(flat(plain), flat(found), strict=True):
    assert sample.tokens.tolist() == expected_one.tokens.tolist()
    np.testing.assert_array_equal(sample.logps, expected_one.logps)
  scorer = BatchScorer(CONFIG, params(), MESH, SETTINGS)
  scores = scorer.run(
    [r.prompt for r in asked for _ in r.samples],
    [s.tokens.tolist() for s in flat(found)],
  )
  for sample, logps in zip(flat(found), scores, strict=True):
    assert sample.certainty.shape == (2, len(sample.tokens))
    np.testing.assert_allclose(sample.certainty[0], logps, atol=1e-4)


def test_entropy_is_the_mean_surprise_of_what_is_sampled():
  asked = [
    EngineRequest(r.prompt, [SamplingParams(NEW, seed=i) for i in range(4)])
    for r in requests(10)
  ]
  shapes = dataclasses.replace(SETTINGS, certainty=True)
  config = dataclasses.replace(CONFIG, eos_token_ids=())
  found = make_engine(config, Sampling(), params(), MESH, shapes).run(asked)
  logps, entropies = np.concatenate(
    [sample.certainty for sample in flat(found)], axis=1
  )
  assert logps.size == 40 * NEW
  # The standard error of 960 tokens is below 0.05.
  assert abs(logps.mean() + entropies.mean()) < 0.15
  assert entropies.min() > 0
  assert entropies.max() < np.log(CONFIG.vocab_size)
