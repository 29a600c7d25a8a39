"""A language model as a policy over packed rows: log-probs, entropies, values.

Parameters are a tree of collections: `params` of the model, `adapters` of low
rank (`models.lora`) and `value` of a value head where there is one. The trained
part is a tree of its own (`split`), so that gradients, optimizer and
checkpoints know nothing of the rest.

A causal model reads a row as it lies. An encoder-decoder reads the block of
prompts by its encoder and each lane by its decoder, which begins every
completion with a token of its own.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.models import attention, lora, pretrained
from promptrl_jax.models.attention import SharedPrefix
from promptrl_jax.models.encoder_decoder import EncoderDecoder
from promptrl_jax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  LanguageModelConfig,
)
from promptrl_jax.models.heads import ValueHead
from promptrl_jax.models.token_logps import Projected, token_logps
from promptrl_jax.models.transformer import Transformer
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.parallel import sharding
from promptrl_jax.training.rewriter.packing import Packed, of_sequences

Params = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class PolicyConfig:
  """The language model and how its outputs are computed.

  Attributes:
    model: shape of the model; `remat` trades memory for time.
    lora: shape of the adapters; None without adapters.
    temperature: sampling temperature of the completions: log-probs are those of
      the distribution that was sampled from.
    logits_chunk: see `token_logps`.
    value_trunk: whether the value loss changes the model below its head.
    mesh: its `data` and `fsdp` axes split rows; if it splits parameters too,
      activations are pinned to it. None: one device.
  """

  model: LanguageModelConfig
  lora: lora.LoraConfig | None = None
  temperature: float = 1.0
  logits_chunk: int | None = None
  value_trunk: bool = False
  mesh: Mesh | None = None


@struct.dataclass
class TokenOutputs:
  """Outputs for the tokens of completions, float32 [R, Q, C] each.

  Attributes:
    logps: log-probability of each token, in nats.
    entropies: entropy of the distribution that the token was drawn from.
    values: expected return before the token; None without a value head.
    divergences: KL of that distribution from the reference's, over the whole
      vocabulary; None without a reference.
    hidden: [R, S * C, D], the states that `head` projects on the vocabulary,
      for each token of the lanes; None unless they were asked for.
  """

  logps: jax.Array
  entropies: jax.Array
  values: jax.Array | None
  divergences: jax.Array | None
  hidden: jax.Array | None


def split(params: Params, train: str) -> tuple[Params, Params]:
  """Returns the collections that are trained and those that are not.

  `train` is `full` (the model) or `lora` (its adapters); a value head is always
  trained.

  Raises:
    ValueError: `params` has no such collection.
  """
  kinds = {'full': 'params', 'lora': 'adapters'}
  if kinds.get(train) not in params:
    raise ValueError(
      f'parameters={train!r}: expected full, or lora with adapters '
      f'attached; there are {", ".join(sorted(params))}'
    )
  chosen = (kinds[train], 'value')
  trained = {name: tree for name, tree in params.items() if name in chosen}
  fixed = {name: tree for name, tree in params.items() if name not in chosen}
  return trained, fixed


def param_shardings(params: Params, family: str, mesh: Mesh) -> Params:
  """Returns a sharding for each leaf, by the rules of the model's family.

  A mesh that has only the axis `data` replicates all leaves. Shapes are enough.

  Raises:
    ValueError: the axes of the mesh do not divide a leaf.
  """
  replicated = NamedSharding(mesh, P())
  if not mesh_lib.splits_parameters(mesh):
    return jax.tree.map(lambda _: replicated, params)
  rules = pretrained.family(family).partition
  # Rules name leaves below `params`; a value head is small.
  by_rules = lambda tree: sharding.shardings({'params': tree}, rules, mesh)
  return {
    name: jax.tree.map(lambda _: replicated, tree)
    if name == 'value'
    else by_rules(tree)['params']
    for name, tree in params.items()
  }


def without_adapters(params: Params) -> Params:
  """Returns the model without its adapters (arXiv 2106.09685)."""
  return {name: tree for name, tree in params.items() if name == 'params'}


def cast(params: Params, dtype: Any) -> Params:
  """Casts the floating-point leaves of the model; the others are small."""
  if 'params' not in params:
    return params
  to = lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x
  return {**params, 'params': jax.tree.map(to, params['params'])}


def variables(config: PolicyConfig, params: Params) -> Params:
  """Returns the model's variables, with adapters attached."""
  model = {'params': params['params']}
  if config.lora is None or 'adapters' not in params:
    return model
  return lora.attach(config.lora, model, params['adapters'])


def head(config: PolicyConfig, params: Params) -> tuple[jax.Array, int]:
  """Returns the projection on the vocabulary, and its hidden axis."""
  tied = config.model.tie_embeddings
  kernel = params['params']['embedding' if tied else 'lm_head']
  names = ['tensor'] if tied else [None, 'tensor']
  return sharding.pin(kernel, _model_mesh(config), *names), int(tied)


