"""Frozen settings of a causal transformer."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class RopeScaling:
  """How rotary frequencies are stretched to a longer context.

  Attributes:
    kind: `linear` (arXiv 2306.15595: all of them by `factor`) or `llama3` (the
      slow ones by `factor`, the fast ones not, in between a blend).
    factor: by how much.
    low_freq_factor, high_freq_factor: `llama3`: wave lengths longer than
      `original_positions / low_freq_factor` are slow, shorter ones than
      `original_positions / high_freq_factor` are fast.
    original_positions: `llama3`: context before it was stretched.
  """

  kind: str
  factor: float
  low_freq_factor: float = 1.0
  high_freq_factor: float = 4.0
  original_positions: int = 8192


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
  """Shape of a causal language model; the defaults are Llama's.

  Attributes:
    vocab_size: V.
    hidden_size: D, width of the residual stream.
    num_layers: L.
    num_heads: Q, query heads.
    num_kv_heads: K, key-value heads; divides Q (GQA, arXiv 2305.13245).
    head_size: H, even.
    mlp_size: F, width of the hidden layer of the MLP.
    max_positions: longest sequence that the model was made for.
    rope_theta: base of the rotary embedding (arXiv 2104.09864).
    rope_scaling: how it is stretched, if it is.
    norm_eps: epsilon of the norms.
    bos_token_id, pad_token_id: special tokens; None if there is none.
    eos_token_ids: tokens that end a text.
    family: `model_type` of Hugging Face; see `causal_families.py`.
    norm: `rms` (arXiv 1910.07467) or `layer`, with a bias.
    positions: `rope`, or `learned` embeddings that are added to the input.
    activation: `silu`, `gelu` or `gelu_tanh`.
    is_gated: SwiGLU (arXiv 2002.05202) instead of a plain MLP.
    qkv_bias, out_bias, mlp_bias: which products have one.
    qk_norm: RMSNorm of each query and key head before they are rotated.
    sliding_window: a token attends to so many, itself included; None: to all.
    tie_embeddings: whether the projection on the vocabulary is the embedding.
    dtype: of activations; norms, softmax and logits are float32 always.
    remat: whether layers are computed again in the backward pass.
    unroll: layers per turn of the loop over them; more run a little faster, as
      fewer activations are copied, and take longer to compile.
    kv_cache: `plain`, keys and values as they are, or `int8`.
    attention: `plain`; `cudnn`: flash attention; `auto`: `cudnn` for bfloat16
      on a GPU.
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
      ('kv_cache', ('plain', 'int8')),
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
  def output_scale(self) -> float:
    """What hidden states are multiplied by before they are projected."""
    return 1.0

  @property
  def num_params(self) -> int:
    """Number of parameters."""
    d, h, f = self.hidden_size, self.head_size, self.mlp_size
    qkv = h * (self.num_heads + 2 * self.num_kv_heads)
    hidden = (2 if self.is_gated else 1) * f
    norm = d * (2 if self.norm == 'layer' else 1)
    block = d * qkv + d * h * self.num_heads + d * hidden + f * d + 2 * norm
    block += self.qkv_bias * qkv + self.out_bias * d
    block += self.mlp_bias * (hidden + d) + self.qk_norm * 2 * h
    embeddings = self.vocab_size * d * (1 if self.tie_embeddings else 2)
    if self.positions == 'learned':
      embeddings += self.max_positions * d
    return embeddings + self.num_layers * block + norm

  @property
  def num_matmul_params(self) -> int:
    """Parameters that every token is multiplied with: all but look-ups."""
    looked_up = 0 if self.tie_embeddings else self.vocab_size * self.hidden_size
    if self.positions == 'learned':
      looked_up += self.max_positions * self.hidden_size
    return self.num_params - looked_up
