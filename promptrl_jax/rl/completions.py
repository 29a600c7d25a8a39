"""From rewards of sequences to rewards and advantages of their tokens.

Arrays are `[N, C]`: N sequences of C completion tokens. The mask may leave out
tokens anywhere, at the end or in between (text that an environment wrote, say);
what it leaves out is passed over as if it were not there.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from promptrl_jax.rl.advantages import gae
from promptrl_jax.rl.masked import keep, normalize


def to_tokens(values: jax.Array, mask: jax.Array) -> jax.Array:
  """Returns `[N, C]`: the value of each sequence at its valid tokens, else 0.

  Args:
    values: `[N]`, advantages of sequences, say.
    mask: `[N, C]` bool.
  """
  chex.assert_rank([values, mask], [1, 2])
  return keep(jnp.broadcast_to(values[:, None], mask.shape), mask)


def token_rewards(
  rewards: jax.Array,
  mask: jax.Array,
  token_kl: jax.Array | None = None,
  kl_coef: float | jax.Array = 0.0,
) -> jax.Array:
  """Pays the reward at the last token, and the divergence at every token.

    r_t = [t is the last token] R - kl_coef * kl_t

  See "Fine-Tuning Language Models from Human Preferences", Ziegler et al., 2019
  (https://arxiv.org/abs/1909.08593), eq. 2, where kl_t is the log-ratio (k1 of
  `kl.token_kl`). No gradient flows through rewards.

  Args:
    rewards: `[N]`, of whole sequences.
    mask: `[N, C]` bool; a sequence without a valid token gets nothing.
    token_kl: `[N, C]`, divergence from the reference; None leaves it out.
    kl_coef: its price, in reward per nat.

  Returns:
    `[N, C]` rewards, 0 where invalid.
  """
  chex.assert_rank([rewards, mask], [1, 2])
  chex.assert_equal_shape_prefix([rewards, mask], 1)
  valid = jnp.asarray(mask, bool)
  rewards = jnp.asarray(rewards, jnp.result_type(rewards, jnp.float32))
  place = jnp.arange(valid.shape[1])
  last = jnp.max(jnp.where(valid, place, -1), axis=1, keepdims=True)
  paid = jnp.where(place == last, rewards[:, None], 0)
  if token_kl is not None:
    chex.assert_equal_shape([token_kl, mask])
    paid = paid - kl_coef * keep(token_kl, valid)
  return jax.lax.stop_gradient(paid)


def completion_gae(
  rewards: jax.Array,
  values: jax.Array,
  mask: jax.Array,
  *,
  gamma: float = 1.0,
  lam: float = 0.95,
  bootstrap: jax.Array | None = None,
) -> jax.Array:
  """Returns generalised advantages of completion tokens: see `advantages.gae`.

  Args:
    rewards: `[N, C]`, see `token_rewards`.
    values: `[N, C]`, value of the text *before* each token.
    mask: `[N, C]` bool; the next value of a token is that of the next valid
      one.
    gamma: discount per token.
    lam: weight of longer horizons, 0 to 1.
    bootstrap: `[N]`, value of the text after the last token, for sequences that
      were cut off; 0 for those that ended. None means that all ended.

  Returns:
    `[N, C]` advantages, 0 where invalid; add `values` for the returns.
  """
  chex.assert_rank(mask, 2)
  chex.assert_equal_shape([rewards, values, mask])
  valid = jnp.asarray(mask, bool)
  rows, width = valid.shape
  if bootstrap is None:
    bootstrap = jnp.zeros(rows, jnp.result_type(values, jnp.float32))
  chex.assert_shape(bootstrap, (rows,))
  # Index of the next valid token; `width`, where the bootstrap lies, if none.
  index = jnp.where(valid, jnp.arange(width), width)
  following = jax.lax.cummin(index, axis=1, reverse=True)
  following = jnp.pad(following[:, 1:], ((0, 0), (0, 1)), constant_values=width)
  padded = jnp.concatenate([values, bootstrap[:, None]], axis=1)
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
  """Returns the discounted reward from each token to the end of its sequence.

    R_t = r_t + gamma R_{t+1}

  Args:
    rewards: `[N, C]`, see `token_rewards`.
    mask: `[N, C]` bool.
    gamma: discount per token.

  Returns:
    `[N, C]` returns, 0 where invalid.
  """
  zeros = jnp.zeros(jnp.shape(rewards), jnp.result_type(rewards, jnp.float32))
  return completion_gae(rewards, zeros, mask, gamma=gamma, lam=1.0)


def reinforce_pp_advantages(
  rewards: jax.Array,
  mask: jax.Array,
  token_kl: jax.Array | None = None,
  kl_coef: float | jax.Array = 0.0,
) -> jax.Array:
  """Returns advantages against the whole batch instead of a group.

    A_t = R - kl_coef * sum_{s >= t} kl_s, then (A - mean A) / std A

  with mean and deviation over all valid tokens of the batch. See "REINFORCE++",
  Hu et al., 2025 (https://arxiv.org/abs/2501.03262). Its variant with a
  group baseline is this function on the result of `group_advantages` with scale
  'none', as its rewards.

  Args:
    rewards: `[N]`, of whole sequences.
    mask: `[N, C]` bool.
    token_kl: `[N, C]`, divergence from the reference; None leaves it out.
    kl_coef: its price, in reward per nat.

  Returns:
    `[N, C]` advantages, 0 where invalid.
  """
  paid = token_rewards(rewards, mask, token_kl, kl_coef)
  return normalize(completion_returns(paid, mask), mask)
