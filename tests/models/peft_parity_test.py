"""What we save, PEFT loads, and computes the same."""

import jax
import numpy as np
import pytest

from promptrl_jax.models import lora
from promptrl_jax.models import peft as peft_lib
from tests.golden import causal
from tests.models.causal_families_test import greedy, load, log_probs

torch = pytest.importorskip('torch', reason='parity extra is not installed')
peft = pytest.importorskip('peft', reason='parity extra is not installed')


@pytest.mark.parametrize('name', ['mistral', 'qwen3', 'gpt2'])
def test_peft_gives_the_same_with_adapters_that_we_saved(name, tmp_path):
  reference = causal.reference(name)
  reference.save_pretrained(tmp_path / 'model')
  model, params = load(tmp_path / 'model')
  config = lora.LoraConfig(3, 5.0, rslora=True, family=model.family)
  rng = np.random.default_rng(0)
  adapters = jax.tree.map(
    lambda x: rng.normal(0, 0.3, x.shape).astype(x.dtype),
    lora.shapes(config, params),
  )
  peft_lib.save(tmp_path / 'adapters', config, adapters)
  adapted = peft.PeftModel.from_pretrained(reference, tmp_path / 'adapters')
  attached = jax.jit(lora.attach, static_argnums=0)(config, params, adapters)
  tokens, mask = causal.prompts(model.vocab_size)
  expected = causal.log_probs(adapted.eval(), tokens, mask)
  found = np.asarray(log_probs(model, attached, tokens, mask))
  assert np.abs(found - expected)[mask].max() <= 1e-4
  np.testing.assert_array_equal(
    greedy(model, attached, tokens, mask),
    causal.greedy(adapted, tokens, mask),
  )