def outputs(
  config: PolicyConfig,
  params: Params,
  rows: Packed,
  reference: Projected | None = None,
  keep_hidden: bool = False,
) -> TokenOutputs:
  """Runs the policy over packed rows [R, ...].

  Args:
    reference: hidden states of the reference for the same rows, to compute the
      KL over the whole vocabulary.
    keep_hidden: also return hidden states, which another policy needs if this
      model is its reference.
  """
  states = hidden_states(
    config.model, _model_mesh(config), variables(config, params), rows
  )
  projected = config.model.output_scale * states
  tokens = token_logps(
    Projected(projected, *head(config, params)),
    jnp.asarray(rows.tokens[:, -states.shape[1] :]),
    config.temperature,
    chunk=config.logits_chunk,
    reference=reference,
  )
  values = None
  if 'value' in params:
    trunk = states if config.value_trunk else jax.lax.stop_gradient(states)
    values = ValueHead().apply({'params': params['value']}, trunk)
  by_completion = lambda x: of_sequences(rows, x)
  tokens, values = jax.tree.map(by_completion, (tokens, values))
  return TokenOutputs(
    logps=tokens.logps,
    entropies=tokens.entropies,
    values=values,
    divergences=tokens.divergences,
    hidden=projected if keep_hidden else None,
  )


def hidden_states(
  model: LanguageModelConfig, mesh: Mesh | None, variables: Any, rows: Packed
) -> jax.Array:
  """Returns the state that predicts each token of the lanes, [R, S * C, D].

  Args:
    mesh: the mesh if it splits parameters, else None.
  """
  if isinstance(model, EncoderDecoderConfig):
    return _decoder_states(model, variables, rows)
  mask = attention.by_layer(model, functools.partial(attention_mask, rows))
  states, _ = Transformer(model, mesh).apply(
    variables, rows.tokens, rows.positions, mask
  )
  return jnp.take_along_axis(
    states, jnp.asarray(rows.predictors)[..., None], axis=1
  )


def attention_mask(
  rows: Packed,
  sliding_window: int | None = None,
  bidirectional_prompts: bool = False,
) -> SharedPrefix:
  """Returns which tokens may attend to which.

  Args:
    sliding_window: how many tokens back a token sees, itself included.
    bidirectional_prompts: whether the tokens of a prompt see later ones.
  """
  lanes = rows.completions
  size = rows.tokens.shape[1] - lanes.shape[1] * lanes.shape[2]
  prompts, followed = rows.segments[:, :size], rows.segments[:, size:]
  prompt_at, lane_at = rows.positions[:, :size], rows.positions[:, size:]
  by_lane = lane_at.reshape(lanes.shape)

  def sees(query, key, query_at, key_at, ahead=False):
    same = (query[..., :, None] == key[..., None, :]) & (key > 0)[..., None, :]
    distance = query_at[..., :, None] - key_at[..., None, :]
    near = True if sliding_window is None else distance < sliding_window
    return same & (ahead | (distance >= 0)) & near

  return SharedPrefix(
    prompts=sees(prompts, prompts, prompt_at, prompt_at, bidirectional_prompts),
    prefix=sees(followed, prompts, lane_at, prompt_at),
    lanes=sees(lanes, lanes, by_lane, by_lane),
  )


def _decoder_states(
  model: EncoderDecoderConfig, variables: Any, rows: Packed
) -> jax.Array:
  """Returns the `hidden_states` of an encoder-decoder.

  Its position biases depend on how far apart two tokens lie, and the tokens of
  one text lie side by side.
  """
  mask = attention_mask(rows, bidirectional_prompts=True)
  r, lanes, width = rows.completions.shape
  size = mask.prompts.shape[1]
  module = EncoderDecoder(model)
  encoded: Any = module.apply(
    variables, rows.tokens[:, :size], mask.prompts, method=EncoderDecoder.encode
  )
  # The token before a completion's first one is the last of its prompt.
  predictors = jnp.asarray(rows.predictors)
  inputs = jnp.where(
    predictors < size,
    model.decoder_start_token_id,
    jnp.take_along_axis(jnp.asarray(rows.tokens), predictors, axis=1),
  )
  states: Any = module.apply(
    variables,
    encoded,
    mask.prefix,
    inputs.reshape(r * lanes, width),
    mask.lanes.reshape(r * lanes, width, width),
    method=EncoderDecoder.decode,
  )
  return states.reshape(r, lanes * width, -1)


def _model_mesh(config: PolicyConfig) -> Mesh | None:
  """Returns the mesh if it splits parameters, else None."""
  splits = config.mesh is not None and mesh_lib.splits_parameters(config.mesh)
  return config.mesh if splits else None
