"""Controller and rewriter trained in turns, under one state.

  leg: until so many coder calls are spent
    turn: k controller iterations    semantic ─► the rewriter as it is now
          m rewriter iterations

What a leg costs is counted in calls of the coder and not in iterations, so that
runs that divide their calls in other ways, or give all of them to one part, are
logged, validated and stopped after equally many. Where the turn stands follows
from the steps of the two states alone: a resumed run repeats the uninterrupted
one bit for bit.
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
from promptrl_jax.training.controller import learner as controller_lib
from promptrl_jax.training.metrics import PARTS
from promptrl_jax.training.rewriter import iteration as rewriter_training
from promptrl_jax.training.rewriter import learner as rewriter_lib
from promptrl_jax.training.state import TrainState
from promptrl_jax.types import Task

Row = dict[str, float]
CONTROLLER, REWRITER = PARTS
# Added up over a leg; everything else is a mean over its iterations.
_SUMMED = ('budget/', 'time/', 'rollout/steps', 'rollout/lost')


class NoCalls(RuntimeError):
  """An iteration asked the coder nothing, so a run would never end."""


@dataclasses.dataclass(frozen=True)
class JointConfig:
  """How the calls of a run are divided.

  Attributes:
    calls: of the coder, after which the run ends. The iteration that reaches
      them is the last and may pass them.
    calls_per_leg: between two rows of metrics.
    controller, rewriter: iterations of each in one turn; 0 leaves a part as it
      was.
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
    """Legs of the run; the last may be shorter."""
    return -(-self.calls // self.calls_per_leg)

  def mark(self, leg: int) -> int:
    """Calls that are spent when leg `leg`, from 0, ends."""
    return min(self.calls, (leg + 1) * self.calls_per_leg)

  def part(self, iterations: int) -> str:
    """Whose turn it is after so many iterations of both together."""
    place = iterations % self.turn
    return CONTROLLER if place < self.controller else REWRITER


@flax.struct.dataclass
class JointState:
  """All that a checkpoint needs.

  Attributes:
    controller: of the controller.
    rewriter: of the rewriter.
    step: `[]` int32, legs that are done.
    coder_calls, rewriter_calls: `[]` int32, calls made so far.
  """

  controller: TrainState
  rewriter: rewriter_lib.RewriterState
  step: jax.Array
  coder_calls: jax.Array
  rewriter_calls: jax.Array


class Replaceable(Protocol):
  """A backend that answers with other parameters from here on."""

  def replace_params(self, params: Any) -> None: ...


def initial(
  control: controller_lib.Controller, learner: rewriter_lib.Rewriter
) -> JointState:
  """The state before the first leg, of arrays that may be donated."""
  return JointState(
    controller=jax.tree.map(jnp.copy, control.initial),
    rewriter=jax.tree.map(jnp.copy, learner.initial),
    step=jnp.zeros((), jnp.int32),
    coder_calls=jnp.zeros((), jnp.int32),
    rewriter_calls=jnp.zeros((), jnp.int32),
  )


class Training:
  """Legs of one run."""

  def __init__(
    self,
    config: JointConfig,
    control: controller_lib.Controller,
    learner: rewriter_lib.Rewriter,
    episodes: EditingEnv,
    rewriting: RewritingEnv,
    policy: Replaceable,
    tasks: Sequence[Task],
    seed: int,
  ):
    """Puts the parts together.

    Args:
      config: settings.
      control, learner: the two parts.
      episodes: that the controller plays.
      rewriting: gives the rewriter its rewards.
      policy: the rewriter of `episodes`.
      tasks: of the training split.
      seed: of the order of tasks and of all that is sampled.

    Raises:
      ValueError: the learner samples ahead of its update.
    """
    if learner.config.overlap:
      raise ValueError(
        'overlap=True: what the rewriter samples ahead would be lost with its '
        'turn; set train.overlap=False'
      )
    self._config = config
    self._control = control
    self._learner = learner
    self._episodes = episodes
    self._policy = policy
    self._seed = seed
    protocol = rewriting.config.protocol
    self._problems = [
      splits.reveal_for_training(task, protocol) for task in tasks
    ]
    self._rewriter = rewriter_training.Training(learner, rewriting, tasks, seed)

  def iterate(self, state: JointState) -> tuple[JointState, Row]:
    """One leg; `state` is donated.

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
    self._policy.replace_params(self._learner.decode_params(state.rewriter))
    new, row = controller_lib.iterate(
      self._control, state.controller, self._episodes, self._problems,
      self._seed,
    )  # fmt: skip
    coder, rewriter = row['budget/coder_calls'], row['budget/rewriter_calls']
    state = dataclasses.replace(state, controller=new)
    return _spend(state, coder, rewriter), row

  def _rewrite(self, state: JointState) -> tuple[JointState, Row]:
    new, row = self._rewriter.iterate(state.rewriter)
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
  """One row of a leg, each metric after the name of its part."""
  found = {}
  for part, iterations in rows.items():
    found[f'{part}/rollout/iterations'] = float(len(iterations))
    for name in {name: None for row in iterations for name in row}:
      values = [row[name] for row in iterations if name in row]
      combine = np.sum if name.startswith(_SUMMED) else np.mean
      found[f'{part}/{name}'] = float(combine(values))
  both = [row for iterations in rows.values() for row in iterations]
  return found | {
    'rollout/steps': sum(row['rollout/steps'] for row in both),
    'budget/calls': sum(row['budget/calls'] for row in both),
    'budget/coder_calls': float(state.coder_calls),
    'budget/rewriter_calls': float(state.rewriter_calls),
  }
