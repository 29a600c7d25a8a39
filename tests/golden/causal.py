"""Tiny random causal language models of every family, by transformers.

  python -m tests.golden.causal        writes tests/golden/causal/*

Each folder holds a checkpoint that transformers has saved, and the log-probs
and the greedy text that it gave for `prompts`.
"""

from __future__ import annotations

import pathlib

import numpy as np

NEW = 64
FOLDER = pathlib.Path(__file__).parent / 'causal'
_LLAMA3 = {
  'rope_type': 'llama3',
  'rope_theta': 10_000.0,
  'factor': 4.0,
  'low_freq_factor': 1.0,
  'high_freq_factor': 4.0,
  'original_max_position_embeddings': 32,
}
_SHAPE = {
  'vocab_size': 96,
  'hidden_size': 32,
  'intermediate_size': 40,
  'num_hidden_layers': 2,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'max_position_embeddings': 128,
  'bos_token_id': 1,
  'eos_token_id': None,
  'pad_token_id': 0,
}
# name: class of transformers, settings beside the shape
CASES = {
  'llama2': ('Llama', {'num_key_value_heads': 4}),
  'llama3': (
    'Llama',
    {'rope_parameters': _LLAMA3, 'tie_word_embeddings': True},
  ),
  'codellama': ('Llama', {'rope_theta': 1e6, 'rms_norm_eps': 1e-5}),
  'deepseek_coder': (
    'Llama',
    {
      'rope_parameters': {
        'rope_type': 'linear',
        'rope_theta': 1e5,
        'factor': 4.0,
      },
    },
  ),
  'llama_biases': ('Llama', {'attention_bias': True, 'mlp_bias': True}),
  'mistral': ('Mistral', {'sliding_window': 9, 'head_dim': 16}),
  'qwen2': ('Qwen2', {'tie_word_embeddings': True}),
  'qwen3': ('Qwen3', {'head_dim': 16}),
  'gemma3': (
    'Gemma3',
    {
      'num_hidden_layers': 3,
      'layer_types': [
        'sliding_attention',
        'full_attention',
        'sliding_attention',
      ],
      'head_dim': 16,
      'sliding_window': 9,
      'query_pre_attn_scalar': 24,
      'tie_word_embeddings': True,
    },
  ),
  'gpt2': ('GPT2', None),
}
_GPT2 = {
  'vocab_size': 96,
  'n_embd': 32,
  'n_layer': 2,
  'n_head': 4,
  'n_positions': 128,
  'bos_token_id': 1,
  'eos_token_id': None,
}


def reference(name: str):
  """The model, in float32; weights large enough for peaked distributions."""
  import torch
  import transformers

  kind, settings = CASES[name]
  shape = _GPT2 if kind == 'GPT2' else {**_SHAPE, **settings}
  suffix = 'LMHeadModel' if kind == 'GPT2' else 'ForCausalLM'
  config_class = 'Gemma3TextConfig' if kind == 'Gemma3' else f'{kind}Config'
  config = getattr(transformers, config_class)(**shape)
  torch.manual_seed(0)
  model = getattr(transformers, kind + suffix)(config).float().eval()
  with torch.no_grad():
    for tensor in model.parameters():
      if tensor.ndim > 1:
        tensor.mul_(6.0)
      else:  # Norms and biases that are not ones and zeros.
        tensor.add_(0.2 * torch.randn_like(tensor))
      tensor.copy_(tensor.half())  # So that half the bytes hold all of it.
  return model


def prompts(vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
  """Left-padded tokens [3, 20] of several lengths and their mask."""
  rng = np.random.default_rng(0)
  mask = np.arange(20) >= 20 - np.array([[20], [7], [13]])
  tokens = np.where(mask, rng.integers(3, vocab_size, mask.shape), 0)
  return tokens.astype(np.int32), mask


def log_probs(model, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
  """Log-probs [B, T, V] of a model of transformers, in float32 or float64."""
  import torch

  positions = np.maximum(np.cumsum(mask, axis=-1) - 1, 0)
  with torch.no_grad():
    logits = model(
      torch.tensor(tokens, dtype=torch.long),
      attention_mask=torch.tensor(mask, dtype=torch.long),
      position_ids=torch.tensor(positions),
    ).logits
  wide = torch.promote_types(logits.dtype, torch.float32)
  return torch.log_softmax(logits, -1, dtype=wide).numpy()


def greedy(model, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
  """The likeliest continuation of `NEW` tokens, [B, NEW]."""
  import torch

  out = model.generate(
    torch.tensor(tokens, dtype=torch.long),
    attention_mask=torch.tensor(mask, dtype=torch.long),
    max_new_tokens=NEW,
    min_new_tokens=NEW,
    do_sample=False,
    pad_token_id=0,
  )
  return out[:, tokens.shape[1] :].numpy()


def main() -> None:
  for name in CASES:
    model, folder = reference(name), FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    tokens, mask = prompts(model.config.vocab_size)
    np.savez_compressed(
      folder / 'expected.npz',
      log_probs=log_probs(model, tokens, mask)[mask],
      greedy=greedy(model, tokens, mask).astype(np.int16),
    )
    model.half().save_pretrained(folder)  # Last: it rounds buffers, too.
    (folder / 'generation_config.json').unlink(missing_ok=True)


if __name__ == '__main__':
  main()
