"""BERT encoders (arXiv 1810.04805), such as MiniLM.

  tokens, mask --Encoder--> hidden states --pool--> one vector per text

BERT has learned positions, token types, bidirectional attention and a LayerNorm
after each residual connection. One `nn.scan` stacks the layers, so every leaf
below `layers` has a leading axis L. `encoder_weights.py` reads Hugging Face
checkpoints.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from promptrl_jax.models.attention import attend
from promptrl_jax.models.kernels import dense
from promptrl_jax.models.transformer import LayerNorm

POOLINGS = ('mean', 'first', 'pooler')
_DTYPES = ('float32', 'bfloat16', 'float16')


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
  """Shape of a BERT encoder.

  Attributes:
    num_token_types: number of segment types; BERT has two, for the first and
      the second text of a pair.
    has_pooler: whether the model has the layer of the pooling `pooler`.
    dtype: type of the activations; norms, softmax and pooling are float32.
  """

  vocab_size: int
  hidden_size: int
  num_layers: int
  num_heads: int
  mlp_size: int
  max_positions: int = 512
  num_token_types: int = 2
  norm_eps: float = 1e-12
  pad_token_id: int = 0
  has_pooler: bool = True
  dtype: str = 'float32'

  def __post_init__(self):
    if self.hidden_size % self.num_heads:
      raise ValueError(
        f'hidden_size={self.hidden_size} must be a multiple of '
        f'num_heads={self.num_heads}'
      )
    if self.dtype not in _DTYPES:
      raise ValueError(f'dtype={self.dtype!r}: expected one of {_DTYPES}')

  @property
  def family(self) -> str:
    """`model_type` of Hugging Face."""
    return 'bert'

  @property
  def head_size(self) -> int:
    """H, width of a head."""
    return self.hidden_size // self.num_heads


class EncoderBlock(nn.Module):
  """One layer: attention and MLP, each with a residual connection and a norm.

  The projections of queries, keys and values are fused into one kernel
  [D, Q, 3, H]; splitting it over Q keeps a head on one device.
  """

  config: EncoderConfig

  def setup(self):
    c = self.config
    d, f = c.hidden_size, c.mlp_size
    normal, zeros = nn.initializers.normal(0.02), nn.initializers.zeros
    heads = (c.num_heads, 3, c.head_size)
    self.qkv = self.param('qkv', normal, (d, *heads))
    self.qkv_bias = self.param('qkv_bias', zeros, heads)
    self.out = self.param('out', normal, (d, d))
    self.out_bias = self.param('out_bias', zeros, (d,))
    self.attention_norm = LayerNorm(c.norm_eps)
    self.up = self.param('up', normal, (d, f))
    self.up_bias = self.param('up_bias', zeros, (f,))
    self.down = self.param('down', normal, (f, d))
    self.down_bias = self.param('down_bias', zeros, (d,))
    self.mlp_norm = LayerNorm(c.norm_eps)

  def __call__(self, x: jax.Array, mask: jax.Array) -> tuple[jax.Array, None]:
    """Runs x [B, S, D] with a bool mask [B, S]; `nn.scan` needs the None."""
    c = self.config
    qkv = _affine(x, self.qkv, self.qkv_bias)
    qkv = qkv.reshape(*x.shape[:-1], c.num_heads, 3, c.head_size)
    queries = qkv[..., :1, :] * c.head_size**-0.5
    # `attend` with one query head per key-value head, and one mask for all
    # queries of a text.
    attended = attend(
      queries, qkv[..., 1, :], qkv[..., 2, :], mask[:, None, :]
    ).reshape(x.shape)
    x = self.attention_norm(x + _affine(attended, self.out, self.out_bias))
    # BERT uses the exact GELU with erf (arXiv 1606.08415, section 2).
    hidden = nn.gelu(_affine(x, self.up, self.up_bias), approximate=False)
    return self.mlp_norm(x + _affine(hidden, self.down, self.down_bias)), None


class Encoder(nn.Module):
  """A BERT encoder, from tokens to hidden states to one vector per text."""

  config: EncoderConfig

  def setup(self):
    c = self.config
    d = c.hidden_size
    normal = nn.initializers.normal(0.02)

    def table(name, rows):
      return self.param(name, normal, (rows, d))

    self.embedding = table('embedding', c.vocab_size)
    self.position_embedding = table('position_embedding', c.max_positions)
    self.type_embedding = table('type_embedding', c.num_token_types)
    self.embedding_norm = LayerNorm(c.norm_eps)
    self.layers = nn.scan(
      EncoderBlock,
      variable_axes={'params': 0},
      split_rngs={'params': True},
      in_axes=(nn.broadcast,),  # pyright: ignore[reportArgumentType]
      length=c.num_layers,
    )(c)
    if c.has_pooler:
      self.pooler = self.param('pooler', normal, (d, d))
      self.pooler_bias = self.param('pooler_bias', nn.initializers.zeros, (d,))

  def __call__(
    self,
    tokens: jax.Array,
    mask: jax.Array,
    token_types: jax.Array | None = None,
  ) -> jax.Array:
    """Computes the hidden states of a batch.

    Args:
      tokens: int [B, S], padded on the right.
      token_types: int [B, S], 1 in the second text of a pair; None: all 0.

    Returns:
      Hidden states [B, S, D] after the last layer, in `config.dtype`; undefined
      on padding.

    Raises:
      ValueError: S is larger than `config.max_positions`.
    """
    c = self.config
    length = tokens.shape[1]
    if length > c.max_positions:
      raise ValueError(
        f'texts of {length} tokens; the model takes {c.max_positions}: '
        'truncate them'
      )
    if token_types is None:
      token_types = jnp.zeros_like(tokens)
    x = self.embedding[tokens] + self.type_embedding[token_types]
    x = self.embedding_norm(x + self.position_embedding[:length])
    x, _ = self.layers(x.astype(c.dtype), mask)
    return x

  def pool(
    self, hidden: jax.Array, mask: jax.Array, pooling: str = 'mean'
  ) -> jax.Array:
    """Pools hidden states to one vector per text.

    Args:
      pooling: `mean` averages the hidden states of a text, `first` takes the
        first one, and `pooler` computes tanh(W first + b) as in BERT's
        pretraining.

    Raises:
      ValueError: the pooling is unknown, or the model has no pooler.
    """
    if pooling == 'mean':
      return mean_pool(hidden, mask)
    if pooling not in POOLINGS:
      raise ValueError(f'pooling={pooling!r}: expected one of {POOLINGS}')
    first = hidden[:, 0].astype(jnp.float32)
    if pooling == 'first':
      return first
    if not self.config.has_pooler:
      raise ValueError(
        "pooling='pooler', but this model has no pooler: use 'mean' or 'first'"
      )
    return jnp.tanh(_affine(first, self.pooler, self.pooler_bias))

  def embed(
    self,
    tokens: jax.Array,
    mask: jax.Array,
    token_types: jax.Array | None = None,
    pooling: str = 'mean',
  ) -> jax.Array:
    """Computes pooled hidden states, float32 [B, D]; see `pool`."""
    return self.pool(self(tokens, mask, token_types), mask, pooling)


def shapes(config: EncoderConfig) -> Any:
  """Returns the parameter tree with `jax.ShapeDtypeStruct` leaves."""
  tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
  mask = jax.ShapeDtypeStruct((1, 1), jnp.bool_)
  key = jax.eval_shape(jax.random.key, 0)  # A real one would be compiled.
  return jax.eval_shape(Encoder(config).init, key, tokens, mask)


def mean_pool(hidden: jax.Array, mask: jax.Array) -> jax.Array:
  """Averages hidden states [B, S, D] over a mask [B, S]; 0 without tokens."""
  # `where` instead of a product, because 0 * NaN is NaN.
  kept = jnp.where(mask[..., None], hidden.astype(jnp.float32), 0.0)
  count = jnp.sum(mask, axis=1, keepdims=True)
  return jnp.sum(kept, axis=1) / jnp.maximum(count, 1)


def l2_normalize(x: jax.Array, eps: float = 1e-12) -> jax.Array:
  """Divides `x` [..., D] by its L2 norm, or by `eps` if that is larger."""
  square = jnp.sum(jnp.square(x), axis=-1, keepdims=True)
  # The bound is inside of the root, whose gradient at 0 is infinite.
  return x * jax.lax.rsqrt(jnp.maximum(square, eps**2))


def _affine(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
  """Computes x W + b in the dtype of `x`; W [in, *out], b [*out]."""
  return dense(x, kernel) + bias.reshape(-1).astype(x.dtype)
