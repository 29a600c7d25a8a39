"""Causal and encoder-decoder models behind one interface."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling import programs
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.model import InputBatch, make_model
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.testing import tiny, tiny_encoder_decoder
from tests.variants import mostly_slow

P, N = 6, 5
T5 = dataclasses.replace(tiny_encoder_decoder.CONFIG, vocab_size=300)
MODELS = {
  'causal': (make_model(tiny.CONFIG, P, N), tiny.params),
  'window': (
    make_model(dataclasses.replace(tiny.CONFIG, sliding_window=4), P, N),
    tiny.params,
  ),
  'two kinds': (
    make_model(
      dataclasses.replace(tiny.CONFIG, sliding_window=4, global_every=2), P, N
    ),
    tiny.params,
  ),
  't5': (make_model(T5, P, N), lambda: tiny_encoder_decoder.params(T5)),
}


@pytest.mark.parametrize('kind', mostly_slow(MODELS, ['two kinds', 't5']))
def test_decoding_gives_the_logits_of_the_teacher_forced_forward(kind):
  model, make = MODELS[kind]
  params = prepare(make(), make_data_mesh(1))
  rng = np.random.default_rng(0)
  lengths = np.array([P, 3], np.int32)
  mask = np.arange(P) >= P - lengths[:, None]
  prompts = np.where(mask, rng.integers(3, 300, mask.shape), 0)
  tokens = rng.integers(3, 300, (2, N))
  zeros = np.zeros(2, np.int32)
  batch = InputBatch(
    P - lengths, lengths, zeros, zeros + N, zeros, zeros, zeros
  )

  @jax.jit
  def decode(params):
    everyone = jnp.arange(2)
    state = programs.insert(
      programs.empty_slots(model, Sampling(), 2, model.blocks(P)),
      programs.prefill(model, Sampling(), params, prompts, mask),
      everyone,
      everyone,
      jnp.array([2]),
    )
    logits, cache = [state.logits], state.cache
    for t in range(N - 1):
      step, cache = model.decode_step(
        params, tokens[:, t], batch, jnp.full(2, t), cache
      )
      logits.append(step)
    return jnp.stack(logits, axis=1)

  expected = jax.jit(model.completion_logits)(
    params, prompts, mask, tokens, np.ones((2, N), bool)
  )
  np.testing.assert_allclose(decode(params), expected, atol=1e-4)


@pytest.mark.parametrize('kind', MODELS)
def test_an_empty_cache_has_a_row_for_each_slot(kind):
  model, _ = MODELS[kind]
  cache = jax.eval_shape(lambda: model.empty_cache(7, model.blocks(P)))
  assert {leaf.shape[0] for leaf in jax.tree.leaves(cache)} == {7}


def test_a_causal_slot_has_room_for_prompt_and_completion_in_few_blocks():
  model = make_model(tiny.CONFIG, 100, 24)
  assert model.blocks(100) * model.width >= 124
  assert model.blocks(8) < model.blocks(100)


def test_the_penalty_starts_from_the_prompt_or_the_decoder_start_token():
  tokens = np.array([[0, 7, 8]])
  mask = np.array([[False, True, True]])
  causal, t5 = MODELS['causal'][0], MODELS['t5'][0]
  assert causal.context(tokens, mask) == (tokens, mask)
  first, seen = t5.context(tokens, mask)
  assert first.tolist() == [[T5.decoder_start_token_id]]
  assert seen.tolist() == [[True]]


def test_lengths_beyond_the_context_are_refused():
  with pytest.raises(ValueError, match=r'up to 120 and new_tokens=9 .* of 128'):
    make_model(tiny.CONFIG, 120, 9)
  make_model(T5, 1200, 9)  # relative positions have no end
