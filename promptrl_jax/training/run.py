"""One training run: resume, progress bar, metrics, validation, checkpoints.

  with Run(folder, learner.initial, RunConfig(40, 10, 10), name='grpo') as run:
    for step in run.steps():
      state, row = ...  # sample, reward, update
      run.log(state, row)
      run.validate(score_fn)

The run knows nothing of what an iteration does. Rows of metrics are written
before the checkpoint of the step that they led to, so that a run that was
killed anywhere goes on from its last checkpoint with files that are equal to
those of a run that was not.

Where several processes share a run, all of them call the same methods with the
same values; process 0 alone writes metrics.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import jax
import tqdm

from promptrl_jax import files
from promptrl_jax.parallel import distributed
from promptrl_jax.training import checkpoint
from promptrl_jax.training.metrics import MetricWriter
from promptrl_jax.training.state import Row

State = TypeVar('State')
# Seconds that processes that have saved their part wait for the others.
_SAVED_S = 3600.0


@dataclasses.dataclass(frozen=True)
class RunConfig:
  """When a run validates, saves and ends.

  Attributes:
    iterations: iterations of the whole run.
    validate_every: iterations between validations; the last one is validated.
    checkpoint_every: iterations between checkpoints; validations save too.
    score_name: name of the validation score among the metrics.
    patience: validations in a row without a new best score after which the run
      ends; 0 never ends it. With patience the initial state is validated as
      well, and stays the best if no later one is better.
  """

  iterations: int
  validate_every: int
  checkpoint_every: int
  score_name: str = 'eval/validation_pass'
  patience: int = 0

  def is_validated(self, step: int) -> bool:
    """Whether the state is validated after so many iterations."""
    return step == self.iterations or step % self.validate_every == 0

  def is_saved(self, step: int) -> bool:
    """Whether there is a checkpoint after so many iterations."""
    return self.is_validated(step) or step % self.checkpoint_every == 0


@dataclasses.dataclass
class Totals:
  """Counts of a whole run, saved with each checkpoint.

  Attributes:
    best: best validation score; None before the first validation.
    stale: validations in a row that were not better than the best before.
    env_steps: sum of `rollout/steps`.
    calls: model calls before the first iteration, and the sum of
      `budget/calls`.
  """

  best: float | None = None
  stale: int = 0
  env_steps: int = 0
  calls: int = 0


class Run:
  """Drives the iterations of one run; a context manager.

  Leaving it by `break`, or after `stop`, saves the last iteration. An interrupt
  (Ctrl-C, or any other error) saves the last finished iteration too, unless
  several processes share the run: one alone cannot write a checkpoint.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    initial: Any,
    config: RunConfig,
    *,
    name: str,
    unit: str = 'update',
    shown: Mapping[str, str] | None = None,
    calls: int = 0,
  ):
    """Prepares a run; nothing is opened before it is entered.

    Entering it raises ValueError while another process runs in its folder.

    Args:
      folder: metrics, TensorBoard events and `checkpoints/` lie here. A run
        whose folder holds a checkpoint goes on from the last one.
      initial: state of step 0, or a state like it; any pytree with a `step`.
      config: when the run validates, saves and ends.
      name: label of the progress bar.
      unit: word for an iteration in the progress bar.
      shown: metrics in the progress bar, by label.
      calls: model calls that the initial state has cost.
    """
    self.state = initial
    self.totals = Totals(calls=calls)
    self.config = config
    self._folder = folder
    self._bar = {'desc': name, 'unit': unit, 'total': config.iterations}
    self._shown = shown or {}
    self._stack = contextlib.ExitStack()
    self._row: Row | None = None  # of an iteration that is not committed
    self._score: float | None = None
    self._is_new = True
    self._is_stopped = False

  def __enter__(self) -> Run:
    with self._stack:
      if distributed.is_first():
        self._stack.enter_context(files.held(self._folder))
      self._checkpoints = self._stack.enter_context(
        checkpoint.open_checkpoints(self._folder / 'checkpoints')
      )
      if self._checkpoints.latest_step() is not None:
        self.state, totals = checkpoint.restore_checkpoint(
          self._checkpoints, self.state
        )
        self.totals, self._is_new = Totals(**totals), False
      self._saved = int(self.state.step)
      self._writer = distributed.first_only(MetricWriter)(
        self._folder, resume_step=self._saved
      )
      if self._writer is not None:
        self._stack.enter_context(self._writer)
      self._progress = self._stack.enter_context(
        tqdm.tqdm(
          **self._bar, initial=self._saved, disable=not distributed.is_first()
        )
      )
      self._stack = self._stack.pop_all()
    return self

  def __exit__(self, error_type: Any, *rest: object) -> None:
    with self._stack:
      if error_type is None and self._row is not None:
        self._commit()
      is_whole = error_type is None or self._is_whole()
      if is_whole and int(self.state.step) > self._saved:
        self._save()

  def steps(self) -> Iterator[int]:
    """Yields the numbers of the iterations that are still to be done."""
    while not self._is_over():
      yield int(self.state.step)
      self._commit()

  def log(self, state: Any, row: Row) -> None:
    """Records one iteration: the state that it led to, and its metrics.

    `rollout/steps` and `budget/calls` are summed up over the run where they are
    present.
    """
    self.totals.env_steps += int(row.get('rollout/steps', 0))
    self.totals.calls += int(row.get('budget/calls', 0))
    row['budget/env_steps'] = self.totals.env_steps
    self.state, self._row = state, row

  def validate(self, score_fn: Callable[[Any], float]) -> None:
    """Scores the state where the config asks for it; larger is better."""
    if self._row is None and not (self._is_new and self.config.patience):
      return
    step = int(self.state.step)
    if not (step == 0 or self._is_stopped or self.config.is_validated(step)):
      return
    name = self._bar['desc']
    # That may take longer than many iterations.
    self._progress.set_description(f'{name}, validating')
    score = self._score = score_fn(self.state)
    self._progress.set_description(name)
    is_best = self.totals.best is None or score > self.totals.best
    self.totals.stale = 0 if is_best else self.totals.stale + 1
    if is_best:
      self.totals.best = score
    if self._row is None:
      self._save()
    else:
      self._row[self.config.score_name] = score

  def stop(self) -> None:
    """Ends the run after this iteration, which is validated and saved."""
    self._is_stopped = True

  def print(self, text: str) -> None:
    """Prints a line above the progress bar."""
    if distributed.is_first():
      self._progress.write(text)

  def _is_over(self) -> bool:
    patience = self.config.patience
    return (
      self._is_stopped
      or int(self.state.step) >= self.config.iterations
      or bool(patience and self.totals.stale >= patience)
    )

  def _commit(self) -> None:
    """Writes the row of an iteration, then the checkpoint that it led to."""
    if self._row is None:
      raise RuntimeError(
        f'iteration {int(self.state.step)} was not logged: call run.log(state, '
        'row) once in each iteration'
      )
    row, step = self._row, int(self.state.step)
    if self._writer is not None:
      self._writer.write_scalars(step - 1, row)
    self._row = None
    if self._is_stopped or self.config.is_saved(step):
      self._save()
    shown = {label: row.get(metric) for label, metric in self._shown.items()}
    shown['best_validation'] = self.totals.best
    self._progress.set_postfix(
      {k: '-' if v is None else f'{v:.4g}' for k, v in shown.items()},
      refresh=False,
    )
    self._progress.update()

  def _save(self) -> None:
    checkpoint.save_checkpoint(
      self._checkpoints,
      self.state,
      dataclasses.asdict(self.totals),
      score=self._score,
    )
    self._saved, self._score, self._is_new = int(self.state.step), None, False

  def _is_whole(self) -> bool:
    """Whether the state of the last committed iteration can be saved.

    An update that was cut off has consumed its state, and a state whose row was
    not written would leave a gap: then the checkpoint before it must do.
    """
    return (
      self._row is None
      and jax.process_count() == 1
      and not any(leaf.is_deleted() for leaf in jax.tree.leaves(self.state))
    )


def is_started(folder: pathlib.Path) -> bool:
  """Whether a run has saved a checkpoint in the folder, to go on from."""
  path = folder / 'checkpoints'
  if not path.is_dir():
    return False
  with checkpoint.open_checkpoints(path, read_only=True) as checkpoints:
    return checkpoints.latest_step() is not None


def restore(
  folder: pathlib.Path, template: State, which: str = 'best'
) -> tuple[State, Totals]:
  """Restores a state of a run, 'best' or 'last', and the counts up to it.

  All processes of a run read the checkpoint.
  """
  distributed.barrier(f'checkpoints of {folder}', _SAVED_S)
  with checkpoint.open_checkpoints(
    folder / 'checkpoints', read_only=True
  ) as checkpoints:
    state, totals = checkpoint.restore_checkpoint(checkpoints, template, which)
  return state, Totals(**totals)
