"""Log-probs of given texts, from models in this process."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.llm.backend import Message, Request
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.llm.jax_lm import JaxLM
from promptrl_jax.llm.scorer import as_scorer
from promptrl_jax.models.attention import causal_mask
from promptrl_jax.models.encoder_decoder import EncoderDecoder
from promptrl_jax.models.transformer import Transformer
from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling import EngineConfig, Sampler
from promptrl_jax.testing import tiny, tiny_encoder_decoder
from promptrl_jax.testing.scripted import ScriptedBackend

CONFIG = EngineConfig(4, (16, 48), 16)


@pytest.fixture(scope='module')
def model():
  sampler = Sampler(
    tiny.CONFIG, tiny.params(), tiny.tokenizer(), make_data_mesh(), CONFIG
  )
  return JaxLM('tiny', sampler)


def ask(text, **fields):
  return Request((Message('user', text),), **fields, max_tokens=8)


@jax.jit
def plain(tokens, positions, mask):
  """Log-probs [T, V] of the stacked model on one row."""
  model = Transformer(tiny.CONFIG)
  hidden, _ = model.apply(tiny.params(), tokens, positions, mask)
  logits = model.apply(tiny.params(), hidden, method=Transformer.logits)
  return jax.nn.log_softmax(logits, axis=-1)[0]


def by_hand(prompt, text, given=''):
  """The same of a text; what pads it, for one program, comes after it."""
  tokenizer = tiny.tokenizer()
  before = tokenizer.render([('user', prompt)])
  before = [*before, *tokenizer.encode([given])[0]]
  (after,) = tokenizer.encode([text])
  size = len(before) + len(after)
  tokens = np.pad([[*before, *after]], ((0, 0), (0, 64 - size)))
  positions = np.arange(64)[None]
  logps = np.asarray(
    plain(tokens, positions, causal_mask(jnp.asarray(positions < size)))
  )
  places = range(len(before) - 1, len(before) + len(after) - 1)
  return [logps[i, t] for i, t in zip(places, after, strict=True)]


def test_each_token_has_the_log_prob_of_the_plain_forward_pass(model):
  pairs = [('add', ' two'), ('Write a function', 'x'), ('y' * 30, 'return a')]
  found = model.score([ask(p) for p, _ in pairs], [t for _, t in pairs])
  for (prompt, text), logps in zip(pairs, found, strict=True):
    np.testing.assert_allclose(logps, by_hand(prompt, text), atol=1e-4)


def test_what_stands_before_a_text_is_read_and_not_scored(model):
  (found,) = model.score([ask('add')], ['two'], '\n')
  np.testing.assert_allclose(found, by_hand('add', 'two', '\n'), atol=1e-4)
  assert len(found) == len(by_hand('add', 'two'))
  assert not np.allclose(found, by_hand('add', 'two'), atol=1e-3)


def test_a_score_does_not_depend_on_its_neighbours(model):
  prompts = [ask('add ' * (i % 5 + 1)) for i in range(11)]
  texts = ['re' * (i % 4 + 1) for i in range(11)]
  together = model.score(prompts, texts)
  for prompt, text, logps in zip(prompts, texts, together, strict=True):
    np.testing.assert_allclose(
      model.score([prompt], [text])[0], logps, atol=1e-5
    )


@pytest.mark.parametrize('text', ['', 'word ' * 40])
def test_a_text_without_tokens_or_beyond_the_limit_is_refused(model, text):
  with pytest.raises(ValueError, match='expected 1 to 16'):
    model.score([ask('add')], [text])


def test_a_prompt_beyond_the_limit_is_refused(model):
  with pytest.raises(ValueError, match='takes 48'):
    model.score([ask('word ' * 60)], ['a'])


def test_a_backend_without_log_probs_is_refused_by_name(model):
  assert as_scorer(model) is model
  cached = CachedBackend(CachedBackend(model))
  assert as_scorer(cached) is cached
  with pytest.raises(ValueError, match='scripted cannot score.*backend "jax"'):
    as_scorer(CachedBackend(ScriptedBackend(lambda _: '')))


def test_a_score_that_is_known_is_not_asked_for_again(model, tmp_path):
  asked = [ask('add'), ask('add', temperature=0.7), ask('sub')], ['a', 'a', 'b']
  first = CachedBackend(model, tmp_path / 'cache.db')
  found = first.score(*asked, '\n')
  assert (first.misses, first.hits) == (2, 1)  # the temperature says nothing
  again = CachedBackend(model, tmp_path / 'cache.db')
  for a, b, c in zip(
    found, again.score(*asked, '\n'), model.score(*asked, '\n'), strict=True
  ):
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, c)
  assert (again.misses, again.hits) == (0, 3)
  again.score(*asked)  # something else stands before the texts
  again.complete(asked[0][:1])
  assert (again.misses, again.hits) == (3, 4)


def test_an_encoder_decoder_scores_as_its_plain_forward_pass():
  tokenizer = dataclasses.replace(tiny.tokenizer(), end=(2,))
  config = dataclasses.replace(
    tiny_encoder_decoder.CONFIG, vocab_size=tiny.CONFIG.vocab_size
  )
  params = tiny_encoder_decoder.params(config)
  sampler = Sampler(config, params, tokenizer, make_data_mesh(), CONFIG)
  model = JaxLM('tiny', sampler)
  found = model.score([ask('add'), ask('add three')], ['two', 'a b c'])
  forward = jax.jit(EncoderDecoder(config).apply)
  for prompt, text, logps in zip(
    ('add', 'add three'), ('two', 'a b c'), found, strict=True
  ):
    before = np.array([tokenizer.render([('user', prompt)])])
    assert before[0, -1] == 2  # its encoder was trained on texts with an end
    (after,) = tokenizer.encode([text])
    shifted = np.array([[config.decoder_start_token_id, *after[:-1]]])
    logits = forward(params, before, np.ones_like(before, bool), shifted)
    expected = jax.nn.log_softmax(jnp.asarray(logits), axis=-1)[0]
    np.testing.assert_allclose(
      logps, expected[np.arange(len(after)), after], atol=1e-4
    )
