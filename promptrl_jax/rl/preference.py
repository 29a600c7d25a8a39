"""Preference learning from pairs of answers to the same prompt."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from promptrl_jax.rl.filters import informative_groups
from promptrl_jax.rl.masked import keep, masked_sum


def preference_loss(
  chosen_logps: jax.Array,
  rejected_logps: jax.Array,
  ref_chosen_logps: jax.Array,
  ref_rejected_logps: jax.Array,
  mask: jax.Array | None = None,
  *,
  beta: float = 0.1,
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """Sums the logistic loss of DPO over pairs.

    margin = beta ((chosen - ref_chosen) - (rejected - ref_rejected))
    loss   = -sum log sigmoid(margin)

  See "Direct Preference Optimization", Rafailov et al., 2023
  (https://arxiv.org/abs/2305.18290), eq. 7. With references of 0, beta 1 and
  scores in place of log-probabilities this is the Bradley-Terry likelihood, by
  which a reward model or a critic learns from pairs.

  Args:
    chosen_logps, rejected_logps: `[B]` log-probabilities of the better and the
      worse answer to each prompt, summed over tokens.
    ref_chosen_logps, ref_rejected_logps: `[B]`, the same under the reference.
    mask: `[B]` booleans or weights; None counts everything.
    beta: KL coefficient; a larger one keeps the policy closer to the reference.

  Returns:
    Scalar loss sum, and metric sums: `accuracy` counts pairs whose margin is
    positive, `margin` sums margins.
  """
  arrays = [chosen_logps, rejected_logps, ref_chosen_logps, ref_rejected_logps]
  chex.assert_rank(arrays, 1)
  chex.assert_equal_shape(arrays)
  chosen = chosen_logps - jax.lax.stop_gradient(ref_chosen_logps)
  rejected = rejected_logps - jax.lax.stop_gradient(ref_rejected_logps)
  margin = beta * keep(chosen - rejected, mask)
  metrics = {
    'accuracy': masked_sum((margin > 0).astype(margin.dtype), mask),
    'margin': masked_sum(margin, mask),
  }
  metrics = jax.tree.map(jax.lax.stop_gradient, metrics)
  return -masked_sum(jax.nn.log_sigmoid(margin), mask), metrics


def pair_advantages(
  log_ratios: jax.Array,
  rewards: jax.Array,
  groups: jax.Array,
  num_groups: int,
  valid: jax.Array | None = None,
  *,
  beta: float = 0.1,
) -> jax.Array:
  """Returns advantages `[N]` with which REINFORCE descends `preference_loss`.

    A_best = beta sigmoid(-margin) = -A_worst,  0 for the other sequences
    margin = beta (log_ratio_best - log_ratio_worst)

  A pair is the best and the worst sequence of a group. The gradient of
  -log sigmoid(margin) is -beta sigmoid(-margin) times the gradient of the
  difference of log-probabilities. It equals that of sum_i -A_i logp_i at the
  parameters that gave `log_ratios` (`[N]`, policy over reference, summed over
  tokens), and only there: take one step per batch.
  """
  best, worst, is_pair = best_and_worst(rewards, groups, num_groups, valid)
  margin = beta * (log_ratios[best] - log_ratios[worst])
  scale = beta * jax.nn.sigmoid(-margin) * is_pair
  zeros = jnp.zeros_like(log_ratios)
  return jax.lax.stop_gradient(zeros.at[best].add(scale).at[worst].add(-scale))


def best_and_worst(
  rewards: jax.Array,
  groups: jax.Array,
  num_groups: int,
  valid: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Pairs the best sequence of each group with its worst.

  Arguments are those of `groups.group_advantages`.

  Returns:
    `[B]` int row of the best sequence, `[B]` int row of the worst one (the
    first row of a tie), and `[B]` bool: whether the two differ in reward. Where
    they do not, both rows are 0.
  """
  rewards = jnp.asarray(rewards, jnp.result_type(rewards, jnp.float32))
  if valid is None:
    valid = jnp.ones(rewards.shape, bool)
  is_pair = informative_groups(rewards, groups, num_groups, valid)
  member = (groups == jnp.arange(num_groups)[:, None]) & valid
  best = jnp.argmax(jnp.where(member, rewards, -jnp.inf), axis=1)
  worst = jnp.argmin(jnp.where(member, rewards, jnp.inf), axis=1)
  return jnp.where(is_pair, best, 0), jnp.where(is_pair, worst, 0), is_pair
