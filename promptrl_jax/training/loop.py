"""The outer loop of a training run: iterate, validate, log, checkpoint.

The loop knows nothing of what an iteration does. Rows of metrics are written
before the checkpoint of the step that they led to, so that a run that was
killed anywhere goes on from its last checkpoint with files that are equal to
those of a run that was not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import orbax.checkpoint as ocp

from promptrl_jax.training import checkpoint
from promptrl_jax.training.metrics import MetricWriter
from promptrl_jax.training.state import TrainState

Row = dict[str, float]
IterateFn = Callable[[TrainState], tuple[TrainState, Row]]
# (step, row of metrics, totals); may raise Stop.
Callback = Callable[[int, Row, dict[str, Any]], None]

TOTALS = {'best': -1.0, 'env_steps': 0, 'calls': 0}


class Stop(Exception):
  """Raised by a callback: the run ends here, with a checkpoint."""


@dataclasses.dataclass(frozen=True)
class LoopConfig:
  """When things happen.

  Attributes:
    iterations: updates of the whole run.
    validate_every: iterations between validations; the last one is validated.
    checkpoint_every: iterations between checkpoints; validations save too.
    score_name: what the validation score is called among the metrics.
  """

  iterations: int
  validate_every: int
  checkpoint_every: int

  def is_saved(self, step: int) -> bool:
    """Whether there is a checkpoint after so many iterations."""
    return self.is_validated(step) or step % self.checkpoint_every == 0

  def is_validated(self, step: int) -> bool:
    """Whether the state is validated after so many iterations."""
    return step == self.iterations or step % self.validate_every == 0

  score_name: str = 'eval/validation_pass'


def run(
  state: TrainState,
  totals: dict[str, Any],
  iterate_fn: IterateFn,
  score_fn: Callable[[TrainState], float],
  checkpoints: ocp.CheckpointManager,
  writer: MetricWriter | None,
  config: LoopConfig,
  callbacks: Sequence[Callback] = (),
) -> TrainState:
  """Runs from `state.step` to the last iteration.

  An interrupt (Ctrl-C, or any other error) leaves a checkpoint of the last
  finished iteration behind before it goes on up; `Stop` ends the run likewise,
  and quietly. Where several processes share the run all of them call this, and
  `Stop` must be raised by all; what interrupts one of them leaves no checkpoint
  behind, because one alone cannot write it.

  Args:
    state: where to start.
    totals: `TOTALS`, or what the checkpoint of `state` held; changed in place.
    iterate_fn: one iteration; steps and calls that its row lacks count as 0.
    score_fn: validation score of a state, larger is better.
    checkpoints: from `checkpoint.open_checkpoints`.
    writer: takes one row per iteration; None on the processes after the first.
    config: when things happen.
    callbacks: called after each iteration, in order.
  """
  saved = logged = int(state.step)
  try:
    for step in range(saved, config.iterations):
      state, row = iterate_fn(state)
      totals['env_steps'] += int(row.get('rollout/steps', 0))
      totals['calls'] += int(row.get('budget/calls', 0))
      row['budget/env_steps'] = totals['env_steps']
      score = None
      if config.is_validated(step + 1):
        score = score_fn(state)
        totals['best'] = max(totals['best'], score)
        row[config.score_name] = score
      if writer is not None:
        writer.write_scalars(step, row)
      logged = step + 1
      if config.is_saved(step + 1):
        checkpoint.save_checkpoint(checkpoints, state, totals, score=score)
        saved = step + 1
      for callback in callbacks:
        callback(step, row, totals)
  except Stop:
    if int(state.step) > saved:
      score = score_fn(state)
      checkpoint.save_checkpoint(checkpoints, state, totals, score=score)
  except BaseException:
    # An update that was cut off has consumed its state, and a state whose row
    # was not written would leave a gap: then the last checkpoint must do.
    is_whole = jax.process_count() == 1 and not any(
      leaf.is_deleted() for leaf in jax.tree.leaves(state)
    )
    if is_whole and saved < int(state.step) == logged:
      checkpoint.save_checkpoint(checkpoints, state, totals)
    raise
  return state
