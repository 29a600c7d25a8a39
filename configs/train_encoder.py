"""Trains the sentence encoder that is shipped, from scratch.

  python -m experiments.train_encoder --config=configs/train_encoder.py \
    --workdir=runs/encoder

Arguments: none, and `smoke` (a few seconds). All of it takes a minute and a
half of processor time.
"""

import dataclasses

import ml_collections

from configs.job import check_argument
from promptrl_jax import settings
from promptrl_jax.evaluation import retrieval
from promptrl_jax.models.sentence_encoder import TableConfig
from promptrl_jax.training.encoder.config import EncoderTrainConfig


@dataclasses.dataclass(frozen=True)
class CheckConfig:
  """The retrieval check at the end.

  Attributes:
    size: texts of each check.
    mbpp_path: `mbpp.jsonl`, to check texts that nobody generated; empty: not.
    rivals: other encoders, as `sentence_encoder.load` names them.
  """

  size: int = retrieval.SIZE
  mbpp_path: str = ''
  rivals: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Config:
  """Settings of the job; each section is documented at its class.

  Attributes:
    seed: of the table and of draws.
    checkpoint_every: steps.
  """

  seed: int = 0
  table: TableConfig = TableConfig()
  train: EncoderTrainConfig = EncoderTrainConfig()
  check: CheckConfig = CheckConfig()
  checkpoint_every: int = 200


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  check_argument(arg, ('', 'smoke'))
  c = settings.to_config_dict(Config())
  if arg == 'smoke':
    c.table.rows = 4096
    c.train.steps, c.train.pairs, c.train.features = 20, 32, 256
    c.check.size = 50
  return c
