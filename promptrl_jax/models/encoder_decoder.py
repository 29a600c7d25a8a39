"""Encoder-decoder language model: T5, Flan-T5 and CodeT5+ 220M / 770M.

Teacher-forced; `encoder_decoder_steps` reads prompts and runs one token at a
time. Dropout is left out.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.models import relative_bias, weights
from promptrl_jax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  from_hf,
  to_hf,
)
from promptrl_jax.models.encoder_decoder_layers import (
  DecoderLayer,
  EncoderLayer,
  rms_norm,
)
from promptrl_jax.models.encoder_decoder_table import (
  EMBEDDING,
  HEAD,
  PARTITION,
  table,
)
from promptrl_jax.models.kernels import StoredKernel, dense, kernel_of

__all__ = [
  'PARTITION',
  'EncoderDecoder',
  'EncoderDecoderConfig',
  'as_stored',
  'from_hf',
  'shapes',
  'table',
  'to_hf',
]


class EncoderDecoder(nn.Module):
  """Prompts and the tokens of their answers to logits."""

  config: EncoderDecoderConfig

  def setup(self):
    c = self.config
    d, normal = c.hidden_size, nn.initializers.normal
    vocabulary, buckets = (c.vocab_size, d), (c.num_buckets, c.num_heads)
    self.embedding = self.param('embedding', normal(1.0), vocabulary)
    if not c.tie_embeddings:
      self.lm_head = kernel_of(
        self, 'lm_head', normal(d**-0.5), vocabulary[::-1]
      )
    self.encoder_bias = self.param('encoder_bias', normal(d**-0.5), buckets)
    self.decoder_bias = self.param('decoder_bias', normal(d**-0.5), buckets)
    self.encoder = _stacked(EncoderLayer, c.num_layers, 2, c)
    self.decoder = _stacked(DecoderLayer, c.num_decoder_layers, 4, c)
    ones = nn.initializers.ones
    self.encoder_norm = self.param('encoder_norm', ones, (d,))
    self.decoder_norm = self.param('decoder_norm', ones, (d,))

  def encode(self, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    """Hidden states [B, P, D] of prompts.

    Args:
      tokens: int [B, P].
      mask: bool [B, P], False on padding, which may be on any side; or
        [B, P, P], who sees whom, where several prompts lie in a row.
    """
    c = self.config
    bias = relative_bias.square(
      self.encoder_bias, tokens.shape[1], True, c.max_distance
    )
    x, _ = self.encoder(self._embed(tokens), bias, mask)
    return rms_norm(x, self.encoder_norm, c.norm_eps)

  def decode(
    self,
    encoded: jax.Array,
    mask: jax.Array,
    tokens: jax.Array,
    own_mask: jax.Array | None = None,
  ) -> jax.Array:
    """Hidden states of the decoder, teacher-forced.

    Args:
      encoded: [B, P, D], from `encode`.
      mask: bool [B, P], tokens of the prompt; or [B, G * T, P], who sees which.
      tokens: int [B * G, T], what the decoder reads for G answers to each
        prompt: `decoder_start_token_id`, then the answer, padding on the right.
      own_mask: bool [B * G, T, T], which of the tokens before it a token sees,
        where several answers lie in a row; None: all.

    Returns:
      [B * G, T, D], after the last norm.
    """
    c = self.config
    if own_mask is None:
      own_mask = jnp.ones(tokens.shape, bool)
    bias = relative_bias.causal(
      self.decoder_bias, tokens.shape[1], c.max_distance
    )
    x, _ = self.decoder(self._embed(tokens), encoded, bias, mask, own_mask)
    return rms_norm(x, self.decoder_norm, c.norm_eps)

  def logits(self, hidden: jax.Array) -> jax.Array:
    """Projects the decoder's [..., D] on the vocabulary: float32 [..., V]."""
    tied = self.config.tie_embeddings
    head = StoredKernel(self.embedding) if tied else self.lm_head
    return dense(self.config.output_scale * hidden, head, jnp.float32)

  def __call__(
    self, tokens: jax.Array, mask: jax.Array, decoder_tokens: jax.Array
  ) -> jax.Array:
    """Teacher-forced logits.

    Args:
      tokens: int [B, P], prompts.
      mask: bool [B, P], False on padding.
      decoder_tokens: int [B, T], as in `decode`.

    Returns:
      float32 [B, T, V]; those at t are of the token after
      `decoder_tokens[:, t]`.
    """
    encoded = self.encode(tokens, mask)
    return self.logits(self.decode(encoded, mask, decoder_tokens))

  def _embed(self, tokens: jax.Array) -> jax.Array:
    return self.embedding[tokens].astype(self.config.dtype)


def _stacked(
  layer: type[nn.Module], length: int, shared: int, config: EncoderDecoderConfig
) -> Any:
  """`length` layers as one scan; all get the same `shared` last arguments."""
  if config.remat:
    layer = nn.remat(layer, prevent_cse=False)
  return nn.scan(
    layer,
    variable_axes={'params': 0, 'lora': 0},
    split_rngs={'params': True},
    in_axes=(nn.broadcast,) * shared,  # pyright: ignore[reportArgumentType]
    length=length,
  )(config)  # pyright: ignore[reportCallIssue]


def shapes(config: EncoderDecoderConfig) -> Any:
  """The parameter tree with `jax.ShapeDtypeStruct`s as leaves."""
  tokens = jnp.zeros((1, 1), jnp.int32)
  init = EncoderDecoder(config).init
  return jax.eval_shape(
    init, jax.random.key(0), tokens, tokens.astype(bool), tokens
  )


def as_stored(
  config: EncoderDecoderConfig, tensors: weights.Tensors
) -> EncoderDecoderConfig:
  """The config with `tie_embeddings` as the checkpoint has it.

  The files of transformers 5 do not say whether the output matrix is the
  embedding; that library looks at the tensors as well.

  Raises:
    CheckpointError: the checkpoint holds no `shared.weight`.
  """
  names = tensors.names()
  if EMBEDDING not in names:
    raise weights.CheckpointError(
      f'{tensors.folder} has no {EMBEDDING!r}: is this a '
      'T5ForConditionalGeneration checkpoint?'
    )
  tied = HEAD not in names or bool(
    np.array_equal(tensors.read(HEAD), tensors.read(EMBEDDING))
  )
  return dataclasses.replace(config, tie_embeddings=tied)
