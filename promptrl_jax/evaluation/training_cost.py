"""What the training of a rewriter has cost, read from what its run left."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Sequence

from promptrl_jax.evaluation import output
from promptrl_jax.training import solvable


def mean_training_calls(models: Sequence[str]) -> float | None:
  """The mean over the seeds of one rewriter; None if one is unknown."""
  calls = [training_calls(model) for model in models]
  known = [cost for cost in calls if cost is not None]
  return math.fsum(known) / len(known) if known == calls else None


def training_calls(model: str) -> float | None:
  """Model calls that the training of a rewriter has cost, with its start's.

  They are those of its updates and of the choice of its problems, as for
  controllers; not those of validations.

  Args:
    model: `model` of its `BackendConfig`. A folder lies beside the metrics of
      the run that left it; what is no folder was trained by no run.

  Returns:
    The calls; None if the run, or that of the model that it started from, does
    not say.
  """
  folder = pathlib.Path(model)
  if not folder.is_dir():
    return 0.0
  metrics = folder.parent / 'metrics.jsonl'
  rows = list(output.read_jsonl(metrics)) if metrics.is_file() else []
  workdir, start = _start_of(folder.resolve())
  if start is None or not all('budget/calls' in row for row in rows or [{}]):
    return None
  before = training_calls(start)
  own = math.fsum(row['budget/calls'] for row in rows) + solvable.calls(workdir)
  return None if before is None else before + own


def _start_of(folder: pathlib.Path) -> tuple[pathlib.Path, str | None]:
  """The run of a model folder, and the model that it says it started from."""
  for workdir in folder.parents[:3]:  # as in WORKDIR/grpo/seed_0/model
    path = workdir / 'config.json'
    if path.is_file():
      saved = json.loads(path.read_text(encoding='utf-8')).get('config', {})
      return workdir, saved.get('rewriter', {}).get('model')
  return folder, None
