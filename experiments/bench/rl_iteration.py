"""Times one iteration of GRPO or PPO on random weights, part by part.

It is an iteration of the rewriter's learner as a run builds it. The rollout
includes the cast of the trained parameters and their layout for decoding, which
every update requires. The score packs each prompt and its completions into a
row and computes log-probs of the reference, and for PPO also values. The update
is one step of AdamW.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tokenizers

from experiments.bench.models import random_params
from experiments.bench.peers import iterations
from experiments.bench.peers.iterations import Clock, Work
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.training.optim import OptimizerConfig
from promptrl_jax.training.rewriter import build
from promptrl_jax.training.rewriter.advantages import AdvantageConfig
from promptrl_jax.training.rewriter.config import LossConfig, TrainConfig
from promptrl_jax.training.rewriter.packing import PackingConfig
from promptrl_jax.training.rewriter.reference import ReferenceConfig
from promptrl_jax.training.rewriter.rollout import RolloutConfig


class Way(NamedTuple):
  """Configuration of the learner."""

  devices: int  # devices over which rows are split
  micro_batches: int


def ways(devices: int) -> list[Way]:
  """Returns ways with one device of all cores, and with rows over devices."""
  split = [Way(devices, 1)] if devices > 1 else []
  return [Way(1, 1), Way(1, 2), *split]


def words(vocab_size: int) -> Tokenizer:
  """Returns the tokenizer of `iterations.texts`, whose words are token ids.

  No token ends a text, so that every completion has its full length.
  """
  model = tokenizers.models.WordLevel(
    {str(i): i for i in range(vocab_size)}, unk_token='0'
  )
  backend = tokenizers.Tokenizer(model)
  backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
  return Tokenizer(backend, pad_id=0, bos_id=None, eos_id=0)


def train_config(
  asked: Work, algorithm: str, dtype: str, way: Way
) -> TrainConfig:
  """Returns the learner's settings that do the work of the peers.

  GRPO has the KL in the loss, PPO in the rewards of tokens.

  Args:
    asked: the work that this project and the peers are timed on.
    algorithm: `grpo` or `ppo`.
    dtype: dtype of matrix products; activations and trained parameters are
      float32, the fastest on a CPU.
    way: configuration of the update.
  """
  is_ppo = algorithm == 'ppo'
  return TrainConfig(
    packing=PackingConfig(asked.prompt, asked.group, asked.new, asked.group),
    rows_per_piece=-(-asked.prompts // (way.devices * way.micro_batches)),
    # The fastest on CPU devices for batches of eight rows or more.
    dtype='bfloat16',
    unroll=True,
    rollout=RolloutConfig(
      asked.prompts, asked.group, asked.new, temperature=1, drop_uniform=False
    ),
    advantage=AdvantageConfig(kind='gae' if is_ppo else 'grpo'),
    loss=LossConfig(
      aggregation='token_mean' if is_ppo else 'sequence_mean',
      compute_dtype=dtype,
    ),
    reference=ReferenceConfig(kl_coef=asked.beta),
    optimizer=OptimizerConfig(lr=asked.learning_rate, clip='global'),
  )


def run(
  asked: Work, config: TransformerConfig, algorithm: str, dtype: str, way: Way
) -> dict[str, Any]:
  """Times iterations and returns the line of `Clock.line`.

  Args:
    asked: the work that this project and the peers are timed on.
    config: the model.
    algorithm: `grpo` or `ppo`.
    dtype: dtype of matrix products.
    way: configuration of the learner.
  """
  learner = build.make_learner(
    build.Start(
      'random',
      config,
      random_params(config, 'float32'),
      words(config.vocab_size),
    ),
    train_config(asked, algorithm, dtype, way),
    mesh_lib.make_data_mesh(way.devices),
    seed=0,
    prompt_lengths=(asked.prompt,),
    slots=asked.sequences,
  )
  state = learner.initial
  texts = iterations.texts(asked, asked.prompts)
  prompts = [(('user', text),) for text in texts]
  clock = Clock(asked, rest='score')
  with clock.running():
    for number in range(10**9):
      clock.enter('rollout')
      rollout = learner.sample(state, prompts, seed=number)
      clock.enter('score')
      rewards = iterations.even(asked, rollout.completions)
      state, row = learner.update(state, rollout, rewards)
      clock.charge('update', row['time/update'])
      clock.iteration_ends()
  models = 'policy+reference' + ('+value head' if algorithm == 'ppo' else '')
  return clock.line(
    'promptrl_jax', algorithm, dtype=dtype, **way._asdict(), models=models
  )
