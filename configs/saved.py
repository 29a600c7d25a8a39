"""The settings of an earlier run, from its working directory.

  python -m experiments.mbpp_ppo --config=configs/saved.py:runs/minicode \
    --workdir=runs/again

Flags change them as those of any other config: --config.seed=1.
"""

import importlib
import pathlib

import ml_collections

from promptrl_jax import registry, settings
from promptrl_jax.training import workdir


def get_config(arg: str) -> ml_collections.ConfigDict:
  """Returns the settings that a job saved; `arg` is its working directory."""
  job, mapping = workdir.load_config(pathlib.Path(arg))
  # Settings may name what they add.
  registry.import_plugins(mapping.get('plugins', ()))
  cls = importlib.import_module(f'configs.{job}').Config
  return settings.to_config_dict(settings.from_mapping(cls, mapping))
