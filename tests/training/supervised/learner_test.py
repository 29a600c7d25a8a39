"""Packing of pairs into rows, and that the training step learns them."""

import dataclasses
import functools
import itertools

import jax
import numpy as np
import pytest

from promptrl_jax.models.encoder_decoder import EncoderDecoder
from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.testing import tiny, tiny_encoder_decoder
from promptrl_jax.training.supervised import learner as supervised
from promptrl_jax.training.supervised import packing
from promptrl_jax.training.supervised.config import SupervisedConfig

CONFIG = SupervisedConfig(
  steps=80,
  rows=4,
  row_length=48,
  lr=0.01,
  muon_lr=0.02,
  warmup=2,
  weight_decay=0.0,
  prompt_weight=0.25,
  max_grad_norm=1.0,
)
TOKENIZER = tiny.tokenizer()
PAIRS = [
  ('add 1', ' + 1'),
  ('Write a function to add', ' return a + b'),
  ('a', ' numbers'),
  ('def add', '(a, b):\n  return a'),
]


def pack(pairs, **changes):
  config = SupervisedConfig(**{**vars(CONFIG), **changes})
  return packing.pack(itertools.cycle(pairs), TOKENIZER, config)


def spans(batch):
  """(row, start, stop) of every segment of a batch."""
  for row, segments in enumerate(batch.segments):
    for segment in range(1, segments.max() + 1):
      (places,) = np.nonzero(segments == segment)
      assert (np.diff(places) == 1).all()
      yield row, places[0], places[-1] + 1


def test_each_segment_is_one_whole_pair_from_first_to_last_token():
  batch = pack(PAIRS)
  texts = {prompt + reply for prompt, reply in PAIRS}
  found = []
  for row, start, stop in spans(batch):
    ids = batch.tokens[row, start:stop]
    assert ids[0] == TOKENIZER.bos_id and ids[-1] == TOKENIZER.eos_id
    positions = batch.positions[row, start:stop]
    np.testing.assert_array_equal(positions, np.arange(stop - start))
    found += TOKENIZER.decode([ids])
  assert set(found) == texts
  assert batch.segments.max() > 1  # rows do hold several pairs


def test_weights_are_zero_first_small_on_the_prompt_and_one_after():
  batch = pack(PAIRS)
  sizes = {
    prompt + reply: len(TOKENIZER.encode([prompt])[0])
    for prompt, reply in PAIRS
  }
  for row, start, stop in spans(batch):
    weights = batch.weights[row, start:stop]
    (text,) = TOKENIZER.decode([batch.tokens[row, start:stop]])
    prompt = 1 + sizes[text]
    assert weights[0] == 0.0
    assert (weights[1:prompt] == 0.25).all() and (weights[prompt:] == 1).all()
    is_reply = batch.replies[row, start:stop]
    assert not is_reply[:prompt].any() and is_reply[prompt:].all()
  padding = batch.segments == 0
  assert padding.any() and (batch.weights[padding] == 0).all()
  assert (batch.tokens[padding] == TOKENIZER.pad_id).all()


def test_a_pair_longer_than_a_row_is_left_out():
  batch = pack([('x' * 200, ' y'), PAIRS[0]])
  texts = [
    TOKENIZER.decode([batch.tokens[r, a:b]])[0] for r, a, b in spans(batch)
  ]
  assert set(texts) == {'add 1 + 1'}


def test_a_source_that_ends_fills_what_it_can():
  batch = packing.pack(iter(PAIRS), TOKENIZER, CONFIG)
  assert len(list(spans(batch))) == len(PAIRS)


@pytest.fixture(scope='module')
def loss_fn():
  """The mean loss of all weighted tokens, and of completions alone."""

  @functools.partial(jax.jit, static_argnums=0)
  def means(config, params, batch):
    _, (count, sums) = supervised.make_loss_fn(config)(params, batch)
    completion = sums['completion_loss'] / sums['completions']
    return sums['loss'] / count, completion

  return means


