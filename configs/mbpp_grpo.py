"""The rewriter learns which words make a frozen code model pass its tests.

  python -m experiments.mbpp_grpo --config=configs/mbpp_grpo.py:smoke \
    --workdir=W

Arguments:
  smoke       the whole walk in about a minute: a few problems, two updates
  minicode    GRPO on the embedded suite and models (the default)
  minicode2   GRPO on the statements that fail, see docs/science.md
  algorithms  GRPO, PPO with a value head and REINFORCE, one after the other
  mbpp        the official MBPP file and models of your own:
                --config.data.path=mbpp.jsonl --config.coder.model=FOLDER
                --config.rewriter.model=FOLDER
  mbpp_real   the same file with SmolLM2 135M Instruct as coder and rewriter, of
              which adapters are trained (`make real`):
                --config.data.path=mbpp.jsonl

`ALGORITHMS` of promptrl_jax/training/rewriter/algorithms.py says what a name in
--config.algorithms changes.
"""

import dataclasses

import ml_collections

from configs.job import (
  Job,
  check_argument,
  on_minicode2,
  train_adapters,
  train_smollm2,
  use_smollm2,
)
from promptrl_jax import settings
from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.evaluation.statistics import RESAMPLES
from promptrl_jax.training.rewriter.algorithms import ALGORITHMS
from promptrl_jax.training.rewriter.config import TrainConfig

_ARGUMENTS = ('smoke', 'minicode', 'minicode2', 'algorithms')
_ARGUMENTS += ('mbpp', 'mbpp_real')


@dataclasses.dataclass(frozen=True)
class EvalConfig:
  """What the rewriters are compared on.

  Attributes:
    split: `test` or `validation`.
    resamples: of the bootstrap.
  """

  split: str = 'test'
  resamples: int = RESAMPLES

  def __post_init__(self):
    if self.split not in ('validation', 'test'):
      raise ValueError(
        f'eval.split={self.split!r}: expected validation or test'
      )


@dataclasses.dataclass(frozen=True)
class Config(Job):
  """Settings of the job, in addition to those of `Job`.

  Attributes:
    algorithms: keys of `ALGORITHMS`; none: the start plays, untrained.
    switches: updates from which on another of `ALGORITHMS` takes over:
      `((30, 'pairs'),)`.
    seeds: runs of each algorithm.
    only_failed: train and compare on the statements that the coder fails as
      they are, which the rewriter is shown the feedback of.
    solvable_by: train on tasks that one of so many rewrites of the start
      solves; 0: on all.
    validate_every, checkpoint_every: updates.
    validate_limit: first N validation problems; 0 for all.
  """

  algorithms: tuple[str, ...] = ('grpo',)
  switches: tuple[tuple[int, str], ...] = ()
  seeds: int = 1
  only_failed: bool = False
  solvable_by: int = 0
  rewriting: RewritingConfig = RewritingConfig()
  train: TrainConfig = TrainConfig()
  validate_every: int = 10
  validate_limit: int = 0
  checkpoint_every: int = 10
  eval: EvalConfig = EvalConfig()


def get_config(arg: str = 'minicode') -> ml_collections.ConfigDict:
  check_argument(arg, _ARGUMENTS)
  c = settings.to_config_dict(Config())
  if arg == 'algorithms':
    c.algorithms = ('grpo', 'ppo', 'reinforce')
  if arg == 'smoke':
    c.data.train_limit, c.data.validation_limit, c.data.test_limit = 32, 8, 16
    c.train.iterations = 2
    c.train.rollout.prompts, c.train.rollout.group = 4, 4
    c.train.rows_per_piece = 1
    c.validate_every = c.checkpoint_every = 1
    c.eval.resamples = 1000
  if arg == 'minicode2':
    on_minicode2(c)
    c.only_failed = True
    c.rewriting.guards.keep_values = True
    # Problems that the warm start has not seen, with one that solves some.
    c.data.options.more = c.data.options.skip = 8_000
    c.solvable_by = 8
    c.train.iterations = 60
    c.train.rollout.temperature = 1.0
    c.train.optimizer.lr = 2e-4
    c.train.reference.kl_coef = 0.005
  if arg in ('mbpp', 'mbpp_real'):
    c.data.name = 'mbpp'
  if arg == 'mbpp_real':
    use_smollm2(c, 'coder')
    train_smollm2(c, prompt=256, completion=64)
    c.rewriting.reward = 'score'  # A problem in ten is solved.
    # Of 367 problems 28: with all of them most groups have nothing to compare.
    c.solvable_by = 8
    c.train.iterations = 15
    c.train.rollout.prompts = 16
    # At 1 a model of this size forgets the name of the function.
    c.train.rollout.temperature = 0.8
    c.train.optimizer.lr = 2e-4
    c.train.reference.kl_coef = 0.005
    c.validate_every = c.checkpoint_every = 5
  if arg == 'mbpp':
    c.pool.limits.cpu_s = 5.0
    train_adapters(c)
  return c


def get_hyper(arg: str = ''):
  """The sweep of the algorithms, and of the KL coefficient."""
  del arg  # They are the same for all.
  sweep = [{'algorithms': (name,)} for name in ALGORITHMS]
  coefficients = (0.0, 0.005, 0.1)
  return sweep + [{'train.reference.kl_coef': value} for value in coefficients]
