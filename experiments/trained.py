"""Finished runs whose controllers are evaluated elsewhere."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from configs.mbpp_ppo import Config
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
