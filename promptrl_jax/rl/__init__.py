"""Reinforcement learning as functions: arrays in, arrays out, no models.

Functions are called as `rl.gae(...)`. Functions that carry a state from one
call to the next are grouped by module, each with an `initial` state:
`rl.bandits`, `rl.kl_control` and `rl.rating_baseline`. The axis letters of
shapes are listed in `promptrl_jax.types`. Whatever is imported here is public.
"""
# ruff: noqa: F401

from promptrl_jax.rl import bandits, kl_control, rating_baseline
from promptrl_jax.rl.advantages import gae, sibling_advantages
from promptrl_jax.rl.aggregation import AGGREGATIONS, aggregation_weights
from promptrl_jax.rl.completions import (
  completion_gae,
  completion_returns,
  reinforce_pp_advantages,
  to_tokens,
  token_rewards,
)
from promptrl_jax.rl.contrastive import info_nce
from promptrl_jax.rl.filters import informative_groups
from promptrl_jax.rl.gpro import (
  candidate_advantages,
  candidate_policy_loss,
  critic_advantages,
  impute_rewards,
)
from promptrl_jax.rl.groups import group_advantages, leave_one_out
from promptrl_jax.rl.importance import truncated_importance_weights
from promptrl_jax.rl.kl import exact_kl, penalize, token_kl
from promptrl_jax.rl.laplace import laplace_posterior
from promptrl_jax.rl.losses import (
  TokenBatch,
  TokenTerm,
  bounded_exp,
  categorical_entropy,
  categorical_logps,
  clipped_objective,
  mask_logits,
  policy_loss,
  value_loss,
)
from promptrl_jax.rl.masked import keep, masked_mean, masked_sum, normalize
from promptrl_jax.rl.policy_losses import (
  POLICY_LOSSES,
  cispo,
  dapo,
  gspo,
  make_policy_loss_fn,
  mispo,
  ppo,
  register_policy_loss,
  reinforce,
  trajectory_scale,
)
from promptrl_jax.rl.preference import (
  best_and_worst,
  pair_advantages,
  preference_loss,
)
from promptrl_jax.rl.reference import copy_every, ema
