"""The supervised learner: next-token training on prompt-completion pairs.

The loss counts completion tokens, plus prompt tokens at a small weight. An
encoder-decoder takes the same rows: its encoder reads their prompts, its
decoder their completions. Rows are split over the mesh's `data` axis.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.encoder_decoder import EncoderDecoder
from promptrl_jax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  LanguageModelConfig,
)
from promptrl_jax.models.transformer import Transformer
from promptrl_jax.training import gradients
from promptrl_jax.training.gradients import LossSumFn, Metrics
from promptrl_jax.training.state import Params, Row, TrainState, initial_state
from promptrl_jax.training.supervised.config import SupervisedConfig
from promptrl_jax.training.supervised.packing import PackedRows


@dataclasses.dataclass(frozen=True)
class SupervisedLearner:
  """Jitted functions of one model and its settings.

  Attributes:
    init: `key -> state`, step 0 of a new causal model.
    start_from: `params -> state`, step 0 of a model that exists; copies.
    step_fn: `(state, rows) -> (state, metrics)`; donates the state.
    score_fn: `(params, rows) -> []`, the likelihood of completion tokens: the
      geometric mean over tokens, exp(-cross-entropy), in 0..1.
  """

  init: Callable[[jax.Array], TrainState]
  start_from: Callable[[Params], TrainState]
  step_fn: Callable[[TrainState, PackedRows], tuple[TrainState, Metrics]]
  score_fn: Callable[[Params, PackedRows], jax.Array]

  def update(
    self, state: TrainState, rows: PackedRows
  ) -> tuple[TrainState, Row]:
    """Takes one optimizer step; `state` is donated."""
    state, metrics = self.step_fn(state, rows)
    return state, {name: float(value) for name, value in metrics.items()}

  def score(self, state: TrainState, rows: PackedRows) -> float:
    """Returns the likelihood of completion tokens."""
    return float(self.score_fn(state.params, rows))


def make_learner(
  model: LanguageModelConfig, config: SupervisedConfig, mesh: Mesh
) -> SupervisedLearner:
  """Builds the jitted functions of one model.

  The axis `data` of the mesh splits rows; parameters are replicated.
  """
  optimizer, loss_fn = config.make_optimizer(), make_loss_fn(model)
  replicated, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P('data'))

  def start_from(params):
    # No step draws random numbers: the base key is the same for all runs.
    return initial_state(lambda _: params, optimizer, jax.random.key(0))

  def step(state, batch):
    grads, count, sums = gradients.accumulate_gradients(
      loss_fn, state.params, batch, micro_batches=1
    )
    params, opt_state = gradients.apply_gradients(
      optimizer, state.params, state.opt_state, grads, count
    )
    metrics = {
      'train/loss': sums['loss'] / jnp.maximum(count, 1),
      'train/completion_loss': _completion_loss(sums),
      'train/grad_norm': optax.tree.norm(grads),
    }
    state = state.replace(
      params=params, opt_state=opt_state, step=state.step + 1
    )
    return state, metrics

  def score(params, batch):
    _, (_, sums) = loss_fn(params, batch)
    return jnp.exp(-_completion_loss(sums))

  place = jax.jit(start_from, out_shardings=replicated)
  new = lambda key: start_from(_new_params(model, key))
  return SupervisedLearner(
    init=jax.jit(new, out_shardings=replicated),
    start_from=lambda params: place(jax.device_put(params, replicated)),
    step_fn=jax.jit(
      step,
      in_shardings=(replicated, rows),
      out_shardings=(replicated, replicated),
      donate_argnums=0,
    ),
    score_fn=jax.jit(
      score, in_shardings=(replicated, rows), out_shardings=replicated
    ),
  )


def _new_params(model: LanguageModelConfig, key: jax.Array) -> Params:
  if not isinstance(model, TransformerConfig):
    raise ValueError(
      f'a new {model.family} model: only causal models are trained from scratch'
    )
  dummy = jnp.zeros((1, 2), jnp.int32)
  return Transformer(model).init(key, dummy, dummy, jnp.ones((1, 2, 2), bool))


def make_loss_fn(model: LanguageModelConfig) -> LossSumFn:
  """Returns the weighted cross-entropy as a sum over the tokens of rows.

  Its metric sums are the loss, the cross-entropy of completion tokens alone
  (`completion_loss`) and their number (`completions`).
  """

  def loss_fn(params, batch):
    completion, weights = batch.replies[:, 1:], batch.weights[:, 1:]
    if isinstance(model, EncoderDecoderConfig):
      logits = _decoded(model, params, batch)
      weights = weights * completion
    else:
      logits = _continued(model, params, batch)
    losses = optax.softmax_cross_entropy_with_integer_labels(
      logits, batch.tokens[:, 1:]
    )
    loss = jnp.sum(losses * weights)
    sums = {
      'loss': loss,
      'completion_loss': jnp.sum(losses * completion),
      'completions': jnp.sum(completion).astype(jnp.float32),
    }
    return loss, (jnp.sum(weights), sums)

  return loss_fn


def _completion_loss(sums: Metrics) -> jax.Array:
  return sums['completion_loss'] / jnp.maximum(sums['completions'], 1)


def _continued(
  config: TransformerConfig, params: Any, batch: PackedRows
) -> Any:
  """Returns a causal model's logits [R, T - 1, V] from the second token on."""
  model = Transformer(config)
  causal = jnp.tril(jnp.ones((batch.tokens.shape[1],) * 2, bool))
  mask = causal & _same_segment(batch)
  hidden, _ = model.apply(params, batch.tokens, batch.positions, mask)
  return model.apply(params, hidden[:, :-1], method=Transformer.logits)


def _decoded(
  config: EncoderDecoderConfig, params: Any, batch: PackedRows
) -> Any:
  """Returns those of an encoder-decoder; the logits of prompts mean nothing."""
  model, replies = EncoderDecoder(config), batch.replies
  same = _same_segment(batch)
  prompts = same & (~replies & (batch.segments > 0))[:, None, :]
  encoded = model.apply(
    params, batch.tokens, prompts, method=EncoderDecoder.encode
  )
  inputs = jnp.where(
    jnp.roll(replies, 1, axis=1),
    jnp.roll(batch.tokens, 1, axis=1),
    config.decoder_start_token_id,
  )
  hidden: Any = model.apply(
    params,
    encoded,
    prompts,
    inputs,
    same & replies[:, None, :],
    method=EncoderDecoder.decode,
  )
  return model.apply(params, hidden[:, 1:], method=EncoderDecoder.logits)


def _same_segment(batch: PackedRows) -> jax.Array:
  return batch.segments[:, :, None] == batch.segments[:, None, :]
