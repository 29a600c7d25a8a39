"""Embedding of texts: order, padding, compiled shapes and bad input."""

import json
import logging

import jax
import numpy as np
import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from promptrl_jax.models import embed, encoder, pretrained, sentence_encoder
from promptrl_jax.models.embed import EmbedConfig
from promptrl_jax.models.encoder import Encoder, EncoderConfig
from promptrl_jax.models.tokenizer import Tokenizer

WORDS = ('a', 'b', 'cat', 'dog', 'sat', 'ran', '##s')
VOCAB = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', *WORDS)
CONFIG = EncoderConfig(
  vocab_size=16,
  hidden_size=8,
  num_layers=2,
  num_heads=2,
  mlp_size=12,
  max_positions=12,
)
SETTINGS = EmbedConfig(lengths=(4, 8), batch_sizes=(1, 2, 4))
TEXTS = ('the cat sat', 'a dog', '', 'cats ran', 'a b a b a b', 'dog dog dog')


def make_tokenizer(special=True):
  ids = {word: i for i, word in enumerate(VOCAB)}
  tokenizer = tokenizers.Tokenizer(models.WordPiece(ids, unk_token='[UNK]'))
  tokenizer.normalizer = normalizers.BertNormalizer()
  tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
  if special:
    tokenizer.post_processor = processors.TemplateProcessing(
      single='[CLS] $A [SEP]',
      special_tokens=[(name, ids[name]) for name in ('[CLS]', '[SEP]')],
    )
  # As in published files: both must be replaced by our own.
  tokenizer.enable_truncation(3)
  tokenizer.enable_padding(length=12)
  return tokenizer


@pytest.fixture(scope='module')
def params():
  init = jax.jit(Encoder(CONFIG).init)
  tokens = np.ones((1, 2), np.int32)
  tree = init(jax.random.key(0), tokens, tokens > 0)
  return jax.tree.map(lambda x: x * 20 if x.ndim > 1 else x, tree)


@pytest.fixture(scope='module')
def embed_fn(params):
  return embed.make_embed_fn(CONFIG, params, make_tokenizer(), SETTINGS)


def test_vectors_are_those_of_each_text_alone_and_in_order(embed_fn, params):
  vectors = embed_fn(TEXTS)
  assert vectors.shape == (6, 8) and vectors.dtype == np.float32
  apply_fn = jax.jit(Encoder(CONFIG).apply)
  tokenizer = make_tokenizer()
  tokenizer.no_padding()
  tokenizer.no_truncation()
  # One shape, so that one program is compiled.
  row = lambda ids: np.array([[*ids, *[0] * (8 - len(ids))]])
  for text, vector in zip(TEXTS, vectors, strict=True):
    ids = tokenizer.encode(text).ids
    hidden = np.asarray(apply_fn(params, row(ids), row(ids) > 0))
    mean = hidden[0, : len(ids)].mean(axis=0)
    np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)


def test_a_long_text_loses_its_end_and_keeps_its_last_special_token(embed_fn):
  long = embed_fn(['a b a b a b a b a b'])
  np.testing.assert_allclose(long, embed_fn(['a b a b a b']), atol=1e-6)


def test_after_warm_up_nothing_is_compiled(params, caplog):
  embed_fn = embed.make_embed_fn(CONFIG, params, make_tokenizer(), SETTINGS)

  def compiled(texts):
    caplog.clear()
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
      embed_fn(texts)
    return sum('Compiling' in record.message for record in caplog.records)

  assert compiled(['cat']) == 1
  shapes = [[text] * size for text in ('cat', 'a b a b') for size in (1, 2, 4)]
  assert sum(map(compiled, shapes)) == 5
  rng = np.random.default_rng(0)
  for count in (1, 3, 5, 11):
    texts = [' '.join(rng.choice(WORDS[:6], n)) for n in range(count)]
    assert compiled(texts) == 0


def test_no_texts_are_no_rows(embed_fn):
  assert embed_fn([]).shape == (0, 8)


@pytest.mark.slow
@pytest.mark.parametrize('pooling', encoder.POOLINGS)
def test_each_pooling_gives_its_own_vectors(pooling, params):
  settings = EmbedConfig(pooling, False, lengths=(8,), batch_sizes=(2,))
  tokenizer = make_tokenizer()
  vectors = embed.make_embed_fn(CONFIG, params, tokenizer, settings)(['a cat'])
  # In the shape in which they are embedded: sums are rounded alike.
  ids = np.array([[2, 4, 6, 3, 0, 0, 0, 0]] * 2)
  hidden = jax.jit(Encoder(CONFIG).apply)(params, ids, ids > 0)
  expected = {
    'mean': np.mean(hidden[0, :4], axis=0),
    'first': hidden[0, 0],
    'pooler': np.tanh(hidden[0, 0] @ params['params']['pooler']),
  }[pooling]
  np.testing.assert_allclose(vectors[0], expected, atol=1e-5)


