"""Configuration of causal transformers."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class RopeScaling:
  """Scaling of rotary frequencies to a longer context.

  Attributes:
    kind: `linear` divides all frequencies by `factor` (arXiv 2306.15595);
      `llama3` divides low frequencies by `factor`, keeps high frequencies, and
      interpolates between the two.
    low_freq_factor, high_freq_factor: limits for `llama3`. Wavelengths above
      `original_positions / low_freq_factor` have low frequency, those below
      `original_positions / high_freq_factor` have high frequency.
  """

  kind: str
  factor: float
  low_freq_factor: float = 1.0
  high_freq_factor: float = 4.0
  original_positions: int = 8192


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
  """Shape of a causal language model; the defaults are those of Llama.

  In the shapes of arrays, V is the size of the vocabulary, D that of the
  residual stream, L the number of layers, Q that of heads, and F the width of
  the hidden layer of the MLP.

  Attributes:
    num_kv_heads: K, key-value heads; divides Q (GQA, arXiv 2305.13245).
    head_size: H, even.
    rope_theta: base of the rotary embedding (arXiv 2104.09864).
    family: `model_type` of Hugging Face; see `causal_families.py`.
    norm: `rms` for RMSNorm (arXiv 1910.07467) or `layer` for LayerNorm with a
      bias.
    positions: `rope` for rotary embeddings, or `learned` for embeddings that
      are added to the input.
    qk_norm: whether each query and key head passes an RMSNorm before RoPE.
    sliding_window: number of tokens that a token attends to, including itself;
      None: no limit.
    global_every: every how many layers one has no window and attends to all
      tokens, as the last of each group; None: all layers are alike.
    local_rope_theta: base of the rotary embedding of layers with a window,
      which scale no frequency; None: that of all layers.
    post_norms: whether the outputs of attention and MLP pass a norm as well.
    norm_offset: added to the scale of an RMSNorm.
    embedding_scale: factor on the embeddings of the input.
    query_scale: factor on queries; None: 1 / sqrt(H).
    dtype: type of the activations; norms, softmax and logits are float32.
    remat: whether the backward pass recomputes the activations of each layer.
    unroll: layers per iteration of the scan over layers. More layers run a
      little faster, since fewer activations are copied, but compile longer.
    kv_cache: `plain` for keys and values of the type `dtype`, `bfloat16`, or
      `int8` with a scale for each key and value.
    attention: `plain`, `cudnn` (flash attention), or `auto`, which is `cudnn`
      for 16-bit activations on a GPU.
  """

  vocab_size: int
  hidden_size: int
  num_layers: int
  num_heads: int
  num_kv_heads: int
  head_size: int
  mlp_size: int
  max_positions: int
  rope_theta: float = 10_000.0
  rope_scaling: RopeScaling | None = None
  norm_eps: float = 1e-5
  bos_token_id: int | None = 1
  eos_token_ids: tuple[int, ...] = (2,)
  pad_token_id: int = 0
  family: str = 'llama'
  norm: str = 'rms'
  positions: str = 'rope'
  activation: str = 'silu'
  is_gated: bool = True
  qkv_bias: bool = False
  out_bias: bool = False
  mlp_bias: bool = False
  qk_norm: bool = False
  sliding_window: int | None = None
  global_every: int | None = None
  local_rope_theta: float | None = None
  post_norms: bool = False
  norm_offset: float = 0.0
  embedding_scale: float = 1.0
  query_scale: float | None = None
  tie_embeddings: bool = True
  dtype: str = 'float32'
  remat: bool = False
  unroll: int = 1
  kv_cache: str = 'plain'
  attention: str = 'auto'

  def __post_init__(self):
    if self.num_heads % self.num_kv_heads:
      raise ValueError(
        f'num_heads={self.num_heads} must be a multiple of '
        f'num_kv_heads={self.num_kv_heads}'
      )
    if self.positions == 'rope' and self.head_size % 2:
      raise ValueError(f'head_size={self.head_size} must be even for RoPE')
    for field, known in (
      ('norm', ('rms', 'layer')),
      ('positions', ('rope', 'learned')),
      ('activation', ('silu', 'gelu', 'gelu_tanh')),
      ('dtype', ('float32', 'bfloat16', 'float16')),
      ('kv_cache', ('plain', 'bfloat16', 'int8')),
      ('attention', ('auto', 'plain', 'cudnn')),
    ):
      if getattr(self, field) not in known:
        raise ValueError(
          f'{field}={getattr(self, field)!r}: expected one of {known}'
        )

  @property
  def group_size(self) -> int:
    """Query heads per key-value head."""
    return self.num_heads // self.num_kv_heads

  @property
  def attention_scale(self) -> float:
    """The factor on queries."""
    return self.query_scale or self.head_size**-0.5

  def is_global(self, layer: int) -> bool | None:
    """Whether a layer has no window; None: all layers are alike."""
    if self.global_every is None:
      return None
    return (layer + 1) % self.global_every == 0

  @property
  def output_scale(self) -> float:
    """Factor on hidden states before the output projection."""
    return 1.0

  @property
  def num_params(self) -> int:
    """Number of parameters."""
    d, h, f = self.hidden_size, self.head_size, self.mlp_size
    qkv = h * (self.num_heads + 2 * self.num_kv_heads)
    hidden = (2 if self.is_gated else 1) * f
    norm = d * (2 if self.norm == 'layer' else 1)
    norms = (4 if self.post_norms else 2) * norm
    block = d * qkv + d * h * self.num_heads + d * hidden + f * d + norms
    block += self.qkv_bias * qkv + self.out_bias * d
    block += self.mlp_bias * (hidden + d) + self.qk_norm * 2 * h
    embeddings = self.vocab_size * d * (1 if self.tie_embeddings else 2)
    if self.positions == 'learned':
      embeddings += self.max_positions * d
    return embeddings + self.num_layers * block + norm

  @property
  def num_matmul_params(self) -> int:
    """Number of parameters in matrix products, without lookup tables."""
    lookups = 0 if self.tie_embeddings else self.vocab_size * self.hidden_size
    if self.positions == 'learned':
      lookups += self.max_positions * self.hidden_size
    return self.num_params - lookups
