"""Least operations and bytes of an iteration, and time ratios to peers."""

from __future__ import annotations

from experiments.bench.peers.iterations import PARTS, Work
from promptrl_jax.models.config import TransformerConfig


def floor_operations(config: TransformerConfig, asked: Work) -> float:
  """Returns the operations of an update with a prompt for each completion."""
  length = asked.prompt + asked.new
  pairs = asked.sequences * length * (length + 1) / 2
  tokens = asked.sequences * length
  return 6 * config.num_matmul_params * tokens + _attention(config, pairs)


def least_operations(config: TransformerConfig, asked: Work) -> float:
  """Returns the operations of an update that processes each prompt once.

  Only new tokens are projected on the vocabulary.
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
  """Returns the operations of prefill, with logits of last tokens only."""
  head = config.vocab_size * config.hidden_size
  products = (config.num_matmul_params - head) * rows * length + head * rows
  pairs = rows * length * (length + 1) / 2
  return 2 * products + _attention(config, pairs) / 3


def _attention(config: TransformerConfig, pairs: float) -> float:
  """Returns the operations of attention, forward and backward.

  Args:
    config: the model.
    pairs: number of pairs of tokens that attend.
  """
  width = config.num_heads * config.head_size
  return 12 * config.num_layers * width * pairs


def ratios(mine: list[dict], theirs: list[dict]) -> list[dict]:
  """Returns how many times as long a peer takes, for each part.

  Args:
    mine: lines of this project for one size and algorithm.
    theirs: lines of one peer for the same.

  Returns:
    A line for each dtype that both have, with the ratio of their fastest
    configurations, and one for the fastest over all dtypes.
  """
  names = [f'{part}_s' for part in ('iteration', *PARTS)]
  dtypes = [line['dtype'] for line in mine]
  shared = dict.fromkeys(line['dtype'] for line in theirs)
  lines = []
  for dtype in [*(d for d in shared if d in dtypes), 'best']:
    fastest = lambda rows, name, d=dtype: min(
      row[name] for row in rows if d in (row['dtype'], 'best')
    )
    first = theirs[0]
    line = {'size': first['size'], 'algorithm': first['algorithm']}
    line |= {'over': first['peer'], 'dtype': dtype}
    for name in names:
      ratio = fastest(theirs, name) / max(fastest(mine, name), 1e-9)
      line[name.removesuffix('_s')] = round(ratio, 2)
    lines.append(line)
  return lines
