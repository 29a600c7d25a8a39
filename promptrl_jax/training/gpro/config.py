"""Settings of GPRO: actor and critic over candidates, with few ratings."""

from __future__ import annotations

import dataclasses

from promptrl_jax.settings import check_choices, derived

ADVANTAGES = ('candidates', 'shown')
ANCHORS = ('ema', 'frozen')


@dataclasses.dataclass(frozen=True)
class GPROConfig:
  """Settings of networks, replay and update.

  Attributes:
    features: features D of a candidate: of query, system prompt and response;
      given by whoever computes them.
    candidates: candidates G of a query, at most.
    hidden: widths of the hidden layers of each network; none leaves a linear
      map, which learns from fewest ratings if features have products of query
      and answer (`models.candidates.cross_features`). Those of the critic keep
      their first weights.
    members: actors, each with its own critic, a draw from what the feedback
      leaves possible. The policy is the mean of theirs: where few ratings tell
      them apart, they explore. A single one has the most probable critic.
    every: queries per update.
    capacity: rows of the replay.
    half_life: ratings after which a row weighs half, so that an old taste is
      forgotten.
    drift: by how many standard deviations feedback must have fallen below what
      the critics expected for the taste to have changed; then actors
      start anew. See `drift.py`; infinity never forgets like that.
    old_taste: weight of what was rated before the taste changed.
    actor_steps: optimizer steps of the actors per update.
    minibatch: rows of a step, drawn by their weight.
    actor_lr: Adam's learning rate.
    advantage: `candidates` standardises the rewards of all candidates of a
      query, those not shown imputed by the critic; `shown` takes the reward of
      the shown candidate minus the score expected under the actor.
    max_weight: bound of importance weights.
    clip: how far a probability ratio is followed away from 1 in one update.
    kl_coef: weight of KL(actor || anchor).
    anchor: `ema` follows the actor slowly, `frozen` is the first actor, which
      is uniform.
    anchor_decay: weight of the old anchor in each update.
    entropy_coef: weight of the entropy.
    exploration: how far the critic from which an actor learns may be from the
      mean of all: 1 is posterior sampling, 0 gives all the same.
    uniform: probability with which a candidate is drawn uniformly, so that
      every one can be shown and off-policy estimates exist.
    rating_noise: standard deviation of a rating in [0, 1] around what a person
      would say on average: what a rating is worth beside a thumb or a pair.
    prior_scale: standard deviation of the critic's scores before any data.
    temperatures: sampling temperatures to choose from; none leaves the choice
      to the backend's default.
    context: features Q of a query, on which the temperature depends; given by
      whoever computes them.
  """

  features: int = derived(1)
  candidates: int = 5
  hidden: tuple[int, ...] = ()
  members: int = 8
  every: int = 5
  capacity: int = 256
  half_life: float = 200.0
  drift: float = 4.0
  old_taste: float = 0.02
  actor_steps: int = 20
  minibatch: int = 64
  actor_lr: float = 0.1
  advantage: str = 'candidates'
  max_weight: float = 1.0
  clip: float = 1.0
  kl_coef: float = 0.02
  anchor: str = 'ema'
  anchor_decay: float = 0.8
  entropy_coef: float = 0.2
  exploration: float = 0.3
  uniform: float = 0.02
  rating_noise: float = 0.2
  prior_scale: float = 1.5
  temperatures: tuple[float, ...] = ()
  context: int = derived(0)

  def __post_init__(self):
    check_choices(self, advantage=ADVANTAGES, anchor=ANCHORS)
    for name in (
      'features',
      'candidates',
      'members',
      'every',
      'capacity',
      'actor_steps',
      'minibatch',
    ):
      if getattr(self, name) < 1:
        raise ValueError(f'{name}={getattr(self, name)}: expected at least 1')
    for name in ('half_life', 'drift', 'clip', 'rating_noise', 'prior_scale'):
      if not getattr(self, name) > 0:
        raise ValueError(
          f'{name}={getattr(self, name)}: expected a number above 0'
        )
    for name in (
      'kl_coef',
      'entropy_coef',
      'exploration',
      'actor_lr',
    ):
      if not getattr(self, name) >= 0:
        raise ValueError(f'{name}={getattr(self, name)}: expected 0 or more')
    if not self.max_weight >= 1:
      raise ValueError(f'max_weight={self.max_weight}: expected 1 or more')
    for name in ('uniform', 'anchor_decay', 'old_taste'):
      if not 0 <= getattr(self, name) <= 1:
        raise ValueError(
          f'{name}={getattr(self, name)}: expected a number in [0, 1]'
        )
    if any(not t >= 0 for t in self.temperatures):
      raise ValueError(
        f'temperatures={self.temperatures}: expected numbers of 0 or more'
      )
