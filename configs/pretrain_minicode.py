"""Trains the embedded models from scratch on minicode's split `pretrain`.

  python -m experiments.pretrain_minicode \
    --config=configs/pretrain_minicode.py:coder --workdir=runs/coder

Arguments: `coder`, `rewriter`, and `coder_smoke`, `rewriter_smoke` (a minute).
"""

import dataclasses

import ml_collections

from promptrl_jax import settings
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.training.supervised.config import SupervisedConfig
from promptrl_jax.training.supervised.corpus import CorpusConfig

# Each full recipe must fit in 150 minutes on two cores.
_STEPS = {'coder': 700, 'rewriter': 170}
_CORPORA = {
  'coder': CorpusConfig(
    stories=0.03,
    synonyms=0.25,
    exact=0.4,
    first_reading=2.0,
    repair=0.25,
    forms=0.6,
  ),
  'rewriter': CorpusConfig(stories=0.8, feedback=0.5, forms=0.6),
}


@dataclasses.dataclass(frozen=True)
class Config:
  """Settings of the job; each section is documented at its class.

  Attributes:
    role: what is trained, `coder` or `rewriter`.
    seed: of parameters and draws.
    transformer: shape of the model; special tokens are those of the tokenizer
      that is trained first, with `vocab_size` tokens at most.
    checkpoint_every: steps.
  """

  role: str = 'coder'
  seed: int = 0
  transformer: TransformerConfig = TransformerConfig(
    vocab_size=1024,
    hidden_size=224,
    num_layers=4,
    num_heads=7,
    num_kv_heads=1,
    head_size=32,
    mlp_size=608,
    max_positions=512,
  )
  corpus: CorpusConfig = _CORPORA['coder']
  supervised: SupervisedConfig = SupervisedConfig(
    steps=_STEPS['coder'],
    rows=30,
    row_length=256,
    lr=3e-3,
    muon_lr=1e-2,
    warmup=50,
    weight_decay=0.01,
    prompt_weight=0.1,
    max_grad_norm=1.0,
  )
  checkpoint_every: int = 100


def get_config(arg: str = 'coder') -> ml_collections.ConfigDict:
  role, _, size = arg.partition('_')
  if role not in _STEPS or size not in ('', 'smoke'):
    raise ValueError(
      f'config argument {arg!r}: expected coder, rewriter, coder_smoke or '
      'rewriter_smoke'
    )
  c = settings.to_config_dict(Config(role=role, corpus=_CORPORA[role]))
  c.supervised.steps = _STEPS[role]
  if size:
    c.corpus.attempts = 60
    c.supervised.steps, c.supervised.warmup = 20, 5
  return c
