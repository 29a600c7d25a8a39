"""What another actor would have earned on logged queries, before it goes live.

  V = mean_b sum_g new_g q_g + new_a / p_a (r - q_a)

with a the candidate that was shown with probability p_a and rewarded with r,
and q what a critic expects: "Doubly Robust Policy Evaluation and Learning",
Dudik et al., 2011 (https://arxiv.org/abs/1103.4601). It is unbiased if the
probabilities are right, whatever the critic says, and precise if the critic is
good. The scores of a replay are from before the feedback, as they have to be.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.rl import gpro
from promptrl_jax.training.gpro.replay import RATING, THUMBS, Replay


class Estimate(NamedTuple):
  """An estimate with the ends of its 95 % interval.

  Attributes:
    value: mean reward in [0, 1], up to noise.
    low, high: percentile bootstrap over queries.
    logged: mean reward of what was shown.
    gain, gain_low, gain_high: value minus logged, paired by query.
    effective: effective number of queries, (sum w)^2 / sum w^2 with w the
      ratio of probabilities of the shown candidate; a small one says that the
      new actor does what was hardly ever tried.
    queries: number of queries with a rating or a thumb.
  """

  value: float
  low: float
  high: float
  logged: float
  gain: float
  gain_low: float
  gain_high: float
  effective: float
  queries: int


def doubly_robust(
  rewards: jax.Array,
  shown: jax.Array,
  scores: jax.Array,
  logps: jax.Array,
  new_logps: jax.Array,
  mask: jax.Array | None = None,
) -> jax.Array:
  """Returns the estimate of each query, `[B]`.

  Args:
    rewards: `[B]`, of the shown candidates.
    shown: `[B]` int.
    scores: `[B, G]` of a critic that has not seen these rewards.
    logps: `[B, G]` of the policy that chose.
    new_logps: `[B, G]` of the policy to be evaluated.
    mask: `[B, G]` bool, valid candidates; None counts all.
  """
  imputed = gpro.impute_rewards(
    rewards, shown, scores, logps, max_weight=float('inf')
  )
  if mask is None:
    mask = jnp.ones(scores.shape, bool)
  return jnp.sum(jnp.where(mask, jnp.exp(new_logps) * imputed, 0), axis=1)


def evaluate(
  replay: Replay,
  new_logps: np.ndarray,
  *,
  seed: int = 0,
  resamples: int = 2000,
) -> Estimate:
  """Estimates a policy on the rated queries of a replay.

  Pairs are left out: a preference is no reward.

  Args:
    new_logps: `[W, G]` of the policy, on the features of the replay.
    seed: of the bootstrap.
    resamples: of the bootstrap.

  Raises:
    ValueError: fewer than two queries have a rating or a thumb.
  """
  rows = np.isin(replay.kind, (RATING, THUMBS))
  count = int(rows.sum())
  if count < 2:
    raise ValueError(
      f'{count} queries with a rating or a thumb: expected at least 2'
    )
  log, new = Replay(*map(np.asarray, replay)), np.asarray(new_logps)
  values = np.asarray(
    doubly_robust(
      jnp.asarray(log.reward),
      jnp.asarray(log.shown),
      jnp.asarray(log.scores),
      jnp.asarray(log.logps),
      jnp.asarray(new),
      jnp.asarray(log.mask),
    ),
    np.float64,
  )[rows]  # All are computed, so that there is one shape.
  rewards, shown = log.reward[rows], log.shown[rows]
  gains = values - rewards
  places = np.flatnonzero(rows), shown
  ratios = np.exp(new[places] - log.logps[places], dtype=np.float64)
  rng = np.random.default_rng(seed)
  weights = rng.multinomial(count, np.full(count, 1 / count), resamples) / count
  ends = lambda x: np.quantile(weights @ x, (0.025, 0.975)).tolist()
  low, high = ends(values)
  gain_low, gain_high = ends(gains)
  return Estimate(
    value=float(values.mean()),
    low=low,
    high=high,
    logged=float(rewards.mean()),
    gain=float(gains.mean()),
    gain_low=gain_low,
    gain_high=gain_high,
    effective=float(ratios.sum() ** 2 / max(np.square(ratios).sum(), 1e-12)),
    queries=count,
  )