def test_the_loss_of_packed_pairs_is_the_mean_over_separate_ones(loss_fn):
  packed = packing.pack(iter(PAIRS), TOKENIZER, CONFIG)
  assert len({row for row, _, _ in spans(packed)}) < len(PAIRS)
  total, reply = loss_fn(tiny.CONFIG, tiny.params(), packed)
  sums, counts = np.zeros(2), np.zeros(2)
  for pair in PAIRS:
    alone = packing.pack(iter([pair]), TOKENIZER, CONFIG)
    count = [alone.weights.sum(), (alone.weights == 1).sum()]
    losses = loss_fn(tiny.CONFIG, tiny.params(), alone)
    sums += np.array(losses) * count
    counts += count
  np.testing.assert_allclose([total, reply], sums / counts, rtol=1e-5)


@pytest.mark.slow
def test_an_encoder_decoder_reads_the_same_rows(loss_fn):
  config = dataclasses.replace(
    tiny_encoder_decoder.CONFIG, vocab_size=tiny.CONFIG.vocab_size
  )
  params = tiny_encoder_decoder.params(config)
  packed = packing.pack(iter(PAIRS), TOKENIZER, CONFIG)
  total, reply = loss_fn(config, params, packed)
  losses = []
  forward = jax.jit(EncoderDecoder(config).apply)
  for prompt, answer in PAIRS:
    ids = [TOKENIZER.bos_id, *TOKENIZER.encode([prompt])[0]]
    wanted = np.array([*TOKENIZER.encode([answer])[0], TOKENIZER.eos_id])
    read = [config.decoder_start_token_id, *wanted[:-1]]
    # Padded to one shape: the encoder has a mask, and the decoder looks back.
    after = [(0, 0), (0, 48 - len(ids))], [(0, 0), (0, 48 - len(read))]
    logits = forward(
      params,
      np.pad([ids], after[0]),
      np.pad(np.ones((1, len(ids)), bool), after[0]),
      np.pad([read], after[1]),
    )
    logps = np.asarray(jax.nn.log_softmax(logits[0]))
    losses += (-logps[np.arange(len(wanted)), wanted]).tolist()
  assert float(total) == float(reply)
  assert float(total) == pytest.approx(np.mean(losses), rel=1e-5)
  mesh = make_data_mesh()
  learner = supervised.make_learner(config, CONFIG, mesh)
  state, found = learner.start_from(params), []
  for _ in range(CONFIG.steps):
    state, metrics = learner.update(state, packed)
    found.append(metrics['train/completion_loss'])
  assert found[0] == pytest.approx(float(reply), rel=1e-4) and found[-1] < 0.5


@pytest.mark.slow
def test_two_pairs_are_learnt_by_heart():
  learner = supervised.make_learner(tiny.CONFIG, CONFIG, make_data_mesh())
  state = learner.init(jax.random.key(0))
  batch = pack(PAIRS[:2])
  losses = []
  for _ in range(CONFIG.steps):
    state, metrics = learner.update(state, batch)
    losses.append(metrics['train/completion_loss'])
  assert losses[0] > 4.0  # near log(300): nothing is known at first
  assert losses[-1] < 0.1
  assert int(state.step) == CONFIG.steps
  assert learner.step_fn._cache_size() == 1


@pytest.mark.slow
def test_training_may_start_from_a_model_that_exists():
  config = SupervisedConfig(**{**vars(CONFIG), 'warmup': 0})
  learner = supervised.make_learner(tiny.CONFIG, config, make_data_mesh(1))
  before = jax.device_get(tiny.params())
  batch = pack(PAIRS)
  state = learner.start_from(tiny.params())
  first = learner.score(state, batch)
  state, metrics = learner.update(state, batch)
  assert first == pytest.approx(np.exp(-metrics['train/completion_loss']))
  assert learner.score(state, batch) > first
  # The step donates its state, and the model is still there.
  jax.tree.map(np.testing.assert_array_equal, before, tiny.params())


def test_sequences_that_end_make_a_batch_of_what_there_is():
  encoded = [([5, 6, 7], 1), ([8] * 100, 1), ([9, 9], 1)]
  batch = packing.pack_encoded(iter(encoded), 0, CONFIG)
  found = [
    list(batch.tokens[row, start:stop]) for row, start, stop in spans(batch)
  ]
  assert found == [[5, 6, 7], [9, 9]]
  assert (batch.weights > 0).sum() == 3
