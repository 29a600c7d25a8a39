"""Trains the embedded models from scratch on minicode's train split.

  python -m experiments.pretrain_minicode \
    --config=configs/pretrain_minicode.py:coder --workdir=runs/coder

Arguments: `coder`, `rewriter`, and `coder_smoke`, `rewriter_smoke` (a minute).
"""

import ml_collections

# Each full recipe must fit in an hour on two cores.
_STEPS = {'coder': 900, 'rewriter': 700}


def get_config(arg: str = 'coder') -> ml_collections.ConfigDict:
  role, _, size = arg.partition('_')
  if role not in _STEPS or size not in ('', 'smoke'):
    raise ValueError(
      f'config argument {arg!r}: expected coder, rewriter, coder_smoke or '
      'rewriter_smoke'
    )
  smoke = size == 'smoke'
  c = ml_collections.ConfigDict()
  c.role = role
  c.seed = 0
  c.checkpoint_every = 100  # steps

  c.model = ml_collections.ConfigDict()
  c.model.vocab_size = 1536
  c.model.hidden_size = 192
  c.model.num_layers = 4
  c.model.num_heads = 6
  c.model.num_kv_heads = 2
  c.model.head_size = 32
  c.model.mlp_size = 512
  c.model.max_positions = 512

  c.corpus = ml_collections.ConfigDict()
  # Weight of each register in the statements that the model learns from.
  if role == 'coder':
    c.corpus.registers = ml_collections.ConfigDict(
      {'canonical': 0.91, 'paraphrased': 0.03, 'terse': 0.03, 'noisy': 0.03}
    )
    c.corpus.repair = 0.2  # share of draws with a wrong program to repair
    c.corpus.feedback = 0.0
    c.corpus.wrong_detail = 0.0
  else:
    c.corpus.registers = ml_collections.ConfigDict(
      {'canonical': 0.1, 'paraphrased': 0.3, 'terse': 0.3, 'noisy': 0.3}
    )
    c.corpus.repair = 0.0
    c.corpus.feedback = 0.55  # share of draws with feedback
    c.corpus.wrong_detail = 0.25  # of these, statements of a sibling problem
  c.corpus.attempts = 2 if smoke else 8  # wrong programs per problem

  c.training = ml_collections.ConfigDict()
  c.training.steps = 20 if smoke else _STEPS[role]
  c.training.rows = 40
  c.training.row_length = 192
  c.training.lr = 3e-3  # Adam: embeddings and norms
  c.training.muon_lr = 1e-2  # Muon: matrices
  c.training.warmup = 5 if smoke else 50
  c.training.weight_decay = 0.01
  c.training.prompt_weight = 0.1
  c.training.max_grad_norm = 1.0
  return c
