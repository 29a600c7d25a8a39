"""What must be computed and read, and how many times as long a peer takes."""

from __future__ import annotations

import jax.numpy as jnp

from experiments.bench.peers.iterations import PARTS, Work
from promptrl_jax.models.config import TransformerConfig


def floor_operations(config: TransformerConfig, asked: Work) -> float:
  """Operations of an update in which each completion has its own prompt."""
  length = asked.prompt + asked.new
  pairs = asked.sequences * length * (length + 1) / 2
  tokens = asked.sequences * length
  return 6 * config.num_matmul_params * tokens + _attention(config, pairs)


def least_operations(config: TransformerConfig, asked: Work) -> float:
  """Operations of an update that reads prompts once.

  The projection on the vocabulary is for new tokens alone.
  """
  prompt, new = asked.prompt, asked.new
  head = config.vocab_size * config.hidden_size
  drawn = asked.sequences * new
  tokens = asked.prompts * prompt + drawn
  pairs = asked.prompts * prompt * (prompt + 1) / 2
  pairs += asked.sequences * (new * prompt + new * (new + 1) / 2)
  products = (config.num_matmul_params - head) * tokens + head * drawn
  return 6 * products + _attention(config, pairs)


def forward_operations(
  config: TransformerConfig, rows: int, length: int
) -> float:
  """Of reading `rows` prompts, with logits of their last tokens."""
  head = config.vocab_size * config.hidden_size
  products = (config.num_matmul_params - head) * rows * length + head * rows
  pairs = rows * length * (length + 1) / 2
  return 2 * products + _attention(config, pairs) / 3


def step_bytes(
  config: TransformerConfig, rows: int, length: float, dtype: str
) -> float:
  """Bytes of weights, and of keys and values of `length` slots, of one step.

  Weights have `dtype`, the cache that of the activations.
  """
  weights = config.num_matmul_params * jnp.dtype(dtype).itemsize
  slot = 2 * config.num_layers * config.num_kv_heads * config.head_size
  return weights + rows * length * slot * jnp.dtype(config.dtype).itemsize


def _attention(config: TransformerConfig, pairs: float) -> float:
  """Scores and mixed values of `pairs` of tokens, forward and backward."""
  width = config.num_heads * config.head_size
  return 12 * config.num_layers * width * pairs


def ratios(mine: list[dict], theirs: list[dict]) -> list[dict]:
  """How many times as long a peer takes, by part, for its best way and ours.

  Args:
    mine: lines of ours for one size and algorithm.
    theirs: lines of one peer for the same.

  Returns:
    A line for each dtype that both have, and one for the best of all.
  """
  names = [f'{part}_s' for part in ('iteration', *PARTS)]
  dtypes = [line['dtype'] for line in mine]
  shared = dict.fromkeys(line['dtype'] for line in theirs)
  found = []
  for dtype in [*(d for d in shared if d in dtypes), 'best']:
    of = lambda lines, name, d=dtype: min(
      line[name] for line in lines if d in (line['dtype'], 'best')
    )
    first = theirs[0]
    line = {'size': first['size'], 'algorithm': first['algorithm']}
    line |= {'over': first['peer'], 'dtype': dtype}
    for name in names:
      ratio = of(theirs, name) / max(of(mine, name), 1e-9)
      line[name.removesuffix('_s')] = round(ratio, 2)
    found.append(line)
  return found
