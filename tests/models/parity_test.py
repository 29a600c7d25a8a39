"""Causal families equal transformers on checkpoints that it saved."""

import numpy as np
import pytest

from promptrl_jax.models import pretrained, weights
from tests.golden import causal
from tests.models.causal_families_test import greedy, load, log_probs

torch = pytest.importorskip('torch', reason='parity extra is not installed')


@pytest.mark.parametrize('name', causal.CASES)
def test_log_probs_and_greedy_text_equal_those_of_transformers(name, tmp_path):
  reference = causal.reference(name)
  reference.save_pretrained(tmp_path)
  config, params = load(tmp_path)
  tokens, mask = causal.prompts(config.vocab_size)
  expected = causal.log_probs(reference, tokens, mask)
  actual = np.asarray(log_probs(config, params, tokens, mask))
  assert np.abs(actual - expected)[mask].max() <= 1e-4
  np.testing.assert_array_equal(
    greedy(config, params, tokens, mask),
    causal.greedy(reference, tokens, mask),
  )


@pytest.mark.parametrize('name', causal.CASES)
def test_transformers_loads_what_is_saved(name, tmp_path):
  import transformers

  reference = causal.reference(name)
  reference.save_pretrained(tmp_path / 'theirs')
  config, params = load(tmp_path / 'theirs')
  of = pretrained.family(config.family)
  weights.save_tree(tmp_path / 'ours', params, of.table(config))
  pretrained.write_config(tmp_path / 'ours', config, 'float32')
  again = transformers.AutoModelForCausalLM.from_pretrained(
    tmp_path / 'ours', dtype=torch.float32
  )
  tokens, mask = causal.prompts(config.vocab_size)
  np.testing.assert_allclose(
    causal.log_probs(again, tokens, mask)[mask],
    causal.log_probs(reference, tokens, mask)[mask],
    atol=1e-6,
  )
