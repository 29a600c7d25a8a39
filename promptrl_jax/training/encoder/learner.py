"""The learner of the table of `models/sentence_encoder.py`.

draw_batch: pairs -> rows and weights -> update: sums of rows, contrastive loss
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Hashable, Sequence

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.models.encoder import l2_normalize
from promptrl_jax.models.sentence_encoder import TableConfig, features
from promptrl_jax.rl.contrastive import info_nce
from promptrl_jax.training import gradients
from promptrl_jax.training.encoder import pairs
from promptrl_jax.training.encoder.config import EncoderTrainConfig
from promptrl_jax.training.gradients import Metrics
from promptrl_jax.training.state import Params, Row, TrainState, initial_state

Array = jax.Array | np.ndarray


@flax.struct.dataclass
class PairBatch:
  """Pairs as rows of the table, padded with weight 0.

  Attributes:
    rows: `[B, 2, F]` int32.
    weights: `[B, 2, F]` float32.
    meanings: `[B]` int32, equal for pairs of the same meaning.
  """

  rows: Array
  weights: Array
  meanings: Array


@dataclasses.dataclass(frozen=True)
class EncoderLearner:
  """Jitted functions of one table and its settings.

  Attributes:
    init: `key -> state`, step 0.
    step_fn: `(state, batch) -> (state, metrics)`; donates the state.
  """

  init: Callable[[jax.Array], TrainState]
  step_fn: Callable[[TrainState, PairBatch], tuple[TrainState, Metrics]]

  def update(
    self, state: TrainState, batch: PairBatch
  ) -> tuple[TrainState, Row]:
    """Takes one optimizer step; `state` is donated."""
    state, metrics = self.step_fn(state, batch)
    return state, {name: float(value) for name, value in metrics.items()}


def make_learner(
  table: TableConfig, config: EncoderTrainConfig
) -> EncoderLearner:
  """Builds the jitted functions."""
  optimizer = config.make_optimizer()

  def init(key):
    return initial_state(lambda k: _new_params(table, k), optimizer, key)

  def loss_fn(params, batch):
    vectors = encode(params, batch.rows, batch.weights)
    loss, sums = info_nce(
      vectors[:, 0],
      vectors[:, 1],
      batch.meanings,
      temperature=config.temperature,
    )
    return loss, (jnp.float32(len(vectors)), {'loss': loss, **sums})

  def step(state, batch):
    grads, count, sums = gradients.accumulate_gradients(
      loss_fn, state.params, batch, micro_batches=1
    )
    params, opt_state = gradients.apply_gradients(
      optimizer, state.params, state.opt_state, grads, count
    )
    metrics = {f'train/{name}': value / count for name, value in sums.items()}
    state = state.replace(
      params=params, opt_state=opt_state, step=state.step + 1
    )
    return state, metrics

  return EncoderLearner(jax.jit(init), jax.jit(step, donate_argnums=0))


def _new_params(config: TableConfig, key: jax.Array) -> Params:
  """Random directions of unit length: texts that share words are near."""
  table = jax.random.normal(key, (config.rows, config.size))
  return {
    'directions': table * config.size**-0.5,
    # How much a feature counts; Adam changes the factor faster than a row.
    'log_lengths': jnp.zeros((config.rows,)),
  }


def encode(params: Params, rows: Array, weights: Array) -> jax.Array:
  """Unit vectors `[..., E]` of rows and weights `[..., F]`."""
  weights = weights * jnp.exp(params['log_lengths'][rows])
  summed = jnp.einsum('...f,...fe->...e', weights, params['directions'][rows])
  return l2_normalize(summed)


def to_table(params: Params) -> np.ndarray:
  """Returns the table [rows, E] that `sentence_encoder` sums rows of."""
  lengths = jnp.exp(params['log_lengths'])[:, None]
  return np.asarray(params['directions'] * lengths)


def draw_batch(
  config: EncoderTrainConfig, table: TableConfig, rng: random.Random
) -> PairBatch:
  """Draws the pairs of one step."""
  shares = dataclasses.asdict(config.shares)
  focus = pairs.draw_focus(rng, config.focus)
  drawn = [
    pairs.DRAWS[name](focus, rng)
    for name in rng.choices(list(shares), list(shares.values()), k=config.pairs)
  ]
  numbers: dict[Hashable, int] = {}
  meanings = [numbers.setdefault(p.meaning, len(numbers)) for p in drawn]
  texts = [text for pair in drawn for text in (pair.first, pair.second)]
  rows, weights = pad_features(texts, table, config.features)
  shape = (config.pairs, 2, config.features)
  return PairBatch(
    rows.reshape(shape), weights.reshape(shape), np.array(meanings, np.int32)
  )


def pad_features(
  texts: Sequence[str], table: TableConfig, size: int
) -> tuple[np.ndarray, np.ndarray]:
  """Rows int32 [n, size] and weights float32 [n, size] of texts."""
  rows = np.zeros((len(texts), size), np.int32)
  weights = np.zeros((len(texts), size), np.float32)
  for i, text in enumerate(texts):
    of_text, weighed = features(text, table)
    count = min(len(of_text), size)
    rows[i, :count], weights[i, :count] = of_text[:count], weighed[:count]
  return rows, weights
