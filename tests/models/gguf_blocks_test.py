"""Kernels that stay in memory as a GGUF file stores them."""

import numpy as np
import pytest

from promptrl_jax.models import native, pretrained
from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling.batch_scorer import BatchScorer
from promptrl_jax.sampling.engine import make_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.sampling.requests import (
  EngineConfig,
  EngineRequest,
  SamplingParams,
)
from tests.golden import causal
from tests.models.gguf_files import quantized


@pytest.mark.skipif(not native.is_available(), reason='needs a C++ compiler')
@pytest.mark.parametrize('kinds', [{}, {'attn_v': 'Q8_0', 'ffn_down': 'Q5_0'}])
def test_kernels_as_stored_give_the_log_probs_of_the_model(kinds, tmp_path):
  path = quantized(tmp_path / 'model.gguf', kinds)
  mesh = make_data_mesh(1)
  shapes = EngineConfig(slots=2, prompt_lengths=(8,), new_tokens=12)
  prompts, texts = [[5, 9, 11], [40, 2]], [[7, 3, 12, 50], [1]]
  logps = {}
  for dtype in ('float32', 'gguf'):
    config, tree = pretrained.load_model(path, dtype=dtype)
    params = prepare(tree, mesh)
    scorer = BatchScorer(config, params, mesh, shapes)
    logps[dtype] = np.concatenate(scorer.run(prompts, texts))
  # Rows are rounded to 8 bits before each product.
  np.testing.assert_allclose(logps['gguf'], logps['float32'], atol=0.05)
  stored = params.layers[0]['stored'] | params.top['stored']
  bits = {name: kernel.values.bits for name, kernel in stored.items()}
  eight = {'qkv', 'down'} if kinds else set()
  assert bits == {n: 8 if n in eight else 4 for n in bits} and len(bits) == 5
  engine = make_engine(config, Sampling(), params, mesh, shapes)
  ((sample,), _) = engine.run(
    [EngineRequest(p, [SamplingParams(12, temperature=0.0)]) for p in prompts]
  )
  again = scorer.run([prompts[0]], [sample.tokens.tolist()])[0]
  np.testing.assert_allclose(sample.logps, again, atol=1e-4)


def test_only_a_gguf_file_is_kept_as_stored():
  with pytest.raises(ValueError, match="dtype='gguf': expected a GGUF file"):
    pretrained.load_model(causal.FOLDER / 'qwen2', dtype='gguf')
