"""Contrastive learning from pairs of texts that mean the same."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp


def info_nce(
  first: jax.Array,
  second: jax.Array,
  meanings: jax.Array,
  *,
  temperature: float,
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """Sums the contrastive loss over pairs, in both directions.

    s_ij = <first_i, second_j> / temperature
    loss = -1/2 sum_i log softmax_j(s_ij)_i + log softmax_j(s_ji)_i

  The other pairs of the batch are the negatives, but for those of the same
  meaning. See "Representation Learning with Contrastive Predictive Coding", van
  den Oord et al., 2018 (https://arxiv.org/abs/1807.03748), eq. 4, in the
  symmetric form of CLIP (https://arxiv.org/abs/2103.00020, figure 3).

  Args:
    first, second: `[B, E]` unit vectors of the two texts of each pair.
    meanings: `[B]` int, equal for pairs of the same meaning.
    temperature: above 0; a smaller one looks at the hardest negatives alone.

  Returns:
    Scalar loss sum, and metric sums: `accuracy` counts the first texts whose
    own second text is the nearest of the batch.
  """
  chex.assert_rank([first, second, meanings], [2, 2, 1])
  chex.assert_equal_shape([first, second])
  scores = first @ second.T / temperature
  own = jnp.eye(len(scores), dtype=bool)
  same = (meanings[:, None] == meanings) & ~own
  scores = jnp.where(same, -jnp.inf, scores)
  right = jnp.diagonal(scores)
  losses = sum(jax.nn.logsumexp(scores, axis=axis) - right for axis in (0, 1))
  nearest = right >= jnp.max(scores, axis=1)
  metrics = {'accuracy': jnp.sum(nearest.astype(scores.dtype))}
  return jnp.sum(losses) / 2, jax.tree.map(jax.lax.stop_gradient, metrics)
