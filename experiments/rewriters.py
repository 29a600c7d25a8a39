"""Settings of rewriters, from the config files of the experiments.

No flags here.
"""

from __future__ import annotations

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.llm import load
from promptrl_jax.operators.lexical import LexicalConfig
from promptrl_jax.training.rewriter import algorithms, build
from promptrl_jax.training.rewriter.build import Start
from promptrl_jax.training.rewriter.config import RewriterConfig

# Parts of `RewriterConfig` and their sections in a config file; a section of a
# `ConfigDict` cannot be called `update`, which is one of its methods.
_SECTIONS = {
  'rollout': 'rollout',
  'packing': 'packing',
  'advantage': 'advantage',
  'update': 'learner',
  'reference': 'reference',
  'optimizer': 'optimizer',
  'lora': 'lora',
}


def make_env_config(config) -> EditingConfig:
  """Returns the environment in which rewriters are evaluated."""
  settings = config.env.to_dict()
  return EditingConfig(
    **{**settings, 'lexical': LexicalConfig(**settings['lexical'])}
  )


def make_config(config, algorithm: str = 'grpo') -> RewriterConfig:
  """Returns the settings of the learner for one algorithm.

  Raises:
    ValueError: the algorithm is unknown, or a setting makes no sense, alone or
      beside another.
  """
  parts = {part: config[name].to_dict() for part, name in _SECTIONS.items()}
  return algorithms.make_config(
    {**config.train.to_dict(), **parts}, algorithm, config.get('switches', ())
  )


def load_start(config) -> Start:
  """Reads the model that training starts from, and its reference model."""
  backend = load.BackendConfig(**config.rewriter)
  reference = config.reference.model if 'reference' in config else ''
  return build.load_start(backend, reference)
