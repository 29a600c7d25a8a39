"""Building a rewriter's learner from a model, and saving it as one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax import settings
from promptrl_jax.llm.load import BackendConfig
from promptrl_jax.models import encoder, peft, pretrained
from promptrl_jax.models import tokenizer as tokenizer_lib
from promptrl_jax.models.encoder import EncoderConfig
from promptrl_jax.models.transformer import Transformer
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.testing import tiny
from promptrl_jax.training.rewriter import algorithms, build
from promptrl_jax.training.rewriter import policy as policy_lib
from promptrl_jax.training.rewriter.config import TrainConfig
from tests.training import tiny_rewriter

TINY = settings.override(TrainConfig(), tiny_rewriter.SETTINGS)


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
  backend = BackendConfig('jax', model)
  start = build.load_start(backend, same)
  assert start.names['reference'].startswith('same@')
  config = tiny_rewriter.make_config(reference={'kind': 'model', 'model': same})
  learner = build.make_learner(start, config, mesh_lib.make_data_mesh(), 0)
  found = learner.reference_params(learner.initial)['params']
  expected = start.reference.params['params']
  jax.tree.map(np.testing.assert_array_equal, found, expected)
  assert np.any(found['embedding'] != start.params['params']['embedding'])
  with pytest.raises(
    ValueError, match=r"reference\.model='.*other' has another tokenizer .* is"
  ):
    build.load_start(backend, other)


def test_a_model_that_writes_no_text_cannot_be_trained(tmp_path):
  bert = EncoderConfig(tiny.CONFIG.vocab_size, 8, 1, 2, 8)
  params = jax.tree.map(lambda x: jnp.zeros(x.shape), encoder.shapes(bert))
  folder = tmp_path / 'bert'
  pretrained.save_pretrained(folder, bert, params, tiny.tokenizer())
  with pytest.raises(ValueError, match='a bert model, which writes no text'):
    build.load_start(BackendConfig('jax', str(folder)))


def test_a_rewriter_stops_where_its_template_says(tmp_path):
  tokenizer = tiny.tokenizer()
  backend = BackendConfig('jax', saved(tmp_path / 'model', tokenizer))
  (line_end,) = tokenizer.encode(['\n'])[0]
  assert line_end not in build.load_start(backend).config.eos_token_ids
  start = build.load_start(backend, stop=('\n',))
  assert line_end in start.config.eos_token_ids
  learner = build.make_learner(
    start, tiny_rewriter.make_config(), mesh_lib.make_data_mesh(), 0
  )
  model = build.load_start(
    BackendConfig('jax', str(learner.save(learner.initial, tmp_path)))
  )
  for config in (learner.model, model.config):  # In training and after it.
    assert {*start.config.eos_token_ids} <= {*config.eos_token_ids}


def test_the_update_may_have_layer_after_layer(tmp_path):
  start = build.load_start(
    BackendConfig('jax', saved(tmp_path / 'model', tiny.tokenizer()))
  )
  config = tiny_rewriter.make_config(unroll=True)
  learner = build.make_learner(start, config, mesh_lib.make_data_mesh(), 0)
  assert learner.policy.model.unroll == tiny.CONFIG.num_layers > 1
  assert learner.model == start.config


@pytest.mark.slow
def test_adapters_are_merged_and_kept_beside_the_model(tmp_path):
  learner = tiny_rewriter.make_learner(
    tiny_rewriter.start_of(tiny.CONFIG, dict(tiny.params()), tiny.tokenizer()),
    tiny_rewriter.make_config(
      parameters='lora', reference={'kind': 'adapter_off'}
    ),
  )
  state = tiny_rewriter.initial(learner)
  adapters = jax.tree.map(
    lambda x: (
      x + 0.05 * jnp.sin(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape)
    ),
    state.train.params,
  )
  state = state.replace(train=state.train.replace(params=adapters))
  assert learner.save(state, tmp_path) == tmp_path / 'model'
  config, merged = pretrained.load_model(tmp_path / 'model')
  attached = policy_lib.variables(learner.policy, learner.params(state))
  expected = hidden(config, attached)
  np.testing.assert_allclose(hidden(config, merged), expected, atol=1e-3)
  plain = hidden(config, {'params': learner.fixed['params']})
  assert np.abs(np.asarray(expected - plain)).max() > 0.1
  # The adapter alone, for whoever has the model.
  kept, alone = peft.load(tmp_path / 'adapter', config)
  assert kept.rank == learner.policy.lora.rank
  for a, b in zip(
    jax.tree.leaves(alone), jax.tree.leaves(adapters['adapters']), strict=True
  ):
    np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize('name', algorithms.ALGORITHMS)
def test_each_algorithm_is_a_change_of_settings(name):
  config = algorithms.make_config(TINY, name)
  assert config.value_head == (name == 'ppo')
  assert config.iterations == tiny_rewriter.SETTINGS['iterations']


def test_an_unknown_algorithm_names_the_known_ones():
  for algorithm, switches in (('ppq', ()), ('grpo', ((1, 'ppq'),))):
    with pytest.raises(ValueError, match="'ppq': expected one of grpo, dr"):
      algorithms.make_config(TINY, algorithm, switches)


@pytest.mark.slow
def test_a_missing_reference_model_is_named():
  config = tiny_rewriter.make_config(reference={'kind': 'model', 'model': 'x'})
  with pytest.raises(ValueError, match=r'load_start.*reference=FOLDER'):
    tiny_rewriter.make(config)
