"""Warms a rewriter up on edits that turned a failure into a pass.

  python -m experiments.sft_rewriter --config=configs/sft_rewriter.py \
    --workdir=runs/sft

Arguments:
  minicode   the embedded rewriter and coder on the embedded suite (the default)
  minicode2  the same on minicode 2: its own rewrites that solved what failed
  smoke      the whole walk in about a minute

Edits come from the trace.jsonl of any experiment that played training problems,
  --config.traces="('runs/a/trace.jsonl',)"
or, without one, from a trace that is collected first. The model folder appears
at WORKDIR/model, for --config.rewriter.model=WORKDIR/model elsewhere.
"""

import dataclasses

import ml_collections

from configs.job import Job, check_argument, on_minicode2
from configs.mbpp_grpo import EvalConfig
from promptrl_jax import settings
from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.training.supervised.config import SupervisedConfig

_ARGUMENTS = ('minicode', 'minicode2', 'smoke')


@dataclasses.dataclass(frozen=True)
class CollectConfig:
  """How edits are collected.

  Attributes:
    strategies: what plays the training problems, by name, for a trace.
    seeds: runs of each.
    rewrites: instead of a trace, rewrites of each statement that the coder
      fails, drawn from the rewriter itself. Those with which all tests pass are
      learned: "STaR: Bootstrapping Reasoning With Reasoning", 2022
      (https://arxiv.org/abs/2203.14465), with a rewrite for a rationale. One
      that lost a value is tried with the value put back.
    temperature: of these rewrites.
    mutations: beside them, mutations by the lexical operator that are tried.
  """

  strategies: tuple[str, ...] = ('direct', 'semantic', 'random')
  seeds: int = 1
  rewrites: int = 0
  temperature: float = 1.0
  mutations: int = 0

  def __post_init__(self):
    for name in ('rewrites', 'mutations'):
      if getattr(self, name) < 0:
        raise ValueError(f'{name}={getattr(self, name)}: expected 0 or more')
    if self.mutations and not self.rewrites:
      raise ValueError(
        f'mutations={self.mutations} with rewrites=0: they are tried beside '
        'rewrites, and without these edits come from traces'
      )


@dataclasses.dataclass(frozen=True)
class EditsConfig:
  """What is learned from a trace.

  Attributes:
    feedback: what requests show of the failed program: `with`, `without`, or
      `both`.
    originals: edits of statements as they were worded, no others.
    keep: for each edit, at most so many statements that pass and are left
      alone.
    keep_as: how such a reply is written, `nothing` or `copy`.
    held_out: share of training problems that nothing is learned from. A
      rewriter cannot know their statements by heart, so that training on them,
      with `data.train_tasks`, teaches what holds for unseen ones, too.
    exchanged: share of the draws that have other values, see
      `supervised/values.py`.
    balanced: replies with quoted texts, with numbers and with neither are drawn
      as often.
  """

  feedback: str = 'without'
  originals: bool = True
  keep: float = 2.0
  keep_as: str = 'nothing'
  held_out: float = 0.5
  exchanged: float = 0.0
  balanced: bool = False


@dataclasses.dataclass(frozen=True)
class PracticeConfig:
  """Statements of the embedded suite's kind with values that no problem has.

  Attributes:
    share: of the draws.
    known: of these, with values of problems that are not held out.
    registers: registers of the statements.
  """

  share: float = 0.8
  known: float = 0.5
  registers: tuple[str, ...] = ('canonical', 'noisy', 'paraphrased')


@dataclasses.dataclass(frozen=True)
class Config(Job):
  """Settings of the job, in addition to those of `Job`.

  Attributes:
    traces: `trace.jsonl` of other runs; empty: one is collected.
    editing: how traces are collected.
    only_failed: compare on the statements that the coder fails as they are,
      which the rewriter is shown the feedback of.
    rewriting: how rewrites are judged, see `collect.rewrites`.
    validate_every, checkpoint_every: steps.
  """

  traces: tuple[str, ...] = ()
  only_failed: bool = False
  editing: EditingConfig = EditingConfig(budget=6)
  rewriting: RewritingConfig = RewritingConfig()
  collect: CollectConfig = CollectConfig()
  edits: EditsConfig = EditsConfig()
  practice: PracticeConfig = PracticeConfig()
  supervised: SupervisedConfig = SupervisedConfig(
    steps=500,
    rows=16,
    row_length=192,
    lr=6e-4,
    muon_lr=2e-3,
    warmup=10,
    weight_decay=0.0,
    prompt_weight=0.0,
    max_grad_norm=1.0,
  )
  # The likelihood of held-out replies is mostly that of rewrites. When to write
  # none is learned later, so the last state counts.
  validate_every: int = 500
  checkpoint_every: int = 100
  eval: EvalConfig = EvalConfig(split='validation')


def get_config(arg: str = 'minicode') -> ml_collections.ConfigDict:
  check_argument(arg, _ARGUMENTS)
  c = settings.to_config_dict(Config())
  if arg == 'minicode2':
    on_minicode2(c)
    c.only_failed = True
    c.rewriting.guards.keep_values = True
    c.data.options.more = 8_000
    c.collect.rewrites, c.collect.mutations = 8, 4
    c.edits.feedback, c.edits.keep = 'with', 0.0
    c.edits.held_out, c.edits.exchanged = 0.1, 1.0
    c.edits.balanced = True
    c.supervised.steps = 700
    c.supervised.row_length = 256
    c.validate_every = c.checkpoint_every = 100
  if arg == 'smoke':
    c.data.train_limit, c.data.validation_limit = 64, 16
    c.collect.strategies = ('direct', 'semantic')
    c.supervised.steps, c.supervised.rows, c.supervised.warmup = 4, 4, 1
    c.validate_every = c.checkpoint_every = 2
    c.eval.resamples = 1000
  return c
