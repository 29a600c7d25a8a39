"""Configuration of T5 encoder-decoders, and its Hugging Face format."""

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
    head_size: H; Q * H may differ from D.
    is_gated: whether the MLP is gelu(x A) * (x B), as in T5 1.1 (arXiv
      2002.05202), instead of relu(x A).
    scaled: whether hidden states are divided by sqrt(D) before the output
      projection, as in T5 1.0.
    num_buckets: number of buckets of relative positions; the encoder uses half
      of them for each direction.
    max_distance: distance in tokens from which all positions share the last
      bucket.
    dtype: type of the activations; norms, softmax and logits are float32.
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
    # The logarithmic buckets need distances beyond the exact buckets.
    if self.max_distance <= self.num_buckets // 2:
      raise ValueError(
        f'max_distance={self.max_distance}: expected more than half of '
        f'num_buckets={self.num_buckets}'
      )

  @property
  def max_positions(self) -> float:
    """Infinity, because relative positions have no limit."""
    return math.inf

  @property
  def output_scale(self) -> float:
    """Factor on hidden states before the output projection."""
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


# Configuration of a model that generates text.
LanguageModelConfig = TransformerConfig | EncoderDecoderConfig

# Our field -> the field of `config.json`.
_REQUIRED = {
  'vocab_size': 'vocab_size',
  'hidden_size': 'd_model',
  'num_layers': 'num_layers',
  'num_heads': 'num_heads',
  'head_size': 'd_kv',
  'mlp_size': 'd_ff',
  'decoder_start_token_id': 'decoder_start_token_id',
}
# Fields that early T5 files omit; the defaults are those of the dataclass.
_OPTIONAL = {
  'num_buckets': 'relative_attention_num_buckets',
  'max_distance': 'relative_attention_max_distance',
  'norm_eps': 'layer_norm_epsilon',
  'pad_token_id': 'pad_token_id',
}
# feed_forward_proj -> (is_gated, dense_act_fn).
_PROJECTIONS = {'relu': (False, 'relu'), 'gated-gelu': (True, 'gelu_new')}


def from_hf(values: Mapping[str, Any]) -> EncoderDecoderConfig:
  """Reads the `config.json` of a T5 model.

  transformers 5 writes `tie_word_embeddings: true` for every model. If the file
  also says that logits are not scaled, as for T5 1.1, this function assumes a
  separate output projection; `encoder_decoder.as_stored` checks the tensors.

  Raises:
    ValueError: a field is missing or has an unsupported value.
  """
  hf_fields.expect(values, 'model_type', 't5')
  for name in values.get('architectures') or ():
    hf_fields.expect({'architectures': name}, 'architectures', *_ARCHITECTURES)
  hf_fields.expect(values, 'is_encoder_decoder', True)
  hf_fields.expect(values, 'feed_forward_proj', *_PROJECTIONS)
  is_gated, activation = _PROJECTIONS[values.get('feed_forward_proj') or 'relu']
  hf_fields.expect(values, 'dense_act_fn', activation)
  given = {k: v for k, v in _OPTIONAL.items() if values.get(v) is not None}
  fields = hf_fields.required(values, _REQUIRED | given)
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
  """Returns the content of a T5 `config.json`; it has no field for `remat`."""
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
