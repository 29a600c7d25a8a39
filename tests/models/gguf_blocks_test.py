"""Kernels that stay in memory as a GGUF file stores them."""

import numpy as np
import pytest

from promptrl_jax.models import (
  blocks,
  causal_families,
  kernels,
  native,
  pretrained,
)
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
from tests.variants import mostly_slow

MIXED = {'attn_v': 'Q8_0', 'ffn_down': 'Q5_0'}


@pytest.mark.skipif(not native.is_available(), reason='needs a C++ compiler')
@pytest.mark.parametrize('kinds', mostly_slow([{}, MIXED], [MIXED]))
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


@pytest.mark.parametrize(
  ('kinds', 'other', 'scale', 'bits'),
  [
    ({}, 'Q4_1', 1, (4, 4)),
    ({'attn_q': 'Q5_0', 'attn_k': 'Q5_1', 'attn_v': 'Q8_0'}, 'Q4_0', 1, (8, 4)),
    # Files of the type Q4_K_M have such queries, keys and values side by side.
    ({'attn_v': 'Q6_K', 'ffn_down': 'Q8_0'}, 'Q4_K', 4, (8, 8)),
  ],
)
def test_kernels_read_in_parts_are_those_of_the_file(
  kinds, other, scale, bits, tmp_path, monkeypatch
):
  path = quantized(tmp_path / 'model.gguf', kinds, other, scale)
  _, whole = pretrained.load_model(path, in_file=True)
  _, tree = pretrained.load_model(path, dtype='gguf')
  monkeypatch.setattr(blocks, '_AT_ONCE', 3 * 32 * 64 * scale)  # 3 panels
  for name, expected_bits in zip(('qkv', 'down'), bits, strict=True):
    packed = kernels.store(tree['blocks']['layers'][name][1], threads=1).values
    assert packed.bits == expected_bits
    expected = np.asarray(whole['params']['layers'][name][1])
    expected = expected.reshape(len(expected), -1).T
    error = abs(blocks.rows(packed, np.arange(len(expected))) - expected)
    is_exact = np.ones(len(expected), bool)
    if name == 'qkv' and other == 'Q4_K':  # Values follow 2 queries and a key.
      is_exact = np.arange(len(expected)) // (16 * scale) % 4 < 3
    # Scales are rounded to 16 bits; 8 bits are half a step off, too.
    largest = abs(expected).reshape(len(expected), -1, 32).max(axis=2)
    exact = np.full_like(largest, 1e-3 * largest.max())
    limit = np.where(is_exact[:, None], exact, 0.57 / 127 * largest)
    assert (error <= np.repeat(limit, 32, axis=1)).all()


@pytest.mark.parametrize('rules', [None, causal_families.PARTITION])
def test_what_cannot_be_packed_says_what_is_expected(
  rules, tmp_path, monkeypatch
):
  path = quantized(tmp_path / 'model.gguf', {})
  _, tree = pretrained.load_model(path, dtype='gguf')
  monkeypatch.setattr(native, 'is_available', lambda: False)
  with pytest.raises(ValueError, match=r'\(64, \d+\) as its file.* CPU'):
    prepare(tree, make_data_mesh(1), rules)


def test_only_a_gguf_file_is_kept_as_stored():
  with pytest.raises(ValueError, match="dtype='gguf': expected a GGUF file"):
    pretrained.load_model(causal.FOLDER / 'qwen2', dtype='gguf')
