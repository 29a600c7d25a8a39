"""What the experiments that train a controller share: its parts.

No flags here.
"""

from __future__ import annotations

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.operators.lexical import LexicalConfig
from promptrl_jax.rewards.tests import RewardConfig
from promptrl_jax.training.controller import learner
from promptrl_jax.training.controller.config import ControllerConfig, PPOConfig


def make_env_config(config) -> EditingConfig:
  """The environment that the controller plays.

  Raises:
    ValueError: a model behind a server with the template of embedded ones.
  """
  env = config.env.to_dict()
  for role in ('coder', 'rewriter'):
    if config[role].backend == 'http' and env['template'] == 'plain':
      raise ValueError(
        f'{role}.backend=http needs --config.env.template=chat: the plain '
        'format is that of the embedded models'
      )
  return EditingConfig(
    **{**env, 'lexical': LexicalConfig(**env['lexical'])},
    reward=RewardConfig(**config.reward),
    gamma=config.ppo.gamma,
  )


def make(config, env_config, seed) -> learner.ControllerLearner:
  """Builds the learner of one controller."""
  settings = config.ppo.to_dict()
  anneal = settings.pop('anneal')
  iterations = config.controller.iterations
  return learner.make_learner(
    ControllerConfig(**config.controller),
    PPOConfig(**settings, anneal_updates=iterations if anneal else None),
    env_config.observation_size,
    len(env_config.actions),
    seed,
  )
