"""Converts the shape of a workload to a config of transformers."""

from __future__ import annotations

from transformers import Qwen2Config


def config(shape: dict[str, int]) -> Qwen2Config:
  """Returns the config of `Workload.shape`."""
  return Qwen2Config(
    architectures=['Qwen2ForCausalLM'],
    vocab_size=shape['vocab_size'],
    hidden_size=shape['hidden_size'],
    num_hidden_layers=shape['num_layers'],
    num_attention_heads=shape['num_heads'],
    num_key_value_heads=shape['num_kv_heads'],
    intermediate_size=shape['mlp_size'],
    max_position_embeddings=shape['max_positions'],
    tie_word_embeddings=False,
    eos_token_id=None,
  )
