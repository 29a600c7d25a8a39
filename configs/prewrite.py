"""PRewrite: the rewriter of instructions is trained on what they are worth.

  python -m experiments.prewrite --config=configs/prewrite.py:smoke --workdir=W

Arguments:
  smoke     the whole walk in about a minute: a few tasks, two updates
  minicode  PPO on the embedded tasks and models, no GPU, hub or key (the
            default)
  minicode_real  the same with SmolLM2 135M Instruct as task model (`make real`)
  jsonl     tasks from files of JSON lines (see tasks/instructions.py):
              --config.data.options.train=train.jsonl
              --config.data.options.dev=dev.jsonl
              --config.data.options.test=test.jsonl
              --config.rewriter.model=FOLDER
            The task model is behind an OpenAI-compatible server, which Ollama
            is, too: --config.task_model.model=NAME
  questions, ag_news, sst2, nq, gsm8k, mbpp, plugin
            other task sets, as for configs/rewrite.py
  mbpp_real one instruction for the official MBPP file, with SmolLM2 135M
            Instruct as task model and as rewriter (`make real`):
              --config.data.path=mbpp.jsonl

`ALGORITHMS` of promptrl_jax/training/rewriter/algorithms.py says what a name in
--config.algorithms changes.
"""

import dataclasses

import ml_collections

from configs import rewrite
from configs.job import train_smollm2
from promptrl_jax import settings
from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.llm.load import BackendConfig
from promptrl_jax.prompts.meta import MetaConfig
from promptrl_jax.training.optim import OptimizerConfig
from promptrl_jax.training.rewriter.advantages import AdvantageConfig
from promptrl_jax.training.rewriter.algorithms import ALGORITHMS
from promptrl_jax.training.rewriter.config import TrainConfig
from promptrl_jax.training.rewriter.rollout import RolloutConfig


@dataclasses.dataclass(frozen=True)
class Config(rewrite.Config):
  """Settings of the job, in addition to those of `rewrite`.

  Attributes:
    algorithms: keys of `ALGORITHMS`.
    switches: updates from which on another of `ALGORITHMS` takes over:
      `((30, 'pairs'),)`.
    seeds: runs of each algorithm, from `seed` on.
    solvable_by: train on the examples that one of so many answers to the
      instruction as it is gets, at `ask.first_temperature`; 0: on all.
    rewriter: where training starts; its lengths are `train.packing.prompt_size`
      and `ask.rewrite_max_tokens`.
    validate_every, checkpoint_every: updates.
    patience: validations without a new best that end a run; 0: none do.
  """

  algorithms: tuple[str, ...] = ('ppo',)
  switches: tuple[tuple[int, str], ...] = ()
  seeds: int = 1
  solvable_by: int = 0
  rewriting: RewritingConfig = RewritingConfig(
    meta=MetaConfig('minicode'),
    reward='score',
    examples=4,
    allow_keep=False,
    background=True,
    timeout_s=600.0,
  )
  train: TrainConfig = TrainConfig(
    rollout=RolloutConfig(prompts=32, group=4),
    advantage=AdvantageConfig(lam=0.95),
    optimizer=OptimizerConfig(lr=5e-4, warmup=5, decay='linear', b2=0.99),
  )
  validate_every: int = 10
  checkpoint_every: int = 10
  patience: int = 3

  def __post_init__(self):
    if self.solvable_by < 0:
      raise ValueError(
        f'solvable_by={self.solvable_by}: expected 0 for all, or more'
      )


def get_config(arg: str = 'minicode') -> ml_collections.ConfigDict:
  c = settings.to_config_dict(Config())
  rewrite.adapt(c, arg)
  # Only a model in this process can be trained.
  c.rewriter = settings.to_config_dict(BackendConfig(model=c.rewriter.model))
  if arg in rewrite.EMBEDDED:
    # Inputs of each instruction to train on, as PRewrite does; 0: other
    # problems are trained on, those of the train split of the suite.
    c.data.options.train_examples = 8
  else:
    _for_one_instruction(c)
  if arg == 'mbpp_real':
    _for_smollm2(c)
  if arg == 'smoke':
    c.data.train_limit = c.data.validation_limit = c.data.test_limit = 8
    c.rewrite.samples = 4
    c.train.iterations = 2
    c.train.rollout.prompts, c.train.rollout.group = 4, 4
    c.train.rows_per_piece = 1
    c.validate_every = c.checkpoint_every = 1
    c.eval.resamples = 1000
  return c


def _for_one_instruction(c: ml_collections.ConfigDict) -> None:
  """A batch is one group; instructions and examples are long."""
  c.train.parameters = 'lora'
  c.train.reference.kind = 'adapter_off'
  c.train.rollout.prompts, c.train.rollout.group = 1, 32
  c.train.rollout.new_tokens = c.train.packing.lane_size = 256
  c.train.packing.prompt_size = 512
  c.rewriting.examples = 32


def _for_smollm2(c: ml_collections.ConfigDict) -> None:
  train_smollm2(c, prompt=128, completion=48)
  c.rewriting.background = False  # Both models run on this machine.
  c.algorithms, c.strategies = ('grpo',), ('S',)
  c.solvable_by = 8
  c.train.iterations = 30
  c.train.rollout.group = 16
  c.validate_every, c.patience = 5, 0


def get_hyper(arg: str = ''):
  """The sweep of rewards, of algorithms, and of the KL coefficient."""
  del arg  # They are the same for all.
  sweep = [{'rewriting.reward': name} for name in ('em', 'f1')]
  sweep += [{'algorithms': (name,)} for name in ALGORITHMS]
  coefficients = (0.0, 0.005, 0.1)
  return sweep + [{'train.reference.kl_coef': value} for value in coefficients]
