"""The encoder-decoder equals transformers on its checkpoints."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from promptrl_jax.models import encoder_decoder, relative_bias, weights
from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling.beam import Beams, beam_search
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.model import make_model
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.testing.reference_sampler import generate, make_generate_fn
from tests.golden import encoder_decoder as golden
from tests.models.encoder_decoder_test import load, log_probs

torch = pytest.importorskip('torch', reason='parity extra is not installed')


@pytest.mark.parametrize('name', golden.CASES)
def test_log_probs_and_texts_equal_those_of_transformers(name, tmp_path):
  reference = golden.reference(name)
  reference.save_pretrained(tmp_path)
  config, params = load(tmp_path)
  tokens, mask = golden.prompts()
  expected = golden.log_probs(reference, tokens, mask)
  actual = log_probs(config, params, tokens, mask, golden.decoder_tokens())
  assert np.abs(actual - expected).max() <= 1e-4

  ready = prepare(params, make_data_mesh(1))
  endless = dataclasses.replace(config, eos_token_ids=())
  out = jax.jit(generate, static_argnums=(0, 1))(
    make_model(endless, tokens.shape[1], golden.NEW),
    Sampling(),
    ready,
    tokens,
    mask,
    np.zeros(4, np.float32),
    np.zeros(4, np.uint32),
    np.full(4, golden.NEW, np.int32),
  )
  greedy = golden.greedy(reference, tokens, mask)
  np.testing.assert_array_equal(out.tokens, greedy)

  stops = golden.stop_tokens(greedy, 2)
  answers, scores = golden.beams(reference, tokens, mask, 5, 0.8, stops)
  stopping = dataclasses.replace(config, eos_token_ids=stops)
  best, actual = jax.jit(beam_search, static_argnums=(0, 1, 2))(
    stopping,
    Beams(5, 0.8),
    golden.BEAM_NEW,
    ready,
    tokens,
    mask,
    np.full(4, golden.BEAM_NEW, np.int32),
  )
  np.testing.assert_array_equal(best.tokens, answers)
  np.testing.assert_allclose(actual, scores, rtol=1e-4)


@pytest.mark.parametrize('name', golden.CASES)
def test_transformers_loads_what_is_saved(name, tmp_path):
  import transformers

  reference = golden.reference(name)
  reference.save_pretrained(tmp_path / 'theirs')
  config, params = load(tmp_path / 'theirs')
  weights.save_tree(tmp_path / 'ours', params, encoder_decoder.table(config))
  text = json.dumps(encoder_decoder.to_hf(config))
  (tmp_path / 'ours' / 'config.json').write_text(text)
  again = transformers.AutoModelForSeq2SeqLM.from_pretrained(
    tmp_path / 'ours', dtype=torch.float32
  )
  tokens, mask = golden.prompts()
  np.testing.assert_array_equal(
    golden.log_probs(again, tokens, mask),
    golden.log_probs(reference, tokens, mask),
  )


def test_heads_that_transformers_ties_in_an_unscaled_model_load(tmp_path):
  import transformers

  reference = golden.reference('flan_t5')
  model = transformers.T5ForConditionalGeneration(reference.config).eval()
  assert model.lm_head.weight is model.shared.weight
  model.save_pretrained(tmp_path)
  config, params = load(tmp_path)
  tokens, mask = golden.prompts()
  actual = log_probs(config, params, tokens, mask, golden.decoder_tokens())
  expected = golden.log_probs(model, tokens, mask)
  assert np.abs(actual - expected).max() <= 1e-4


@pytest.mark.parametrize(
  ('count', 'longest'), [(32, 128), (8, 20), (16, 64), (64, 100)]
)
@pytest.mark.parametrize('is_bidirectional', [True, False])
def test_buckets_equal_those_of_transformers(is_bidirectional, count, longest):
  from transformers.models.t5.modeling_t5 import T5Attention

  offsets = np.arange(-700, 701)
  expected = T5Attention._relative_position_bucket(
    torch.tensor(offsets), is_bidirectional, count, longest
  )
  np.testing.assert_array_equal(
    relative_bias.buckets(offsets, is_bidirectional, count, longest), expected
  )


@pytest.mark.slow
def test_log_probs_at_the_size_of_codet5p_770m(tmp_path):
  """24 + 24 layers, 738M parameters; takes 7 GB of memory and 3 GB of disk."""
  import transformers

  shape = {
    'vocab_size': 32_100,
    'd_model': 1024,
    'd_kv': 64,
    'd_ff': 4096,
    'num_layers': 24,
    'num_heads': 16,
    'feed_forward_proj': 'relu',
    'decoder_start_token_id': 0,
    'pad_token_id': 0,
    'eos_token_id': 2,
  }
  torch.manual_seed(0)
  reference = transformers.T5ForConditionalGeneration(
    transformers.T5Config(**shape)
  ).eval()
  reference.save_pretrained(tmp_path)
  rng = np.random.default_rng(0)
  mask = np.arange(256) >= np.array([[0], [150]])
  tokens = np.where(mask, rng.integers(3, 32_100, mask.shape), 0)
  decoder_tokens = rng.integers(3, 32_100, (2, 25))
  decoder_tokens[:, 0] = 0
  with torch.no_grad():
    logits = reference(
      input_ids=torch.tensor(tokens),
      attention_mask=torch.tensor(mask).long(),
      decoder_input_ids=torch.tensor(decoder_tokens),
    ).logits
  answers = golden.greedy(reference, tokens, mask, 64)
  expected = torch.log_softmax(logits, -1).numpy()
  del reference, logits
  config, params = load(tmp_path)
  assert config.num_params == 737_639_424
  actual = log_probs(config, params, tokens, mask, decoder_tokens)
  difference = np.abs(actual - expected).max()
  print(f'max |delta log-prob| = {difference:.2e}')
  assert difference <= 1e-4
  endless = dataclasses.replace(config, eos_token_ids=())
  mesh = make_data_mesh(1)
  ready = prepare(params, mesh)
  del params
  out = make_generate_fn(endless, Sampling(), 256, 64, mesh)(
    ready,
    tokens,
    mask,
    np.zeros(2, np.float32),
    np.zeros(2, np.uint32),
    np.full(2, 64, np.int32),
  )
  np.testing.assert_array_equal(out.tokens, answers)
