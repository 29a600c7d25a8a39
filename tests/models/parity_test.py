"""Our forward pass equals the reference implementation on the same weights."""

import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models import safetensors
from promptrl_jax.models.transformer import Transformer
from promptrl_jax.testing import tiny

torch = pytest.importorskip('torch', reason='parity extra is not installed')


def test_logits_equal_those_of_transformers(tmp_path):
  from transformers import LlamaForCausalLM

  safetensors.save(tmp_path, tiny.params(), tiny.CONFIG, tiny.tokenizer())
  _, params, _ = safetensors.load(tmp_path)
  reference = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
  tokens = np.random.default_rng(0).integers(3, 300, (2, 17))
  with torch.no_grad():
    expected = reference(torch.tensor(tokens)).logits.numpy()
  model = Transformer(tiny.CONFIG)
  hidden, _ = model.apply(
    params, jnp.asarray(tokens), jnp.tile(jnp.arange(17), (2, 1)),
    jnp.tril(jnp.ones((1, 17, 17), bool)),
  )  # fmt: skip
  logits = model.apply(params, hidden, method=Transformer.logits)
  np.testing.assert_allclose(logits, expected, atol=2e-3, rtol=1e-3)
