"""PEFT loads adapters that we save, and computes the same."""

import jax
import numpy as np
import pytest

from promptrl_jax.models import lora, pretrained
from promptrl_jax.models import peft as peft_lib
from tests.golden import causal, encoder_decoder
from tests.models import encoder_decoder_test
from tests.models.causal_families_test import greedy, load, log_probs

torch = pytest.importorskip('torch', reason='parity extra is not installed')
peft = pytest.importorskip('peft', reason='parity extra is not installed')


def random_adapters(config, params, std):
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: rng.normal(0, std, x.shape).astype(x.dtype),
    lora.shapes(config, params),
  )


@pytest.mark.parametrize('name', ['mistral', 'qwen3', 'gpt2'])
def test_peft_gives_the_same_with_adapters_that_we_saved(name, tmp_path):
  reference = causal.reference(name)
  reference.save_pretrained(tmp_path / 'model')
  model, params = load(tmp_path / 'model')
  config = lora.LoraConfig(3, 5.0, rslora=True, family=model.family)
  adapters = random_adapters(config, params, 0.3)
  peft_lib.save(tmp_path / 'adapters', config, adapters)
  adapted = peft.PeftModel.from_pretrained(reference, tmp_path / 'adapters')
  attached = jax.jit(lora.attach, static_argnums=0)(config, params, adapters)
  tokens, mask = causal.prompts(model.vocab_size)
  expected = causal.log_probs(adapted.eval(), tokens, mask)
  actual = np.asarray(log_probs(model, attached, tokens, mask))
  assert np.abs(actual - expected)[mask].max() <= 1e-4
  np.testing.assert_array_equal(
    greedy(model, attached, tokens, mask),
    causal.greedy(adapted, tokens, mask),
  )


@pytest.mark.parametrize('name', encoder_decoder.CASES)
@pytest.mark.parametrize('targets', [('.*',), ('encoder/qkv/q', 'wi', 'cross')])
def test_peft_gives_the_same_with_adapters_of_t5(name, targets, tmp_path):
  reference = encoder_decoder.reference(name)
  reference.save_pretrained(tmp_path / 'model')
  model, params = pretrained.load_model(tmp_path / 'model')
  config = lora.LoraConfig(3, 5.0, targets, True, lora.family_of(model))
  # Small: sharp attention amplifies the rounding of float32.
  adapters = random_adapters(config, params, 0.03)
  peft_lib.save(tmp_path / 'adapters', config, adapters)
  adapted = peft.PeftModel.from_pretrained(reference, tmp_path / 'adapters')
  attached = jax.jit(lora.attach, static_argnums=0)(config, params, adapters)
  prompts = encoder_decoder.prompts()
  expected = encoder_decoder.log_probs(adapted.eval(), *prompts)
  actual, plain = (
    encoder_decoder_test.log_probs(
      model, variables, *prompts, encoder_decoder.decoder_tokens()
    )
    for variables in (attached, params)
  )
  assert np.abs(actual - expected).max() <= 1e-4
  assert np.abs(actual - plain).max() > 0.5
