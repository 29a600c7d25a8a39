"""GPRO: which of several answers a person sees, learned from what they say.

  features [B, G, D] ─► act ─► shown ─► a person ─► replay.rate, at any time
                         ▲                              │
                         └── update, every M queries ◄──┘
                             critic: posterior, given all feedback
                             actor:  rewards of all candidates, imputed by the
                                     critic ─► clipped surrogate

Several actors are trained side by side, each on its own critic, a draw from the
posterior. The policy is their mean: "Deep Exploration via Bootstrapped DQN",
Osband et al., 2016 (https://arxiv.org/abs/1602.04621). All that is drawn is a
function of seed, step and purpose, so that a resumed run equals one that was
not interrupted.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.rl import losses
from promptrl_jax.training.gpro import replay as replay_lib
from promptrl_jax.training.gpro import temperature as temperature_lib
from promptrl_jax.training.gpro import update as update_lib
from promptrl_jax.training.gpro.config import GPROConfig
from promptrl_jax.training.gpro.replay import Replay
from promptrl_jax.training.gpro.state import (
  GPROState,
  Parts,
  make_parts,
  mixture,
  standardise,
)
from promptrl_jax.training.gpro.temperature import TemperatureChoice
from promptrl_jax.training.gpro.update import Metrics
from promptrl_jax.training.state import step_key


class Choice(NamedTuple):
  """What the policy chose for B queries.

  Attributes:
    shown: `[B]` int32, index of the candidate to show.
    other: `[B]` int32, a second one for a pair; differs from `shown` if there
      are two valid candidates.
    logps: `[B, G]` log-probabilities of showing each candidate.
    scores: `[B, G]`, satisfaction in [0, 1] that the critics expect.
    spread: `[B, G]`, standard deviation of the critics' scores.
  """

  shown: Any
  other: Any
  logps: Any
  scores: Any
  spread: Any


@dataclasses.dataclass(frozen=True)
class GPROLearner:
  """Settings, first state and jitted functions.

  Attributes:
    config: its settings.
    initial_fn: `key -> state` of step 0.
    initial: state of step 0 of the seed.
    act: jitted `(state, features [B, G, D], mask [B, G] bool, key) -> Choice`;
      the key is consumed, see `act_key`.
    temperature: jitted `(state, context [B, Q], key) -> TemperatureChoice`,
      before the candidates are there.
    update: jitted `(state, replay) -> (state, metrics)`.
  """

  config: GPROConfig
  initial_fn: Callable[[jax.Array], GPROState]
  initial: GPROState
  act: Callable[[GPROState, Any, Any, jax.Array], Choice]
  temperature: Callable[[GPROState, Any, jax.Array], TemperatureChoice]
  update: Callable[[GPROState, Replay], tuple[GPROState, Metrics]]

  def choose(
    self,
    state: GPROState,
    replay: Replay,
    features: np.ndarray,
    mask: np.ndarray | None = None,
    **row: Any,
  ) -> tuple[Replay, int, Choice]:
    """Chooses for one query, and adds its row to the replay.

    Args:
      features: `[n, D]`, of at most G candidates; the rest is padded.
      mask: `[n]` bool, valid candidates; None: all of them.
      **row: `context`, `temperature`, `temperature_logp` of `replay.add`.

    Returns:
      The replay, the number of the query for `replay.rate`, and the choice
      without the axis B, as NumPy arrays.
    """
    features, is_there = replay_lib.pad(features, self.config.candidates)
    if mask is not None:
      is_there[: len(mask)] &= np.asarray(mask, bool)
    mask = is_there
    key = act_key(state, int(replay.queries))
    choice = self.act(state, features[None], mask[None], key)
    choice = Choice(*(np.asarray(x)[0] for x in choice))
    replay, query = replay_lib.add(
      replay,
      features,
      mask,
      choice.logps,
      choice.scores,
      int(choice.shown),
      int(choice.other),
      **row,
    )
    return replay, query, choice

  def due(self, replay: Replay) -> bool:
    """Whether the number of queries so far calls for an update."""
    queries = int(replay.queries)
    return queries > 0 and queries % self.config.every == 0


def act_key(state: GPROState, query: int, purpose: str = 'act') -> jax.Array:
  """Returns the key for one choice at the query of a number."""
  return jax.random.fold_in(step_key(state, purpose), query)


def make_learner(config: GPROConfig, seed: int) -> GPROLearner:
  """Builds networks, optimizers and jitted functions."""
  parts = make_parts(config)
  return GPROLearner(
    config,
    parts.initial,
    jax.jit(parts.initial)(jax.random.key(seed)),
    jax.jit(functools.partial(_act, config, parts)),
    jax.jit(functools.partial(_choose_temperature, config, parts)),
    jax.jit(functools.partial(update_lib.update, config, parts)),
  )


def _act(
  config: GPROConfig,
  parts: Parts,
  state: GPROState,
  features: jax.Array,
  mask: jax.Array,
  key: jax.Array,
) -> Choice:
  x = standardise(state, features)
  logits = parts.actor(state.params['actor'], x)
  logps = mixture(config, logits, mask)
  scores = jax.nn.sigmoid(parts.critic(state.params['critic'], x))
  first_key, second_key = jax.random.split(key)
  shown = jax.random.categorical(first_key, losses.mask_logits(logps, mask))
  is_shown = jnp.arange(mask.shape[1]) == shown[:, None]
  several = jnp.sum(mask, axis=1, keepdims=True) > 1
  rest = losses.mask_logits(logps, mask & ~(is_shown & several))
  other = jax.random.categorical(second_key, rest)
  return Choice(
    shown.astype(jnp.int32),
    other.astype(jnp.int32),
    logps,
    jnp.mean(scores, axis=0),
    jnp.std(scores, axis=0),
  )


def _choose_temperature(
  config: GPROConfig,
  parts: Parts,
  state: GPROState,
  context: jax.Array,
  key: jax.Array,
) -> TemperatureChoice:
  if not config.temperatures:
    raise ValueError(
      'temperatures=(): there is none to choose; leave it to the default of '
      'the backend'
    )
  logits, _ = parts.temperature(state.params['temperature'], context)
  return temperature_lib.choose(config, logits, key)
