"""Checkpoints of a run: the last ones to resume from, the best to evaluate.

One step is one directory, written under a temporary name and renamed when it
is complete, so that an interrupted save is never seen. It holds the state bit
for bit, and a JSON part for values that live on the host, such as counts.

  with open_checkpoints(workdir / 'checkpoints') as checkpoints:
    state, extra = restore_checkpoint(checkpoints, state)
    ...
    save_checkpoint(checkpoints, state, {'cursor': 3}, score=0.71)
"""

from __future__ import annotations

import json
import math
import os
import pathlib
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from promptrl_jax.training.workdir import FORMAT

State = TypeVar('State')


class Stepped(Protocol):
  """A tree of arrays that knows its step, such as a train state."""

  @property
  def step(self) -> jax.Array: ...


def open_checkpoints(
  directory: str | os.PathLike[str], *, read_only: bool = False
) -> ocp.CheckpointManager:
  """Opens a directory of checkpoints; use it in a `with` statement.

  Saving goes on in the background; leaving the `with` waits for it. The newest
  checkpoint and the best one stay.

  Args:
    directory: created if missing. What interrupted saves left is removed.
    read_only: for evaluation next to a run that may still be writing: nothing
      is created, removed or saved.

  Raises:
    FileNotFoundError: `read_only`, and the directory does not exist.
  """
  path = pathlib.Path(directory).absolute()
  if read_only and not path.is_dir():
    raise FileNotFoundError(f'no checkpoint directory at {path}')
  policy = checkpoint_managers.AnyPreservationPolicy(
    [
      checkpoint_managers.LatestN(1),
      checkpoint_managers.BestN(get_metric_fn=_score, n=1),
    ]
  )
  options = ocp.CheckpointManagerOptions(
    best_fn=_score,
    preservation_policy=policy,
    create=not read_only,
    cleanup_tmp_directories=not read_only,
    read_only=read_only,
  )
  return ocp.CheckpointManager(path, options=options)


def save_checkpoint(
  checkpoints: ocp.CheckpointManager,
  state: Stepped,
  extra: dict[str, Any],
  *,
  score: float | None = None,
) -> None:
  """Saves the state under its own step.

  The state may be donated, and `extra` be changed, afterwards.

  Args:
    extra: JSON values that come back equal: string keys, lists, no tuples.
    score: validation metric, larger is better (negate a loss). Of all scored
      checkpoints the best stays, of equals the latest. None: not scored.

  Raises:
    ValueError: the step is not newer than the newest checkpoint, or the score
      is not finite.
    TypeError: `extra` would not come back equal.
  """
  step = int(state.step)
  latest = checkpoints.latest_step()
  if latest is not None and step <= latest:
    raise ValueError(
      f'step {step} is not newer than checkpoint {latest} in '
      f'{checkpoints.directory}: resume from the last checkpoint, or start in '
      'another directory'
    )
  if score is not None and not math.isfinite(score):
    raise ValueError(f'score must be finite, got {score} at step {step}')
  # A copy, as it is written in the background while the run goes on.
  copied = json.loads(json.dumps(extra))
  if copied != extra:
    raise TypeError(
      'extra must hold only what JSON gives back unchanged (string keys, '
      f'lists instead of tuples, no NaN), got {extra}'
    )
  host = {'format': FORMAT, 'extra': copied, 'layout': _layout(state)}
  checkpoints.save(
    step,
    args=ocp.args.Composite(
      state=ocp.args.StandardSave(state), host=ocp.args.JsonSave(host)
    ),
    metrics={'score': score},
    force=True,
  )


def restore_checkpoint(
  checkpoints: ocp.CheckpointManager, template: State, which: str = 'last'
) -> tuple[State, dict[str, Any]]:
  """Restores a state bit for bit, and the JSON part `extra`.

  Resume from 'last': saving goes on only after the newest step. 'best' is for
  evaluation. The template is a state like the saved one (that of step 0, or its
  `jax.eval_shape`) and gives structure, dtypes and shardings.

  Raises:
    FileNotFoundError: the checkpoint does not exist.
    ValueError: `which` is unknown, the checkpoint has another format, or the
      saved state differs from the template in a name, a shape or a dtype.
  """
  step = _find_step(checkpoints, which)
  host = checkpoints.restore(
    step, args=ocp.args.Composite(host=ocp.args.JsonRestore())
  )['host']
  if host.get('format', 1) != FORMAT:
    raise ValueError(
      f'checkpoint {checkpoints.directory}/{step} has format '
      f'{host.get("format", 1)}, expected {FORMAT}: it was written by another '
      'version of this project; go on with that version, or start in another '
      'directory'
    )
  # Checked here because Orbax would cast to the template's dtype in silence.
  saved, wanted = host['layout'], _layout(template)
  for name in sorted(saved.keys() | wanted.keys()):
    if saved.get(name) != wanted.get(name):
      raise ValueError(
        f'checkpoint {checkpoints.directory}/{step} does not fit this config: '
        f'state{name} is {saved.get(name)} in the checkpoint, '
        f'{wanted.get(name)} was expected; restore with the config that wrote '
        'it, or start in another directory'
      )
  restored = checkpoints.restore(
    step, args=ocp.args.Composite(state=ocp.args.StandardRestore(template))
  )
  return restored['state'], host['extra']


def _find_step(checkpoints: ocp.CheckpointManager, which: str) -> int:
  if which not in ('last', 'best'):
    raise ValueError(f"which must be 'last' or 'best', got {which!r}")
  # A save in progress is waited for, and one by another process is seen.
  checkpoints.wait_until_finished()
  checkpoints.reload()
  step = checkpoints.latest_step()
  if step is None:
    raise FileNotFoundError(
      f'no checkpoint in {checkpoints.directory}: start a new run, or check '
      'the directory'
    )
  if which == 'last':
    return step
  step = checkpoints.best_step()
  if step is None or _score(checkpoints.metrics(step)) == -math.inf:
    raise FileNotFoundError(
      f'no checkpoint in {checkpoints.directory} was saved with a score: '
      "restore 'last', or save with score="
    )
  return step


def _score(metrics: Any) -> float:
  score = (metrics or {}).get('score')
  return -math.inf if score is None else score


def _layout(state: Any) -> dict[str, str]:
  """Describes every leaf, e.g. {'.step': 'int32[]'}."""
  leaves, _ = jax.tree_util.tree_flatten_with_path(state)
  return {
    jax.tree_util.keystr(path): f'{leaf.dtype}{list(jnp.shape(leaf))}'
    for path, leaf in leaves
  }
