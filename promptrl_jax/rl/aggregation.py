"""Averaging over the tokens of a batch: token weights and one denominator.

A loss is `sum(weights * token_loss) / denominator`. The weights of a sequence
depend on that sequence alone, so the sums and the denominators of micro-batches
add up to those of the batch.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

AGGREGATIONS = ('token_mean', 'sequence_mean', 'constant')


def aggregation_weights(
  mask: jax.Array, kind: str, constant_length: int | None = None
) -> tuple[jax.Array, jax.Array]:
  """Returns the weight of each token and the denominator of the loss.

    token_mean     sum_i sum_t l_it / sum_i |o_i|
    sequence_mean  1/N sum_i 1/|o_i| sum_t l_it
    constant       1/N sum_i 1/c sum_t l_it

  |o_i| is the number of valid tokens of sequence i, N the number of sequences
  that have any, c the constant length, e.g. the largest one. The first is that
  of DAPO (https://arxiv.org/abs/2503.14476, eq. 12), the second that of GRPO
  (https://arxiv.org/abs/2402.03300, eq. 3), the third that of Dr. GRPO
  (https://arxiv.org/abs/2503.20783), where the weight of a token does not
  depend on the lengths of the sequences.

  Returns:
    `[N, C]` float32 weights, 0 where the mask is False, and the scalar
    denominator, 0 for a batch without a valid token.
  """
  if kind not in AGGREGATIONS:
    raise ValueError(
      f'aggregation {kind!r}: expected one of {", ".join(AGGREGATIONS)}'
    )
  if (kind == 'constant') != (constant_length is not None):
    raise ValueError(
      f'aggregation {kind!r} with constant_length={constant_length}: give a '
      "length to 'constant', and to no other"
    )
  if constant_length is not None and constant_length < 1:
    raise ValueError(f'constant_length={constant_length}: expected at least 1')
  chex.assert_rank(mask, 2)
  weights = jnp.asarray(mask, bool).astype(jnp.float32)
  lengths = jnp.sum(weights, axis=1, keepdims=True)
  sequences = jnp.sum(lengths > 0).astype(jnp.float32)
  if kind == 'token_mean':
    return weights, jnp.sum(weights)
  if kind == 'sequence_mean':
    return weights / jnp.maximum(lengths, 1), sequences
  return weights, sequences * jnp.float32(constant_length)
