"""Warms a rewriter up on edits that turned a failure into a pass.

  python -m experiments.sft_rewriter --config=configs/sft_rewriter.py \
    --workdir=runs/sft

Arguments:
  minicode  the embedded rewriter and coder on the embedded suite (the default)
  smoke     the whole walk in about a minute

Edits come from the trace.jsonl of any experiment that played training problems,
  --config.data.traces="('runs/a/trace.jsonl',)"
or, without one, from a trace that is collected first. The model folder appears
at WORKDIR/model, for --config.rewriter.model=WORKDIR/model elsewhere.
"""

import ml_collections

from configs import mbpp_ppo

_ARGUMENTS = ('minicode', 'smoke')


def get_config(arg: str = 'minicode') -> ml_collections.ConfigDict:
  if arg not in _ARGUMENTS:
    raise ValueError(
      f'config argument {arg!r}: expected one of {", ".join(_ARGUMENTS)}'
    )
  main = mbpp_ppo.get_config('minicode')
  c = ml_collections.ConfigDict()
  c.preset = arg
  c.seed = 0
  c.plugins = main.plugins

  c.data = main.data
  c.data.traces = ()  # trace.jsonl of other runs; empty: collect one
  c.coder = main.coder
  c.rewriter = main.rewriter  # where training starts
  c.pool = main.pool
  c.env = main.env  # how traces are collected and rewriters evaluated

  c.collect = ml_collections.ConfigDict()
  c.collect.strategies = ('direct', 'semantic', 'random')
  c.collect.budget = 6  # calls per training problem and strategy
  c.collect.seeds = 1

  c.edits = ml_collections.ConfigDict()
  # What requests show of the failed program: with | without | both.
  c.edits.feedback = 'without'
  c.edits.originals = True  # edits of statements as they were worded, no others
  # For each edit, at most so many statements that pass and are left alone.
  c.edits.keep = 2.0
  c.edits.keep_as = 'nothing'  # how it is written: nothing | copy
  # Share of training problems that nothing is learned from. A rewriter cannot
  # know their statements by heart, so that training on them, with
  # --config.data.train_tasks, teaches what holds for unseen ones, too.
  c.edits.held_out = 0.5

  # Statements of the embedded suite's kind with values that no problem has.
  c.practice = ml_collections.ConfigDict()
  c.practice.share = 0.8  # of the draws
  c.practice.known = 0.5  # of these, with values of problems not held out
  c.practice.registers = ('canonical', 'noisy', 'paraphrased')

  c.training = ml_collections.ConfigDict()
  c.training.steps = 500
  c.training.rows = 16
  c.training.row_length = 192
  c.training.lr = 6e-4  # Adam: embeddings and norms
  c.training.muon_lr = 2e-3  # Muon: matrices
  c.training.warmup = 10
  c.training.weight_decay = 0.0
  c.training.prompt_weight = 0.0
  c.training.max_grad_norm = 1.0
  # The likelihood of held-out replies is mostly that of rewrites. When to write
  # none is learned later, so the last state counts.
  c.validate_every = 500  # steps
  c.checkpoint_every = 100  # steps

  c.eval = ml_collections.ConfigDict()
  c.eval.split = 'validation'  # or test
  c.eval.resamples = 10_000

  if arg == 'smoke':
    c.data.train_limit, c.data.validation_limit = 64, 16
    c.collect.strategies = ('direct', 'semantic')
    c.training.steps, c.training.rows, c.training.warmup = 4, 4, 1
    c.validate_every = c.checkpoint_every = 2
    c.eval.resamples = 1000
  return c
