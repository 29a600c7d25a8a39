"""What a trained rewriter is written as."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import mbpp_grpo
from experiments import rewriters
from promptrl_jax.models import encoder, peft, pretrained
from promptrl_jax.models import tokenizer as tokenizer_lib
from promptrl_jax.models.encoder import EncoderConfig
from promptrl_jax.models.transformer import Transformer
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.testing import tiny
from promptrl_jax.training.rewriter import policy as lm_policy
from tests.training import tiny_rewriter


def hidden(config, tree):
  tokens = jnp.arange(5, 25)[None]
  places = jnp.arange(20)[None]
  mask = jnp.tril(jnp.ones((1, 20, 20), bool))
  return Transformer(config).apply(tree, tokens, places, mask)[0]


def saved(folder, tokenizer, seed=0):
  pretrained.save_pretrained(
    folder, tiny.CONFIG, tiny.params(seed=seed), tokenizer, 'float32'
  )
  return str(folder)


def test_a_reference_has_the_tokenizer_of_the_rewriter(tmp_path):
  tokenizer = tiny.tokenizer()
  model = saved(tmp_path / 'model', tokenizer)
  same = saved(tmp_path / 'same', tokenizer, seed=1)
  words = ['a reference reads other words than its policy'] * 3
  other = saved(tmp_path / 'other', tokenizer_lib.train(words, 270), seed=1)
  config = mbpp_grpo.get_config('smoke')
  config.rewriter.model, config.rewriter.dtype = model, 'float32'
  config.reference.kind, config.reference.model = 'model', same
  config.packing.prompt_size = 64
  start = rewriters.load_start(config.rewriter, same)
  assert start.reference_name['reference'].startswith('same@')
  made = rewriters.make(config, start, mesh_lib.make_data_mesh(), 0)
  found = made.reference_params(made.initial)['params']
  expected = start.reference.params['params']
  jax.tree.map(np.testing.assert_array_equal, found, expected)
  assert np.any(found['embedding'] != start.params['params']['embedding'])
  with pytest.raises(
    ValueError, match=r"reference\.model='.*other' has another tokenizer .* is"
  ):
    rewriters.load_start(config.rewriter, other)


def test_a_model_that_writes_no_text_cannot_be_trained(tmp_path):
  bert = EncoderConfig(tiny.CONFIG.vocab_size, 8, 1, 2, 8)
  params = jax.tree.map(lambda x: jnp.zeros(x.shape), encoder.shapes(bert))
  folder = tmp_path / 'bert'
  pretrained.save_pretrained(folder, bert, params, tiny.tokenizer())
  config = mbpp_grpo.get_config('smoke')
  config.rewriter.model = str(folder)
  with pytest.raises(ValueError, match='a bert model, which writes no text'):
    rewriters.load_start(config.rewriter)


def test_adapters_are_merged_and_kept_beside_the_model(tmp_path):
  made = tiny_rewriter.make(
    tiny_rewriter.make_config(train='lora', reference={'kind': 'adapter_off'})
  )
  state = tiny_rewriter.start(made)
  adapters = jax.tree.map(
    lambda x: (
      x + 0.05 * jnp.sin(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape)
    ),
    state.learner.params,
  )
  state = state.replace(learner=state.learner.replace(params=adapters))
  start = rewriters.Start(
    'tiny', made.policy.model, {'params': made.fixed['params']},
    tiny.tokenizer(),
  )  # fmt: skip
  rewriters.save(made, start, state, tmp_path)
  config, merged = pretrained.load_model(tmp_path / 'model')
  attached = lm_policy.variables(made.policy, made.params(state))
  expected = hidden(config, attached)
  np.testing.assert_allclose(hidden(config, merged), expected, atol=1e-3)
  plain = hidden(config, {'params': made.fixed['params']})
  assert np.abs(np.asarray(expected - plain)).max() > 0.1
  # The adapter alone, for whoever has the model.
  kept, alone = peft.load(tmp_path / 'adapter', config)
  assert kept.rank == made.policy.lora.rank
  for a, b in zip(
    jax.tree.leaves(alone), jax.tree.leaves(adapters['adapters']), strict=True
  ):
    np.testing.assert_allclose(a, b, rtol=1e-5)
