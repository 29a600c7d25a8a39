"""The encoder-decoder model: T5, Flan-T5 and CodeT5+ 220M / 770M.

This module runs full sequences with teacher forcing; `encoder_decoder_steps`
decodes token by token. The model has no dropout.
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
  """T5, from prompts and the tokens of their completions to logits."""

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
    """Computes the encoder's hidden states [B, P, D] of prompts.

    Args:
      mask: bool [B, P], False on padding, which may be on either side; or bool
        [B, P, P], the attention mask if a row holds several prompts.
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
    """Computes the decoder's hidden states with teacher forcing.

    Args:
      mask: bool [B, P], False on padding of the prompts; or bool [B, G * C, P],
        whether a completion token attends to a prompt token.
      tokens: int [B * G, C], inputs of the decoder for G completions per
        prompt: `decoder_start_token_id`, the completion, padding on the right.
      own_mask: bool [B * G, C, C], the self-attention mask if a row holds
        several completions, combined with the causal mask; None: causal only.

    Returns:
      [B * G, C, D], after the last norm.
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
    """Returns the logits of hidden states [..., D]: float32 [..., V]."""
    tied = self.config.tie_embeddings
    head = StoredKernel(self.embedding) if tied else self.lm_head
    return dense(self.config.output_scale * hidden, head, jnp.float32)

  def __call__(
    self, tokens: jax.Array, mask: jax.Array, decoder_tokens: jax.Array
  ) -> jax.Array:
    """Returns the logits float32 [B, C, V] that follow `decoder_tokens` [B, C].

    `tokens` [B, P] are the prompts and `mask` is False on their padding.
    """
    encoded = self.encode(tokens, mask)
    return self.logits(self.decode(encoded, mask, decoder_tokens))

  def _embed(self, tokens: jax.Array) -> jax.Array:
    return self.embedding[tokens].astype(self.config.dtype)


def _stacked(
  layer: type[nn.Module], length: int, shared: int, config: EncoderDecoderConfig
) -> Any:
  """Returns a scan over `length` layers that share their `shared` inputs."""
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
  """Returns the parameter tree with `jax.ShapeDtypeStruct` leaves."""
  tokens = jnp.zeros((1, 1), jnp.int32)
  init = EncoderDecoder(config).init
  key = jax.eval_shape(jax.random.key, 0)  # A real one would be compiled.
  return jax.eval_shape(init, key, tokens, tokens.astype(bool), tokens)


def as_stored(
  config: EncoderDecoderConfig, tensors: weights.Source
) -> EncoderDecoderConfig:
  """Returns the config with `tie_embeddings` as in the checkpoint.

  The `config.json` of transformers 5 does not say whether the output projection
  is the embedding, so this function compares the tensors.

  Raises:
    CheckpointError: the checkpoint has no `shared.weight`.
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
