"""Controller and rewriter trained in turns, under one train state.

  leg: until so many coder calls are spent
    turn: k controller iterations    semantic ─► the rewriter as it is now
          m rewriter iterations

The length of a leg is counted in calls of the coder and not in iterations, so
that runs that divide their calls in other ways, or give all of them to one
learner, are logged, validated and stopped after equally many. Whose turn it is
follows from the steps of the two states alone: a resumed run repeats the
uninterrupted one bit for bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.tasks import splits
from promptrl_jax.training.controller.learner import ControllerLearner
from promptrl_jax.training.metrics import PARTS
from promptrl_jax.training.rewriter.collect import Collector
from promptrl_jax.training.rewriter.learner import (
  RewriterLearner,
  RewriterState,
)
from promptrl_jax.training.state import Row, TrainState
from promptrl_jax.types import Task

CONTROLLER, REWRITER = PARTS
# Metrics that are summed over a leg; all others are averaged.
_SUMMED = ('budget/', 'time/', 'rollout/steps', 'rollout/lost')


class NoCalls(RuntimeError):
  """An iteration made no call of the coder, so that the run would not end."""


@dataclasses.dataclass(frozen=True)
class JointConfig:
  """How the coder calls of a run are divided.

  Attributes:
    calls: coder calls after which the run ends. The iteration that reaches this
      number is the last and may exceed it.
    calls_per_leg: coder calls between two rows of metrics.
    controller: controller iterations of one turn; 0 does not train it.
    rewriter: rewriter iterations of one turn; 0 does not train it.
  """

  calls: int
  calls_per_leg: int
  controller: int
  rewriter: int

  def __post_init__(self):
    if not 1 <= self.calls_per_leg <= self.calls:
      raise ValueError(
        f'calls={self.calls}, calls_per_leg={self.calls_per_leg}: expected '
        'at least one call per leg, and no more than calls'
      )
    if min(self.controller, self.rewriter) < 0 or not self.turn:
      raise ValueError(
        f'a turn of {self.controller} controller and {self.rewriter} rewriter '
        'iterations: expected 0 or more of each, and at least one'
      )

  @property
  def turn(self) -> int:
    """Iterations of a turn."""
    return self.controller + self.rewriter

  @property
  def legs(self) -> int:
    """Legs of the run; the last one may be shorter."""
    return -(-self.calls // self.calls_per_leg)

  def mark(self, leg: int) -> int:
    """Returns the coder calls at which leg `leg`, from 0, ends."""
    return min(self.calls, (leg + 1) * self.calls_per_leg)

  def part(self, iterations: int) -> str:
    """Returns whose turn it is after so many iterations of both together."""
    place = iterations % self.turn
    return CONTROLLER if place < self.controller else REWRITER


@flax.struct.dataclass
class JointState:
  """All that a checkpoint needs.

  Attributes:
    step: `[]` int32, finished legs.
    coder_calls: `[]` int32, calls of the coder so far.
    rewriter_calls: `[]` int32, calls of the rewriter so far.
  """

  controller: TrainState
  rewriter: RewriterState
  step: jax.Array
  coder_calls: jax.Array
  rewriter_calls: jax.Array


class Replaceable(Protocol):
  """A backend whose parameters can be replaced."""

  def replace_params(self, params: Any) -> None: ...


def initial(
  controller: ControllerLearner, rewriter: RewriterLearner
) -> JointState:
  """Returns a state before the first leg, whose arrays may be donated."""
  return JointState(
    controller=jax.tree.map(jnp.copy, controller.initial),
    rewriter=jax.tree.map(jnp.copy, rewriter.initial),
    step=jnp.zeros((), jnp.int32),
    coder_calls=jnp.zeros((), jnp.int32),
    rewriter_calls=jnp.zeros((), jnp.int32),
  )


class JointTraining:
  """Trains both learners, one leg at a time."""

  def __init__(
    self,
    config: JointConfig,
    controller: ControllerLearner,
    rewriter: RewriterLearner,
    episodes: EditingEnv,
    rewriting: RewritingEnv,
    policy: Replaceable,
    tasks: Sequence[Task],
    seed: int,
  ):
    """Puts the parts together.

    The rewrites that `episodes`, the environment of the controller, asks for
    are those of `policy`. The seed is that of the order of tasks and of all
    sampling.

    Raises:
      ValueError: the rewriter samples ahead of its update.
    """
    if rewriter.config.overlap:
      raise ValueError(
        'overlap=True: what the rewriter samples ahead would be lost with its '
        'turn; set train.overlap=False'
      )
    self._config = config
    self._controller = controller
    self._rewriter = rewriter
    self._episodes = episodes
    self._policy = policy
    self._seed = seed
    self._problems = [
      splits.reveal_for_training(task, rewriting.protocol) for task in tasks
    ]
    self._collector = Collector(rewriter, rewriting, tasks, seed)

  def iterate(self, state: JointState) -> tuple[JointState, Row]:
    """Runs one leg; `state` is donated.

    Raises:
      NoCalls: every rewrite of an iteration was flagged.
    """
    rows: dict[str, list[Row]] = {part: [] for part in PARTS}
    mark = self._config.mark(int(state.step))
    while int(state.coder_calls) < mark:
      done = int(state.controller.step) + int(state.rewriter.step)
      part = self._config.part(done)
      run = self._play if part == CONTROLLER else self._rewrite
      state, row = run(state)
      rows[part].append(row)
    state = dataclasses.replace(state, step=state.step + 1)
    return state, _summary(state, rows)

  def _play(self, state: JointState) -> tuple[JointState, Row]:
    """Runs one iteration of the controller."""
    self._policy.replace_params(self._rewriter.decode_params(state.rewriter))
    rollout, played = self._controller.sample(
      state.controller, self._episodes, self._problems, self._seed
    )
    new, row = self._controller.update(state.controller, rollout)
    row |= played
    coder, rewriter = row['budget/coder_calls'], row['budget/rewriter_calls']
    state = dataclasses.replace(state, controller=new)
    return _spend(state, coder, rewriter), row

  def _rewrite(self, state: JointState) -> tuple[JointState, Row]:
    """Runs one iteration of the rewriter."""
    batch = self._collector.sample(state.rewriter)
    rollout, rewards, row = self._collector.reward(state.rewriter, batch)
    new, learned = self._rewriter.update(state.rewriter, rollout, rewards)
    row |= learned
    coder, rewriter = row['budget/coder_calls'], row['budget/rewrites']
    if not coder:
      raise NoCalls(
        f'iteration {int(new.step)} of the rewriter asked the coder nothing: '
        'all its rewrites were flagged (reward/flag_... say why); lower '
        'optimizer.lr or raise reference.kl_coef'
      )
    state = dataclasses.replace(state, rewriter=new)
    return _spend(state, coder, rewriter), row


def _spend(state: JointState, coder: float, rewriter: float) -> JointState:
  return dataclasses.replace(
    state,
    coder_calls=state.coder_calls + int(coder),
    rewriter_calls=state.rewriter_calls + int(rewriter),
  )


def _summary(state: JointState, rows: dict[str, list[Row]]) -> Row:
  """Returns one row for a leg, each metric behind the name of its learner."""
  summary = {}
  for part, iterations in rows.items():
    summary[f'{part}/rollout/iterations'] = float(len(iterations))
    for name in {name: None for row in iterations for name in row}:
      values = [row[name] for row in iterations if name in row]
      combine = np.sum if name.startswith(_SUMMED) else np.mean
      summary[f'{part}/{name}'] = float(combine(values))
  both = [row for iterations in rows.values() for row in iterations]
  return summary | {
    'rollout/steps': sum(row['rollout/steps'] for row in both),
    'budget/calls': sum(row['budget/calls'] for row in both),
    'budget/coder_calls': float(state.coder_calls),
    'budget/rewriter_calls': float(state.rewriter_calls),
  }
