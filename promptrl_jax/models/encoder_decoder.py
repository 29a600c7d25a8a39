"""Encoder-decoder language model: T5, Flan-T5 and CodeT5+ 220M / 770M.

A prompt goes through `encode` once; its keys and values for the decoder's
cross-attention are computed once by `start_cache`; `decode_step` then runs one
token against both caches, cache in, cache out. `EncoderDecoder.__call__` is the
teacher-forced form of the same. Dropout is left out.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.models import relative_bias, weights
from promptrl_jax.models.cache import LayerCache
from promptrl_jax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  from_hf,
  to_hf,
)
from promptrl_jax.models.encoder_decoder_layers import (
  NEG_INF,
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
from promptrl_jax.models.kernels import StoredKernel, dense

__all__ = [
  'PARTITION',
  'EncoderDecoder',
  'EncoderDecoderConfig',
  'as_stored',
  'decode_step',
  'encode',
  'from_hf',
  'shapes',
  'start_cache',
  'table',
  'to_hf',
  'unstack_decoder',
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
      self.lm_head = self.param('lm_head', normal(d**-0.5), vocabulary[::-1])
    self.encoder_bias = self.param('encoder_bias', normal(d**-0.5), buckets)
    self.decoder_bias = self.param('decoder_bias', normal(d**-0.5), buckets)
    self.encoder = _stacked(EncoderLayer, c.num_layers, 2, c)
    self.decoder = _stacked(DecoderLayer, c.num_decoder_layers, 3, c)
    ones = nn.initializers.ones
    self.encoder_norm = self.param('encoder_norm', ones, (d,))
    self.decoder_norm = self.param('decoder_norm', ones, (d,))

  def encode(self, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    """Hidden states [B, P, D] of `tokens` int [B, P], padding on any side."""
    c = self.config
    bias = relative_bias.square(
      self.encoder_bias, tokens.shape[1], True, c.max_distance
    )
    x, _ = self.encoder(self._embed(tokens), bias, mask)
    return rms_norm(x, self.encoder_norm, c.norm_eps)

  def decode(
    self, encoded: jax.Array, mask: jax.Array, tokens: jax.Array
  ) -> jax.Array:
    """Hidden states of the decoder, teacher-forced.

    Args:
      encoded: [B, P, D], from `encode`.
      mask: bool [B, P], tokens of the prompt.
      tokens: int [B, T], what the decoder reads: `decoder_start_token_id`, then
        the answer, padding on the right.

    Returns:
      [B, T, D], after the last norm.
    """
    c = self.config
    size = tokens.shape[1]
    bias = relative_bias.square(self.decoder_bias, size, False, c.max_distance)
    bias = jnp.where(jnp.tril(jnp.ones((size, size), bool)), bias, NEG_INF)
    x, _ = self.decoder(self._embed(tokens), encoded, bias, mask)
    return rms_norm(x, self.decoder_norm, c.norm_eps)

  def logits(self, hidden: jax.Array) -> jax.Array:
    """Projects the decoder's [..., D] on the vocabulary: float32 [..., V]."""
    if self.config.scaled:
      hidden = hidden * self.config.hidden_size**-0.5
    tied = self.config.tie_embeddings
    head = StoredKernel(self.embedding) if tied else self.lm_head
    return dense(hidden, head, jnp.float32)

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


def encode(
  config: EncoderDecoderConfig,
  params: Any,
  tokens: jax.Array,
  mask: jax.Array,
) -> jax.Array:
  """Hidden states [B, P, D] of prompts.

  Args:
    config: the model.
    params: its parameters.
    tokens: int [B, P], padded on any side.
    mask: bool [B, P], False on padding, where the result means nothing.
  """
  model = EncoderDecoder(config)
  encoded: Any = model.apply(params, tokens, mask, method=EncoderDecoder.encode)
  return encoded


def unstack_decoder(config: EncoderDecoderConfig, params: Any) -> list[Any]:
  """The variables of each decoder layer; once, outside the decode loop.

  These are its parameters, and its adapters under `lora` if it has some.
  """
  stacks = {
    name: tree['decoder'] for name, tree in params.items() if 'decoder' in tree
  }
  return [
    jax.tree.map(operator.itemgetter(i), stacks)
    for i in range(config.num_decoder_layers)
  ]


def start_cache(
  config: EncoderDecoderConfig,
  layers: list[Any],
  encoded: jax.Array,
  rows: int,
  slots: int,
) -> tuple[tuple[LayerCache, ...], tuple[LayerCache, ...]]:
  """Both caches before the first token, one `LayerCache` per decoder layer.

  Args:
    config: the model.
    layers: `unstack_decoder(config, params)`.
    encoded: [B, P, D], from `encode`.
    rows: B * G, where G rows share a prompt.
    slots: S, most tokens that the decoder will read.

  Returns:
    The empty cache of self-attention, B * G rows of at least S slots, and the
    filled one of cross-attention, B rows of at least P slots.
  """
  block = DecoderLayer(config)
  empty = jnp.zeros((rows, 0, config.num_heads, config.head_size), config.dtype)
  cross = []
  for layer in layers:
    keys_values: Any = block.apply(
      layer, encoded, method=DecoderLayer.cross_keys_values
    )
    cross.append(LayerCache.from_prefill(*keys_values, free=0))
  own = LayerCache.from_prefill(empty, empty, slots)
  return (own,) * len(layers), tuple(cross)


def decode_step(
  config: EncoderDecoderConfig,
  params: Any,
  layers: list[Any],
  tokens: jax.Array,
  cache: tuple[LayerCache, ...],
  cross: tuple[LayerCache, ...],
  slot: jax.Array,
  prompt_mask: jax.Array,
) -> tuple[jax.Array, tuple[LayerCache, ...]]:
  """Logits of the token after `tokens`, and the cache with `tokens` in it.

  Unrolled over layers, for the reason given in `causal_steps`.

  Args:
    config: the model.
    params: its parameters.
    layers: `unstack_decoder(config, params)`.
    tokens: int [B * G], the last token of each row; rows i * G to i * G + G - 1
      answer prompt i.
    cache, cross: from `start_cache`; `cross` never changes.
    slot: scalar int, the position of `tokens`: 0 for `decoder_start_token_id`.
    prompt_mask: bool [B, P].

  Returns:
    Logits [B * G, V] and the new cache.
  """
  tree, block = params['params'], DecoderLayer(config)
  slots = cache[0].num_slots
  bias = relative_bias.row(
    tree['decoder_bias'], slots, slot, config.max_distance
  )
  mask = jnp.broadcast_to(jnp.arange(slots) <= slot, (tokens.shape[0], slots))
  unused = cross[0].num_slots - prompt_mask.shape[1]
  prompt_mask = jnp.pad(prompt_mask, ((0, 0), (0, unused)))
  x = tree['embedding'][tokens][:, None].astype(config.dtype)
  new_cache = []
  for layer, own, prompt in zip(layers, cache, cross, strict=True):
    x, own = block.apply(
      layer, x, bias, own, prompt, slot, mask, prompt_mask,
      method=DecoderLayer.decode_step,
    )  # fmt: skip
    new_cache.append(own)
  hidden = rms_norm(x[:, 0], tree['decoder_norm'], config.norm_eps)
  model = EncoderDecoder(config)
  logits: Any = model.apply(params, hidden, method=EncoderDecoder.logits)
  return logits, tuple(new_cache)
