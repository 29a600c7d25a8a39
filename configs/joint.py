"""A controller that picks edits, a rewriter that words them, in turns.

  python -m experiments.joint --config=configs/joint.py:smoke --workdir=W

Arguments:
  smoke     the whole walk in about a minute: a few problems and calls
  minicode  the embedded suite and models (the default): three arms of
            5,000 coder calls each; docs/joint.md has a larger run

An arm is a way to spend the same number of coder calls:
  --config.arms.both='(1,2)' --config.calls=20000
"""

import dataclasses
from collections.abc import Mapping

import ml_collections

from configs.job import Job, check_argument
from promptrl_jax import settings
from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.evaluation.statistics import RESAMPLES
from promptrl_jax.training.controller.config import ControllerConfig, PPOConfig
from promptrl_jax.training.optim import OptimizerConfig
from promptrl_jax.training.rewriter.config import TrainConfig

_ARGUMENTS = ('smoke', 'minicode')
# Iterations of the controller, then of the rewriter, in one turn.
_ARMS = {'controller': (1, 0), 'rewriter': (0, 1), 'both': (1, 1)}
# How many updates the calls of an arm pay for is not known ahead, so that no
# learning rate falls towards an end.
_PPO = PPOConfig(anneal=False)
_OPTIMIZER = OptimizerConfig(warmup=5, b2=0.99)


@dataclasses.dataclass(frozen=True)
class EvalConfig:
  """How the arms are compared.

  Attributes:
    budgets: model calls per problem, one column of the table each.
    subject: the arm that the others are compared with.
    resamples: of the bootstrap.
  """

  budgets: tuple[int, ...] = (2, 4, 8)
  subject: str = 'both'
  resamples: int = RESAMPLES


@dataclasses.dataclass(frozen=True)
class Config(Job):
  """Settings of the job, in addition to those of `Job`.

  Attributes:
    calls: of the coder, in the training of each arm.
    calls_per_leg: between two rows of metrics.
    arms: iterations of the controller and of the rewriter in one turn.
    seeds: runs of each arm.
    validate_every, checkpoint_every: legs.
    validate_limit: first N validation problems; 0 for all.
  """

  calls: int = 5000
  calls_per_leg: int = 500
  arms: Mapping[str, tuple[int, int]] = dataclasses.field(
    default_factory=lambda: dict(_ARMS)
  )
  seeds: int = 1
  editing: EditingConfig = EditingConfig()
  ppo: PPOConfig = _PPO
  # Small iterations: the one that ends an arm passes its calls by less.
  controller: ControllerConfig = ControllerConfig(
    episodes=128, budgets=(2, 4, 8)
  )
  rewriting: RewritingConfig = RewritingConfig()
  train: TrainConfig = TrainConfig(optimizer=_OPTIMIZER)
  validate_every: int = 5
  validate_limit: int = 128
  checkpoint_every: int = 5
  eval: EvalConfig = EvalConfig()


def get_config(arg: str = 'minicode') -> ml_collections.ConfigDict:
  check_argument(arg, _ARGUMENTS)
  c = settings.to_config_dict(Config())
  if arg == 'smoke':
    c.data.train_limit, c.data.validation_limit, c.data.test_limit = 32, 8, 16
    c.calls, c.calls_per_leg = 64, 32
    c.controller.episodes = 16
    c.train.rollout.prompts, c.train.rollout.group = 4, 4
    c.train.rows_per_piece = 1
    c.validate_every = c.checkpoint_every = 1
    c.eval.resamples = 1000
  return c


def get_hyper(arg: str = ''):
  """The sweep of how the calls are divided within a turn."""
  del arg  # They are the same for all.
  return [{'arms.both': turn} for turn in ((1, 1), (1, 2), (1, 4), (2, 1))]
