"""What a trained rewriter is written as."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments import rewriters
from promptrl_jax.models import peft, pretrained
from promptrl_jax.models.transformer import Transformer
from promptrl_jax.testing import tiny
from promptrl_jax.training import lm_policy
from tests.training import tiny_rewriter


def hidden(config, tree):
  tokens = jnp.arange(5, 25)[None]
  places = jnp.arange(20)[None]
  mask = jnp.tril(jnp.ones((1, 20, 20), bool))
  return Transformer(config).apply(tree, tokens, places, mask)[0]


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
