"""The encoder equals transformers on checkpoints of either library."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from promptrl_jax.models import encoder_weights, pretrained
from promptrl_jax.models.encoder import Encoder

torch = pytest.importorskip('torch', reason='parity extra is not installed')

LENGTHS = np.array([24, 1, 9, 17, 3])


def batch(vocab_size, seed=0):
  rng = np.random.default_rng(seed)
  mask = np.arange(24) < LENGTHS[:, None]
  tokens = np.where(mask, rng.integers(1, vocab_size, mask.shape), 0)
  types = (rng.random(mask.shape) < 0.5) & mask
  return tokens, mask, types.astype(np.int64)


def random_bert(model_class, seed, **changes):
  """A tiny model with weights far from those of a usual start."""
  from transformers import BertConfig

  torch.manual_seed(seed)
  config = BertConfig(
    **{
      'vocab_size': 80,
      'hidden_size': 24,
      'num_hidden_layers': 3,
      'num_attention_heads': 3,
      'intermediate_size': 40,
      'max_position_embeddings': 24,
    }
    | changes
  )
  model = model_class(config).eval()
  with torch.no_grad():
    for name, tensor in model.named_parameters():
      center = 1.0 if name.endswith('LayerNorm.weight') else 0.0
      tensor.copy_(center + 0.3 * torch.randn_like(tensor))
  return model


def reference(model, tokens, mask, types):
  with torch.no_grad():
    return model(
      input_ids=torch.tensor(tokens),
      attention_mask=torch.tensor(mask),
      token_type_ids=torch.tensor(types),
    )


def assert_same_hidden(config, params, model):
  tokens, mask, types = batch(config.vocab_size)
  expected = reference(model, tokens, mask, types).last_hidden_state.numpy()
  hidden = jax.jit(Encoder(config).apply)(params, tokens, mask, types)
  np.testing.assert_allclose(hidden[mask], expected[mask], atol=1e-4, rtol=0)
  return np.asarray(hidden), mask


@pytest.mark.parametrize('seed', range(3))
def test_hidden_states_and_pooler_equal_those_of_transformers(seed, tmp_path):
  from transformers import BertModel

  changes = {'layer_norm_eps': 1e-3, 'type_vocab_size': 3} if seed else {}
  model = random_bert(BertModel, seed, **changes)
  model.save_pretrained(tmp_path)
  config, params = pretrained.load_model(tmp_path)
  hidden, mask = assert_same_hidden(config, params, model)
  pooled = Encoder(config).apply(
    params, hidden, mask, 'pooler', method=Encoder.pool
  )
  expected = reference(model, *batch(80)).pooler_output.numpy()
  np.testing.assert_allclose(pooled, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
  'name',
  ['BertForMaskedLM', 'BertForPreTraining', 'BertForTokenClassification'],
)
def test_the_encoder_below_other_heads_is_read(name, tmp_path):
  import transformers

  model = random_bert(getattr(transformers, name), 0)
  model.save_pretrained(tmp_path)
  config, params = pretrained.load_model(tmp_path)
  assert config.has_pooler == (name == 'BertForPreTraining')
  values = json.loads((tmp_path / 'config.json').read_text())
  assert encoder_weights.from_hf(values) == config
  assert_same_hidden(config, params, model.bert)


@pytest.mark.parametrize('has_pooler', [True, False])
def test_transformers_reads_what_we_save(has_pooler, tmp_path):
  from transformers import BertModel

  random_bert(BertModel, 5).save_pretrained(tmp_path / 'theirs')
  config, params = pretrained.load_model(tmp_path / 'theirs')
  if not has_pooler:
    config = dataclasses.replace(config, has_pooler=False)
    kept = {k: v for k, v in params['params'].items() if 'pooler' not in k}
    params = {'params': kept}
  pretrained.save_model(tmp_path / 'ours', config, params)
  model, report = BertModel.from_pretrained(
    tmp_path / 'ours', add_pooling_layer=has_pooler, output_loading_info=True
  )
  assert not any(report.values()), report
  assert_same_hidden(config, params, model.eval())
