"""Short names of published models, with their hub ids and shapes.

The shapes are those of the published `config.json`, so that the memory of a
model can be estimated without its weights.
"""

from __future__ import annotations

import dataclasses
import re

from promptrl_jax.models.config import RopeScaling, TransformerConfig
from promptrl_jax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  LanguageModelConfig,
)
from promptrl_jax.models.packaged import GEMMA3, SMOLLM2, Package


@dataclasses.dataclass(frozen=True)
class Preset:
  """A published model.

  Attributes:
    package: where its weights come from instead of the hub.
  """

  hub_id: str
  config: LanguageModelConfig
  package: Package | None = None


def _llama_7b(hub_id: str, **settings) -> Preset:
  return Preset(
    hub_id,
    TransformerConfig(
      hidden_size=4096,
      num_layers=32,
      num_heads=32,
      num_kv_heads=32,
      head_size=128,
      mlp_size=11008,
      max_positions=16384,
      tie_embeddings=False,
      **settings,
    ),
  )


def _codet5p(name: str) -> Preset:
  """CodeT5+ (arXiv 2305.07922)."""
  hidden_size, layers = (768, 12) if name.startswith('220m') else (1024, 24)
  return Preset(
    f'Salesforce/codet5p-{name}',
    EncoderDecoderConfig(
      vocab_size=32100,
      hidden_size=hidden_size,
      num_layers=layers,
      num_decoder_layers=layers,
      num_heads=hidden_size // 64,
      head_size=64,
      mlp_size=4 * hidden_size,
      eos_token_ids=(2,),
    ),
  )


def _qwen_coder(size: str, **shape) -> Preset:
  return Preset(
    f'Qwen/Qwen2.5-Coder-{size}-Instruct',
    TransformerConfig(
      family='qwen2',
      max_positions=32768,
      rope_theta=1e6,
      norm_eps=1e-6,
      qkv_bias=True,
      bos_token_id=151643,
      eos_token_ids=(151645, 151643),
      pad_token_id=151643,
      **shape,
    ),
  )


PRESETS = {
  'codellama_7b_instruct': _llama_7b(
    'codellama/CodeLlama-7b-Instruct-hf', vocab_size=32016, rope_theta=1e6
  ),
  'codet5p_220m': _codet5p('220m'),
  'codet5p_220m_py': _codet5p('220m-py'),
  'codet5p_770m': _codet5p('770m'),
  'codet5p_770m_py': _codet5p('770m-py'),
  'gemma3_270m': Preset(
    'google/gemma-3-270m',
    TransformerConfig(
      family='gemma3_text',
      vocab_size=262144,
      hidden_size=640,
      num_layers=18,
      num_heads=4,
      num_kv_heads=1,
      head_size=256,
      mlp_size=2048,
      max_positions=32768,
      rope_theta=1e6,
      norm_eps=1e-6,
      bos_token_id=2,
      eos_token_ids=(1,),
      activation='gelu_tanh',
      qk_norm=True,
      sliding_window=512,
      global_every=6,
      local_rope_theta=10_000.0,
      post_norms=True,
      norm_offset=1.0,
      embedding_scale=640**0.5,
    ),
    GEMMA3,
  ),
  'llama_3_2_3b_instruct': Preset(
    'meta-llama/Llama-3.2-3B-Instruct',
    TransformerConfig(
      vocab_size=128256,
      hidden_size=3072,
      num_layers=28,
      num_heads=24,
      num_kv_heads=8,
      head_size=128,
      mlp_size=8192,
      max_positions=131072,
      rope_theta=5e5,
      rope_scaling=RopeScaling('llama3', 32.0, 1.0, 4.0, 8192),
      bos_token_id=128000,
      eos_token_ids=(128001, 128008, 128009),
    ),
  ),
  'qwen2_5_coder_0_5b_instruct': _qwen_coder(
    '0.5B',
    vocab_size=151936,
    hidden_size=896,
    num_layers=24,
    num_heads=14,
    num_kv_heads=2,
    head_size=64,
    mlp_size=4864,
  ),
  'qwen2_5_coder_1_5b_instruct': _qwen_coder(
    '1.5B',
    vocab_size=151936,
    hidden_size=1536,
    num_layers=28,
    num_heads=12,
    num_kv_heads=2,
    head_size=128,
    mlp_size=8960,
  ),
  'qwen2_5_coder_7b_instruct': _qwen_coder(
    '7B',
    vocab_size=152064,
    hidden_size=3584,
    num_layers=28,
    num_heads=28,
    num_kv_heads=4,
    head_size=128,
    mlp_size=18944,
    tie_embeddings=False,
  ),
  'smollm2_135m_instruct': Preset(
    'HuggingFaceTB/SmolLM2-135M-Instruct',
    TransformerConfig(
      vocab_size=49152,
      hidden_size=576,
      num_layers=30,
      num_heads=9,
      num_kv_heads=3,
      head_size=64,
      mlp_size=1536,
      max_positions=8192,
      rope_theta=1e5,
      pad_token_id=2,
    ),
    SMOLLM2,
  ),
  'deepseek_coder_6_7b_instruct': _llama_7b(
    'deepseek-ai/deepseek-coder-6.7b-instruct',
    vocab_size=32256,
    rope_theta=1e5,
    rope_scaling=RopeScaling('linear', 4.0),
    norm_eps=1e-6,
    bos_token_id=32013,
    eos_token_ids=(32021, 32014),
  ),
}


def find(name: str) -> Preset:
  """Returns the preset of a name or of an unambiguous prefix of a name.

  The publisher's spelling (`llama-3.2-3b-instruct`) is accepted, too.

  Raises:
    ValueError: no preset, or several, match the name.
  """
  plain = re.sub('[-.]', '_', name.lower())
  matches = [key for key in PRESETS if plain and key.startswith(plain)]
  if plain in PRESETS:
    matches = [plain]
  if len(matches) != 1:
    raise ValueError(
      f'model {name!r} names {len(matches)} presets; expected one of '
      f'{", ".join(PRESETS)}'
    )
  return PRESETS[matches[0]]
