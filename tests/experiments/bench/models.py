"""Models whose operations and bytes are counted by hand."""

import dataclasses

from promptrl_jax.models.config import TransformerConfig

CONFIG = TransformerConfig(
  family='qwen2',
  vocab_size=50,
  hidden_size=8,
  num_layers=3,
  num_heads=2,
  num_kv_heads=2,
  head_size=4,
  mlp_size=16,
  max_positions=32,
  tie_embeddings=False,
  eos_token_ids=(),
)
# Products of a layer: 4 of 8 x 8 and 3 of 8 x 16; and 50 x 8 for logits.
TWO_LAYERS = dataclasses.replace(CONFIG, num_layers=2, dtype='bfloat16')
NORMS = 5 * 8  # counted among the parameters
