"""Settings of the controller: its network, its episodes and its PPO update."""

from __future__ import annotations

import dataclasses

import optax

from promptrl_jax.settings import check_choices
from promptrl_jax.training import optim


@dataclasses.dataclass(frozen=True)
class ControllerConfig:
  """Settings of the training.

  Attributes:
    iterations: updates.
    episodes: episodes per iteration.
    budgets: the budget of an episode is drawn from these, so that one policy
      learns to spend many calls and few.
    bootstrap_truncated: whether the value of the last observation stands in for
      what a cut-off episode would still have earned. False where the budget is
      part of the observation: then running out of it is an end like any other.
    worlds: number of seeds that episodes are drawn with, so that a cache
      answers what was asked before; 0 draws a new one for each episode.
    solvable_by: train on problems that one of so many episodes of random
      operators solves, at the largest of `budgets`; 0 trains on all.
    continuations: episodes in a row that play the same problem with the same
      seed and budget. With several, a decision is judged against the others
      that were made in its state, see `rl.advantages.sibling_advantages`.
    shuffle_rewards: whether episodes are given each other's returns. A control:
      what is learned from them is not learned from the outcome.
    token_prices: least and highest price of 1,000 tokens, in rewards: that of
      an episode is drawn between them, each power as likely, and is 0 for one
      in four. The policy sees it (`editing.sees_price`), so that one network
      has learned every trade of solved problems for tokens. Empty: all are 0.
    clone: whether training starts from the best lists, see `cloning.py`.
    trunk: widths of the layers that actor and critic share.
    head: widths of the layers of each head.
  """

  iterations: int = 30
  episodes: int = 256
  budgets: tuple[int, ...] = (1, 2, 4, 8, 8)
  bootstrap_truncated: bool = False
  worlds: int = 0
  solvable_by: int = 0
  continuations: int = 1
  shuffle_rewards: bool = False
  token_prices: tuple[float, ...] = ()
  clone: bool = False
  trunk: tuple[int, ...] = (128, 128)
  head: tuple[int, ...] = (64,)

  def __post_init__(self):
    if self.continuations < 1 or self.episodes % self.continuations:
      raise ValueError(
        f'continuations={self.continuations}: expected a divisor of '
        f'episodes={self.episodes}'
      )
    if self.solvable_by < 0:
      raise ValueError(
        f'solvable_by={self.solvable_by}: expected 0 for all, or more'
      )
    prices = self.token_prices
    if prices and not (len(prices) == 2 and 0 < prices[0] <= prices[1]):
      raise ValueError(
        f'token_prices={prices}: expected the least and the highest price, '
        'above 0, or nothing'
      )


@dataclasses.dataclass(frozen=True)
class CloneConfig:
  """Settings of behaviour cloning; see `cloning.py`.

  Attributes:
    episodes: of each budget, on training problems.
    steps: full-batch steps of Adam.
    lr: its learning rate.
    entropy_coef: weight of the entropy, which keeps the policy exploring.
  """

  episodes: int = 256
  steps: int = 300
  lr: float = 3e-3
  entropy_coef: float = 0.1


@dataclasses.dataclass(frozen=True)
class BanditConfig:
  """Settings of the contextual bandits, rivals of the controller.

  They play until they have made as many model calls as the controller.

  Attributes:
    exploration: width of the confidence bound of LinUCB, in rewards.
    scale: of the standard deviation of the posterior that Thompson sampling
      draws from, in rewards.
  """

  exploration: float = 0.3
  scale: float = 0.3


@dataclasses.dataclass(frozen=True)
class PPOConfig:
  """Settings of the update.

  Attributes:
    lr: Adam's learning rate.
    anneal: whether the rate falls linearly to 0 at the last update.
    adam_epsilon: Adam's epsilon.
    max_grad_norm: bound on the global gradient norm; None leaves it free.
    gamma: discount; 1 where episodes are short and calls have a price.
    gae_lambda: 1 gives Monte-Carlo returns minus values.
    clip: how far a probability ratio is followed away from 1.
    value_clip: how far a value may move in one update; None leaves it free.
    value_coef: weight of the squared value error.
    entropy_coef: weight of the entropy bonus.
    normalize: 'rollout' normalises advantages over the whole rollout, 'none'
      leaves them as they are.
    normalize_ddof: 0 for the population deviation, 1 for the sample's.
    epochs: passes over the rollout.
    minibatches: optimizer steps per pass.
    micro_batches: pieces of a minibatch whose gradients are added up; changes
      memory, not the result.
  """

  lr: float = 2e-3
  anneal: bool = True
  adam_epsilon: float = 1e-5
  max_grad_norm: float | None = 0.5
  gamma: float = 1.0
  gae_lambda: float = 0.95
  clip: float = 0.2
  value_clip: float | None = None
  value_coef: float = 0.5
  entropy_coef: float = 0.01
  normalize: str = 'rollout'
  normalize_ddof: int = 0
  epochs: int = 6
  minibatches: int = 4
  micro_batches: int = 1

  def __post_init__(self):
    check_choices(self, normalize=('rollout', 'none'))
    for name in ('epochs', 'minibatches', 'micro_batches'):
      if getattr(self, name) < 1:
        raise ValueError(
          f'{name} must be at least 1, got {getattr(self, name)}'
        )
    for name in ('gamma', 'gae_lambda'):
      if not 0 <= getattr(self, name) <= 1:
        raise ValueError(
          f'{name} must lie in [0, 1], got {getattr(self, name)}'
        )

  def make_optimizer(self, updates: int) -> optax.GradientTransformation:
    """Returns Adam after a clip of the gradient norm, for so many updates."""
    config = optim.OptimizerConfig(
      lr=self.lr,
      decay='linear' if self.anneal else 'constant',
      epsilon=self.adam_epsilon,
      max_grad_norm=self.max_grad_norm,
      clip='global',
    )
    return optim.make_optimizer(
      config, updates * self.epochs * self.minibatches
    )


# PROMIS: full-batch epochs on Monte-Carlo returns.
PROMIS = PPOConfig(
  lr=3e-4,
  anneal=False,
  adam_epsilon=1e-8,
  gamma=0.99,
  gae_lambda=1.0,
  normalize_ddof=1,
  epochs=4,
  minibatches=1,
)
