"""Writes `bert/`: a tiny BERT with random weights and what it returns.

Needs torch and transformers, which the tests that read it do not:

  python tests/golden/make_bert.py
"""

import pathlib

import numpy as np
import torch
from transformers import BertConfig, BertModel

FOLDER = pathlib.Path(__file__).parent / 'bert'


def make() -> BertModel:
  """Weights far larger than at a usual start, so that every part is seen."""
  torch.manual_seed(0)
  config = BertConfig(
    vocab_size=60,
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=20,
  )
  model = BertModel(config).eval()
  with torch.no_grad():
    for name, tensor in model.named_parameters():
      center = 1.0 if name.endswith('LayerNorm.weight') else 0.0
      tensor.copy_(center + 0.4 * torch.randn_like(tensor))
  return model


def batch() -> dict[str, np.ndarray]:
  """Texts and pairs of 1 to 20 tokens."""
  rng = np.random.default_rng(0)
  lengths = np.array([20, 1, 7, 13])
  tokens = rng.integers(1, 60, (4, 20))
  mask = np.arange(20) < lengths[:, None]
  types = (np.arange(20) >= np.array([20, 20, 3, 6])[:, None]) & mask
  return {
    'tokens': np.where(mask, tokens, 0).astype(np.int32),
    'mask': mask,
    'types': types.astype(np.int32),
  }


def main() -> None:
  model, inputs = make(), batch()
  model.save_pretrained(FOLDER)
  with torch.no_grad():
    output = model(
      torch.tensor(inputs['tokens'], dtype=torch.long),
      torch.tensor(inputs['mask']),
      torch.tensor(inputs['types'], dtype=torch.long),
    )
  np.savez_compressed(
    FOLDER / 'outputs.npz',
    **inputs,
    hidden=output.last_hidden_state.numpy(),
    pooled=output.pooler_output.numpy(),
  )


if __name__ == '__main__':
  main()