def test_a_folder_is_read_with_the_settings_it_was_published_with(
  params, embed_fn, tmp_path
):
  tokenizer = Tokenizer(make_tokenizer(), pad_id=0, bos_id=2, eos_id=3)
  pretrained.save_pretrained(tmp_path, CONFIG, params, tokenizer)
  plain = embed.read_settings(tmp_path, 12)
  assert plain == EmbedConfig('mean', False, lengths=(12,))
  write = lambda name, value: (tmp_path / name).write_text(json.dumps(value))
  write('modules.json', [{'type': 'sentence_transformers.models.Normalize'}])
  write('sentence_bert_config.json', {'max_seq_length': 8})
  (tmp_path / '1_Pooling').mkdir()
  pooling = {'pooling_mode_cls_token': True, 'pooling_mode_mean_tokens': False}
  write('1_Pooling/config.json', pooling)
  settings = embed.read_settings(tmp_path, 12)
  assert settings == EmbedConfig('first', True, lengths=(8,))
  write('1_Pooling/config.json', {'pooling_mode_mean_tokens': True})
  np.testing.assert_allclose(
    embed.load_embed_fn(tmp_path)(TEXTS), embed_fn(TEXTS), atol=1e-5
  )
  np.testing.assert_allclose(
    sentence_encoder.embed(TEXTS, str(tmp_path)), embed_fn(TEXTS), atol=1e-5
  )


def test_published_settings_that_are_not_supported_are_named(tmp_path):
  (tmp_path / '1_Pooling').mkdir()
  write = lambda name, value: (tmp_path / name).write_text(json.dumps(value))
  read = lambda: embed.read_settings(tmp_path, 12)
  for mode, ours in (('cls', 'first'), ('mean', 'mean')):
    write('1_Pooling/config.json', {'pooling_mode': mode})
    assert read().pooling == ours
  for values, name in (
    ({'pooling_mode_max_tokens': True}, 'pooling_mode_max_tokens'),
    ({'pooling_mode': 'lasttoken'}, 'lasttoken'),
    ({}, 'None'),
  ):
    write('1_Pooling/config.json', values)
    with pytest.raises(ValueError, match=f'asks for {name}; expected one of'):
      read()
  write('1_Pooling/config.json', {'pooling_mode': 'mean'})
  write('modules.json', [{'type': 'sentence_transformers.models.Dense'}])
  with pytest.raises(ValueError, match='has Dense; expected no more than'):
    read()


def test_what_is_no_list_of_texts_is_named(embed_fn):
  with pytest.raises(TypeError, match="one text, 'a cat'"):
    embed_fn('a cat')
  with pytest.raises(TypeError, match=r'texts\[1\] is None'):
    embed_fn(['a cat', None])


def test_settings_that_do_not_fit_the_model_are_named(params):
  make = lambda tokenizer, **changes: embed.make_embed_fn(
    CONFIG, params, tokenizer, EmbedConfig(**{'lengths': (8,)} | changes)
  )
  with pytest.raises(ValueError, match=r'lengths=\(8, 16\).*takes 12'):
    make(make_tokenizer(), lengths=(8, 16))
  with pytest.raises(ValueError, match='needs a post_processor'):
    make(make_tokenizer(special=False))
  large = make_tokenizer()
  large.add_tokens([f'word{i}' for i in range(10)])
  with pytest.raises(ValueError, match='has 21 tokens and the model 16'):
    make(large)


@pytest.mark.parametrize(
  'changes', [{'pooling': 'max'}, {'lengths': (8, 4)}, {'batch_sizes': ()}]
)
def test_impossible_settings_are_named(changes):
  (field,) = changes
  with pytest.raises(ValueError, match=f'{field}='):
    EmbedConfig(**changes)


def test_a_folder_without_a_tokenizer_is_named(params, tmp_path):
  pretrained.save_model(tmp_path, CONFIG, params)
  with pytest.raises(FileNotFoundError, match=r'tokenizer\.json'):
    embed.load_embed_fn(tmp_path)
