"""Rewards, returns and advantages of the tokens of completions.

Arrays are `[N, C]`: N completions of C tokens. The mask may exclude tokens
anywhere, at the end or in between (such as text written by an environment);
recursions skip excluded tokens.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from promptrl_jax.rl.advantages import gae
from promptrl_jax.rl.masked import keep, normalize


def to_tokens(values: jax.Array, mask: jax.Array) -> jax.Array:
  """Returns `[N, C]`: the value `[N]` of each sequence at its valid tokens."""
  chex.assert_rank([values, mask], [1, 2])
  return keep(jnp.broadcast_to(values[:, None], mask.shape), mask)


def token_rewards(
  rewards: jax.Array,
  mask: jax.Array,
  token_kl: jax.Array | None = None,
  kl_coef: float | jax.Array = 0.0,
) -> jax.Array:
  """Returns token rewards: the reward at the last token, less a KL penalty.

    r_t = [t is the last token] R - kl_coef * kl_t

  See "Fine-Tuning Language Models from Human Preferences", Ziegler et al., 2019
  (https://arxiv.org/abs/1909.08593), eq. 2, where kl_t is the log-ratio (k1 of
  `kl.token_kl`); a `token_kl` of None is no penalty. No gradient flows through
  rewards. They are `[N, C]`, 0 where invalid: a sequence without a valid token
  has no reward.
  """
  chex.assert_rank([rewards, mask], [1, 2])
  chex.assert_equal_shape_prefix([rewards, mask], 1)
  valid = jnp.asarray(mask, bool)
  rewards = jnp.asarray(rewards, jnp.result_type(rewards, jnp.float32))
  index = jnp.arange(valid.shape[1])
  last = jnp.max(jnp.where(valid, index, -1), axis=1, keepdims=True)
  rewards = jnp.where(index == last, rewards[:, None], 0)
  if token_kl is not None:
    chex.assert_equal_shape([token_kl, mask])
    rewards = rewards - kl_coef * keep(token_kl, valid)
  return jax.lax.stop_gradient(rewards)


def completion_gae(
  rewards: jax.Array,
  values: jax.Array,
  mask: jax.Array,
  *,
  gamma: float = 1.0,
  lam: float = 0.95,
) -> jax.Array:
  """Returns generalised advantage estimates of tokens: see `advantages.gae`.

  Every sequence ended with its last token: no value follows it.

  Args:
    rewards: `[N, C]`, see `token_rewards`.
    values: `[N, C]`, value of the text *before* each token.
    mask: `[N, C]` bool; the next value of a token is that of the next valid
      token.
    gamma: discount per token.
    lam: weight of longer horizons, 0 to 1.

  Returns:
    `[N, C]` advantages, 0 where invalid; add `values` for the returns.
  """
  chex.assert_rank(mask, 2)
  chex.assert_equal_shape([rewards, values, mask])
  valid = jnp.asarray(mask, bool)
  rows, width = valid.shape
  end = jnp.zeros((rows, 1), jnp.result_type(values, jnp.float32))
  # Index of the next valid token, or `width`, the index of the end.
  index = jnp.where(valid, jnp.arange(width), width)
  following = jax.lax.cummin(index, axis=1, reverse=True)
  following = jnp.pad(following[:, 1:], ((0, 0), (0, 1)), constant_values=width)
  padded = jnp.concatenate([values, end], axis=1)
  next_values = jnp.take_along_axis(padded, following, axis=1)
  cut = following == width
  advantages = gae(
    rewards.T,
    values.T,
    next_values.T,
    jnp.zeros_like(cut.T),
    cut.T,
    gamma=gamma,
    lam=lam,
    mask=valid.T,
  )
  return advantages.T


def completion_returns(
  rewards: jax.Array, mask: jax.Array, gamma: float = 1.0
) -> jax.Array:
  """Returns the discounted reward `[N, C]` from each token to the end.

  R_t = r_t + gamma R_{t+1}, 0 where invalid
  """
  zeros = jnp.zeros(jnp.shape(rewards), jnp.result_type(rewards, jnp.float32))
  return completion_gae(rewards, zeros, mask, gamma=gamma, lam=1.0)


def reinforce_pp_advantages(
  rewards: jax.Array,
  mask: jax.Array,
  token_kl: jax.Array | None = None,
  kl_coef: float | jax.Array = 0.0,
) -> jax.Array:
  """Returns advantages normalised over the batch instead of a group.

    A_t = R - kl_coef * sum_{s >= t} kl_s, then (A - mean A) / std A

  with mean and deviation over all valid tokens of the batch. See "REINFORCE++",
  Hu et al., 2025 (https://arxiv.org/abs/2501.03262). For its variant
  with a group baseline, pass the result of `groups.group_advantages` with scale
  'none' as rewards. Arguments are those of `token_rewards`.
  """
  rewards = token_rewards(rewards, mask, token_kl, kl_coef)
  return normalize(completion_returns(rewards, mask), mask)
