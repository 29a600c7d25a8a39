"""Finished runs whose controllers or rewriters are evaluated elsewhere."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from configs.mbpp_ppo import Config
from experiments import solvable
from promptrl_jax import settings
from promptrl_jax.evaluation import output
from promptrl_jax.evaluation.selection import Selected
from promptrl_jax.tasks import load
from promptrl_jax.training import workdir as workdir_lib

# Sections that say what controllers are, and how they learnt.
_OF_CONTROLLERS = (
  *('seed', 'seeds', 'editing', 'ppo', 'controller', 'bandit', 'clone'),
  *('validate_every', 'validate_seeds', 'patience', 'checkpoint_every'),
)
# Settings that decide what is chosen on validation.
_OF_SEARCH = ('coder', 'rewriter', 'ask', 'examples', 'search')


@dataclasses.dataclass(frozen=True)
class Trained:
  """The settings of a finished run, and where its numbers come from."""

  folder: pathlib.Path
  config: Config
  header: Mapping[str, Any]

  @classmethod
  def load(cls, folder: pathlib.Path) -> Trained:
    """Reads the run.

    Raises:
      FileNotFoundError: it has no settings or no results.
      ValueError: it is of another job, or of another version of this project.
    """
    job, saved = workdir_lib.load_config(folder)
    if job != 'mbpp_ppo':
      raise ValueError(f'--controllers={folder} holds a run of {job}')
    header = workdir_lib.results(folder)['header']
    return cls(folder, settings.from_mapping(Config, saved), header)

  def applied_to(self, config: Config) -> Config:
    """The settings of an evaluation, with those of the controllers."""
    theirs = {name: getattr(self.config, name) for name in _OF_CONTROLLERS}
    # Rivals may take as many steps as there are calls.
    steps = max(self.config.editing.max_steps, *config.eval.budgets)
    theirs['editing'] = dataclasses.replace(
      self.config.editing, max_steps=steps
    )
    return dataclasses.replace(config, **theirs)

  def is_comparable(self, config: Config) -> bool:
    """Whether the run played the same problems."""
    theirs = dataclasses.replace(self.config.data, path=config.data.path)
    same_hash = self.header['data_hash'] == load.describe(config.data)
    return theirs == config.data and same_hash

  def is_searched(self, config: Config) -> bool:
    """Whether the run chose on validation what an evaluation would."""
    return (
      self.is_comparable(config)
      and (self.folder / 'searched.json').exists()
      and self.config.eval.budgets == config.eval.budgets
      and all(
        getattr(self.config, name) == getattr(config, name)
        for name in _OF_SEARCH
      )
    )

  def label(self, config: Config) -> str:
    """The coder that the controllers learnt with, and its tasks if others."""
    coder = self.header['model_hashes']['coder']
    if self.is_comparable(config):
      return coder
    return f'{coder} on {self.header["data_hash"]}'


def selected(
  folder: pathlib.Path, budgets: Sequence[int], seeds: Sequence[int]
) -> list[Selected]:
  """The controllers with the score by which their checkpoints were chosen.

  Args:
    folder: of the run that trained them.
    budgets: its own, which the score is the mean over.

  Returns:
    One for all of them; none where the run has not kept the scores.
  """
  best = []
  for seed in seeds:
    path = folder / f'seed_{seed}' / 'metrics.jsonl'
    rows = output.read_jsonl(path) if path.exists() else ()
    name = 'eval/validation_pass'
    scores = [row[name] for row in rows if name in row]
    if not scores:
      return []
    best.append(max(scores))
  mean = math.fsum(best) / len(best)
  return [Selected('ppo', tuple(sorted(budgets)), mean)]


def rewriter_calls(model: str) -> float | None:
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
  before = rewriter_calls(start)
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
