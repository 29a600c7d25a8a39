"""Frozen settings of a T5 encoder-decoder, and their Hugging Face form."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from promptrl_jax.models import hf_fields
from promptrl_jax.models.config import TransformerConfig

_DTYPES = ('float32', 'bfloat16')
_ARCHITECTURES = ('T5ForConditionalGeneration', 'T5WithLMHeadModel')


@dataclasses.dataclass(frozen=True)
class EncoderDecoderConfig:
  """Shape of a T5 (arXiv 1910.10683), Flan-T5 or CodeT5+ 220M / 770M model.

  Attributes:
    vocab_size: V.
    hidden_size: D, width of the residual stream.
    num_layers: L of the encoder.
    num_decoder_layers: L of the decoder.
    num_heads: Q, heads of every attention.
    head_size: H; Q * H need not be D.
    mlp_size: F.
    is_gated: gelu(x A) * (x B) as in T5 1.1 (arXiv 2002.05202) instead of
      relu(x A).
    tie_embeddings: whether the projection on the vocabulary is the embedding.
    scaled: hidden states are divided by sqrt(D) before they are projected, as
      in T5 1.0.
    num_buckets: of relative positions; for the encoder half for each side.
    max_distance: tokens from which on all share the last bucket.
    norm_eps: epsilon of RMSNorm (arXiv 1910.07467).
    decoder_start_token_id: what the decoder reads first.
    eos_token_ids: tokens that end a text.
    pad_token_id: special token.
    dtype: of activations; norms, softmax and logits are float32 always.
    remat: whether layers are computed again in the backward pass.
    family: `model_type` of Hugging Face.
  """

  vocab_size: int
  hidden_size: int
  num_layers: int
  num_decoder_layers: int
  num_heads: int
  head_size: int
  mlp_size: int
  is_gated: bool = False
  tie_embeddings: bool = True
  scaled: bool = True
  num_buckets: int = 32
  max_distance: int = 128
  norm_eps: float = 1e-6
  decoder_start_token_id: int = 0
  eos_token_ids: tuple[int, ...] = (1,)
  pad_token_id: int = 0
  dtype: str = 'float32'
  remat: bool = False
  family: str = 't5'

  def __post_init__(self):
    if self.dtype not in _DTYPES:
      raise ValueError(
        f'dtype={self.dtype!r}: expected one of {_DTYPES} (activations of T5 '
        'exceed the largest float16)'
      )
    if self.num_buckets % 4 or self.num_buckets < 4:
      raise ValueError(
        f'num_buckets={self.num_buckets}: expected a multiple of 4, for two '
        'sides that are half exact and half logarithmic'
      )
    # With no more distances than exact buckets, the logarithm has no range.
    if self.max_distance <= self.num_buckets // 2:
      raise ValueError(
        f'max_distance={self.max_distance}: expected more than half of '
        f'num_buckets={self.num_buckets}'
      )

  @property
  def max_positions(self) -> float:
    """Relative positions have no end."""
    return math.inf

  @property
  def output_scale(self) -> float:
    """What hidden states are multiplied by before they are projected."""
    return self.hidden_size**-0.5 if self.scaled else 1.0

  @property
  def num_params(self) -> int:
    """Number of parameters."""
    d, heads = self.hidden_size, self.num_heads * self.head_size
    mlp = (2 + self.is_gated) * d * self.mlp_size
    encoder = self.num_layers * (4 * d * heads + mlp + 2 * d)
    decoder = self.num_decoder_layers * (8 * d * heads + mlp + 3 * d)
    embeddings = self.vocab_size * d * (1 if self.tie_embeddings else 2)
    biases = 2 * self.num_buckets * self.num_heads
    return embeddings + biases + encoder + decoder + 2 * d


# Of the models that write text.
LanguageModelConfig = TransformerConfig | EncoderDecoderConfig

# Our field -> the field of a Hugging Face `config.json`.
_REQUIRED = {
  'vocab_size': 'vocab_size',
  'hidden_size': 'd_model',
  'num_layers': 'num_layers',
  'num_heads': 'num_heads',
  'head_size': 'd_kv',
  'mlp_size': 'd_ff',
  'decoder_start_token_id': 'decoder_start_token_id',
}
# Those that the first T5 files leave out; the dataclass has their values.
_OPTIONAL = {
  'num_buckets': 'relative_attention_num_buckets',
  'max_distance': 'relative_attention_max_distance',
  'norm_eps': 'layer_norm_epsilon',
  'pad_token_id': 'pad_token_id',
}
# feed_forward_proj -> is_gated and the activation that it stands for.
_PROJECTIONS = {'relu': (False, 'relu'), 'gated-gelu': (True, 'gelu_new')}


def from_hf(values: Mapping[str, Any]) -> EncoderDecoderConfig:
  """Reads the `config.json` of a T5 model.

  Files of transformers 5 say `tie_word_embeddings: true` for every model. Where
  they also say that logits are not scaled, as of T5 1.1, the output matrix is
  taken to be separate; `encoder_decoder.as_stored` looks into the checkpoint.

  Raises:
    ValueError: a field is missing or its value is not supported.
  """
  hf_fields.expect(values, 'model_type', 't5')
  for name in values.get('architectures') or ():
    hf_fields.expect({'architectures': name}, 'architectures', *_ARCHITECTURES)
  hf_fields.expect(values, 'is_encoder_decoder', True)
  hf_fields.expect(values, 'feed_forward_proj', *_PROJECTIONS)
  is_gated, activation = _PROJECTIONS[values.get('feed_forward_proj') or 'relu']
  hf_fields.expect(values, 'dense_act_fn', activation)
  fields = hf_fields.required(values, _REQUIRED)
  fields |= hf_fields.optional(values, _OPTIONAL)
  says_tied = values.get('tie_word_embeddings', True) is not False
  scaled = bool(values.get('scale_decoder_outputs', says_tied))
  decoder_layers = values.get('num_decoder_layers')
  return EncoderDecoderConfig(
    **fields,
    num_decoder_layers=(
      fields['num_layers'] if decoder_layers is None else decoder_layers
    ),
    is_gated=is_gated,
    tie_embeddings=says_tied and scaled,
    scaled=scaled,
    eos_token_ids=hf_fields.as_tuple(values.get('eos_token_id', 1)),
  )


def to_hf(config: EncoderDecoderConfig) -> dict[str, Any]:
  """The content of a T5 `config.json` for this config.

  `remat` is ours and left out.
  """
  eos = config.eos_token_ids
  projection = 'gated-gelu' if config.is_gated else 'relu'
  fields = {
    hf: getattr(config, ours) for ours, hf in (_REQUIRED | _OPTIONAL).items()
  }
  return {
    'architectures': ['T5ForConditionalGeneration'],
    'model_type': 't5',
    'is_encoder_decoder': True,
    'num_decoder_layers': config.num_decoder_layers,
    'feed_forward_proj': projection,
    'is_gated_act': config.is_gated,
    'dense_act_fn': _PROJECTIONS[projection][1],
    'eos_token_id': eos[0] if len(eos) == 1 else [*eos] or None,
    'tie_word_embeddings': config.tie_embeddings,
    'scale_decoder_outputs': config.scaled,
    'dtype': config.dtype,
    **fields,
  }
