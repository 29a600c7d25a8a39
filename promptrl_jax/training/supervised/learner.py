"""Next-token training of a language model on prompt-completion pairs.

Pairs are packed: several lie in one row of fixed length, each attends to itself
alone, and the loss counts completion tokens, plus prompt tokens at a small
weight. An encoder-decoder has the same rows: its encoder reads their prompts,
its decoder their completions. Rows are split over the mesh's `data` axis.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.encoder_decoder import EncoderDecoder
from promptrl_jax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  LanguageModelConfig,
)
from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.models.transformer import Transformer
from promptrl_jax.training.supervised.corpus import Pair

Encoded = tuple[list[int], int]  # token ids, how many of them are prompt


@dataclasses.dataclass(frozen=True)
class SupervisedConfig:
  """Settings of the training.

  Attributes:
    steps: optimizer steps.
    rows: packed rows per step.
    row_length: tokens per row.
    lr: peak learning rate of Adam, for embeddings and norms.
    muon_lr: peak learning rate of Muon, for matrices.
    warmup: steps of linear warm-up; then linear decay to zero.
    weight_decay: decoupled weight decay.
    prompt_weight: loss weight of prompt tokens; completions have 1. To an
      encoder-decoder prompts are given, so that they have none.
    max_grad_norm: clip by global norm.
  """

  steps: int
  rows: int
  row_length: int
  lr: float
  muon_lr: float
  warmup: int
  weight_decay: float
  prompt_weight: float
  max_grad_norm: float


@struct.dataclass
class PackedRows:
  """A batch of packed rows."""

  tokens: np.ndarray  # int32 [R, T]
  segments: np.ndarray  # int32 [R, T], 0 is padding
  positions: np.ndarray  # int32 [R, T]
  replies: np.ndarray  # bool [R, T], tokens of completions
  weights: np.ndarray  # float32 [R, T], loss weight of predicting this token


@struct.dataclass
class SupervisedState:
  params: Any
  opt_state: Any
  step: jax.Array


def pack(
  pairs: Iterator[Pair], tokenizer: Tokenizer, config: SupervisedConfig
) -> PackedRows:
  """`pack_encoded` of pairs from an endless iterator."""
  return pack_encoded(_encoded(pairs, tokenizer), tokenizer.pad_id, config)


def pack_encoded(
  encoded: Iterator[Encoded], pad_id: int, config: SupervisedConfig
) -> PackedRows:
  """Packs sequences into one batch, best fit first.

  One that is longer than a row is left out; the batch ends at the first one for
  which no row has room, or when there are no more.

  Args:
    encoded: token ids of prompt and completion, and how many are prompt.
    pad_id: fills what is left of a row.
    config: shape of the batch, and what a prompt token weighs.
  """
  shape = (config.rows, config.row_length)
  batch = PackedRows(
    tokens=np.full(shape, pad_id, np.int32),
    segments=np.zeros(shape, np.int32),
    positions=np.zeros(shape, np.int32),
    replies=np.zeros(shape, bool),
    weights=np.zeros(shape, np.float32),
  )
  used = np.zeros(config.rows, int)
  count = np.zeros(config.rows, int)
  for ids, prompt_size in encoded:
    if len(ids) > config.row_length:
      continue
    fits = np.flatnonzero(used + len(ids) <= config.row_length)
    if not len(fits):
      break
    row = fits[np.argmax(used[fits])]
    where = slice(used[row], used[row] + len(ids))
    count[row] += 1
    batch.tokens[row, where] = ids
    batch.segments[row, where] = count[row]
    batch.positions[row, where] = np.arange(len(ids))
    is_reply = np.arange(len(ids)) >= prompt_size
    weights = np.where(is_reply, 1.0, config.prompt_weight)
    weights[0] = 0.0
    batch.replies[row, where] = is_reply
    batch.weights[row, where] = weights
    used[row] += len(ids)
  return batch


def _encoded(
  pairs: Iterator[Pair], tokenizer: Tokenizer, chunk: int = 32
) -> Iterator[Encoded]:
  """Token ids of each pair and how many of them are prompt."""
  while drawn := list(itertools.islice(pairs, chunk)):
    prompts = tokenizer.encode([prompt for prompt, _ in drawn])
    replies = tokenizer.encode([reply for _, reply in drawn])
    for prompt, reply in zip(prompts, replies, strict=True):
      given = [*tokenizer.start, *prompt, *tokenizer.end]
      yield [*given, *reply, tokenizer.eos_id], len(given)


def loss_fn(
  config: LanguageModelConfig, params: Any, batch: PackedRows
) -> tuple[jax.Array, jax.Array]:
  """Weighted mean cross-entropy, and that of completion tokens alone."""
  completion, weights = batch.replies[:, 1:], batch.weights[:, 1:]
  if isinstance(config, EncoderDecoderConfig):
    logits = _decoded(config, params, batch)
    weights = weights * completion
  else:
    logits = _continued(config, params, batch)
  losses = optax.softmax_cross_entropy_with_integer_labels(
    logits, batch.tokens[:, 1:]
  )
  total = jnp.sum(losses * weights) / jnp.maximum(jnp.sum(weights), 1.0)
  reply = jnp.sum(losses * completion) / jnp.maximum(jnp.sum(completion), 1)
  return total, reply


def _continued(
  config: TransformerConfig, params: Any, batch: PackedRows
) -> Any:
  """Logits [R, T - 1, V] of all tokens but the first, of a causal model."""
  model = Transformer(config)
  causal = jnp.tril(jnp.ones((batch.tokens.shape[1],) * 2, bool))
  mask = causal & _same_segment(batch)
  hidden, _ = model.apply(params, batch.tokens, batch.positions, mask)
  return model.apply(params, hidden[:, :-1], method=Transformer.logits)


def _decoded(
  config: EncoderDecoderConfig, params: Any, batch: PackedRows
) -> Any:
  """The same of an encoder-decoder; those of prompts mean nothing."""
  model, replies = EncoderDecoder(config), batch.replies
  same = _same_segment(batch)
  prompts = same & (~replies & (batch.segments > 0))[:, None, :]
  encoded = model.apply(
    params, batch.tokens, prompts, method=EncoderDecoder.encode
  )
  before = jnp.where(
    jnp.roll(replies, 1, axis=1),
    jnp.roll(batch.tokens, 1, axis=1),
    config.decoder_start_token_id,
  )
  hidden: Any = model.apply(
    params, encoded, prompts, before, same & replies[:, None, :],
    method=EncoderDecoder.decode,
  )  # fmt: skip
  return model.apply(params, hidden[:, 1:], method=EncoderDecoder.logits)


def _same_segment(batch: PackedRows) -> jax.Array:
  return batch.segments[:, :, None] == batch.segments[:, None, :]


def make_optimizer(config: SupervisedConfig) -> optax.GradientTransformation:
  """Muon (Jordan et al., 2024) for matrices, AdamW for the rest."""

  def schedule(peak: float) -> optax.Schedule:
    rise = optax.linear_schedule(0.0, peak, config.warmup)
    fall = optax.linear_schedule(peak, 0.0, config.steps - config.warmup)
    return optax.join_schedules([rise, fall], [config.warmup])

  return optax.chain(
    optax.clip_by_global_norm(config.max_grad_norm),
    optax.contrib.muon(
      learning_rate=schedule(config.muon_lr),
      adam_learning_rate=schedule(config.lr),
      weight_decay=config.weight_decay,
      adam_weight_decay=config.weight_decay,
      muon_weight_dimension_numbers=_matrix_dimensions,
      consistent_rms=0.2,
    ),
  )


def _matrix_dimensions(params: Any) -> Any:
  """Which axes of each stacked parameter make up its matrix, for Muon."""
  numbers = optax.contrib.MuonDimensionNumbers
  shapes = {
    'qkv': numbers(reduction_axis=1, output_axis=(2, 3, 4)),
    'out': numbers(reduction_axis=1, output_axis=2),
    'gate_up': numbers(reduction_axis=1, output_axis=(2, 3)),
    'down': numbers(reduction_axis=1, output_axis=2),
    'cross_query': numbers(reduction_axis=1, output_axis=(2, 3)),
    'cross_kv': numbers(reduction_axis=1, output_axis=(2, 3, 4)),
    'cross_out': numbers(reduction_axis=1, output_axis=2),
  }
  return jax.tree_util.tree_map_with_path(
    lambda path, _: shapes.get(path[-1].key), params
  )


def make_init(
  model_config: TransformerConfig, config: SupervisedConfig, mesh: Mesh
) -> Callable[[jax.Array], SupervisedState]:
  """Returns the jitted `init(key)`, the state of step 0 of a new model."""
  optimizer = make_optimizer(config)

  def init(key: jax.Array) -> SupervisedState:
    dummy = jnp.zeros((1, 2), jnp.int32)
    params = Transformer(model_config).init(
      key, dummy, dummy, jnp.ones((1, 2, 2), bool)
    )
    return SupervisedState(params, optimizer.init(params), jnp.int32(0))

  return jax.jit(init, out_shardings=NamedSharding(mesh, P()))


def make_train_step(
  model_config: LanguageModelConfig, config: SupervisedConfig, mesh: Mesh
) -> Callable[[SupervisedState, PackedRows], tuple[SupervisedState, dict]]:
  """Returns the jitted `step(state, batch)`, which donates the state."""
  optimizer = make_optimizer(config)
  whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P('data'))

  def step(state: SupervisedState, batch: PackedRows):
    grad_fn = jax.value_and_grad(loss_fn, argnums=1, has_aux=True)
    (loss, reply), grads = grad_fn(model_config, state.params, batch)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    metrics = {
      'train/loss': loss,
      'train/completion_loss': reply,
      'train/grad_norm': optax.tree.norm(grads),
    }
    params = optax.apply_updates(state.params, updates)
    return SupervisedState(params, opt_state, state.step + 1), metrics

  return jax.jit(
    step,
    in_shardings=(whole, rows),
    out_shardings=(whole, whole),
    donate_argnums=0,
  )


def start_from(
  params: Any, config: SupervisedConfig, mesh: Mesh
) -> SupervisedState:
  """The state of step 0 with the parameters of a model that exists.

  The parameters are copied: a step donates its state.
  """
  whole = NamedSharding(mesh, P())
  make = jax.jit(
    lambda p: SupervisedState(p, make_optimizer(config).init(p), jnp.int32(0)),
    out_shardings=whole,
  )
  return make(jax.device_put(params, whole))


def make_score(
  model_config: LanguageModelConfig, mesh: Mesh
) -> Callable[[Any, PackedRows], jax.Array]:
  """Returns the jitted `score(params, batch)`: likelihood of completion tokens.

  It is the geometric mean over tokens, exp(-cross-entropy), in 0..1.
  """
  whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P('data'))
  return jax.jit(
    lambda params, batch: jnp.exp(-loss_fn(model_config, params, batch)[1]),
    in_shardings=(whole, rows),
    out_shardings=whole,
  )
