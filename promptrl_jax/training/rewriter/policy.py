"""A language model as a policy over packed rows: log-probs, entropies, values.

Parameters are a tree of collections: `params` of the model, `adapters` of rank
r if it has some (`models.lora`), `value` of a value head if it has one. What of
it is trained is a tree of its own (`split`), so that gradients, optimizer and
checkpoints know nothing of the rest.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.models import lora, pretrained
from promptrl_jax.models.encoder_decoder_config import LanguageModelConfig
from promptrl_jax.models.heads import ValueHead
from promptrl_jax.models.token_logps import Projected, token_logps
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.parallel import sharding
from promptrl_jax.training.rewriter import states as lm_states
from promptrl_jax.training.rewriter.packing import Packed, of_sequences

Params = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class PolicyConfig:
  """The language model and how it is read.

  Attributes:
    model: its shape; `remat` trades memory for time.
    lora: of the adapters; None: it has none.
    temperature: that completions are sampled at: log-probs are those of the
      distribution that they are from.
    logits_chunk: see `token_logps`.
    value_trunk: whether the value loss changes the model below its head.
    mesh: whose `data` and `fsdp` axes split rows; if it splits parameters, too,
      activations are pinned to it.
  """

  model: LanguageModelConfig
  lora: lora.LoraConfig | None = None
  temperature: float = 1.0
  logits_chunk: int | None = None
  value_trunk: bool = False
  mesh: Mesh | None = None


@struct.dataclass
class TokenOutputs:
  """What the policy says about the tokens of completions, float32 [R, Q, C].

  Attributes:
    logps: of each token, in nats.
    entropies: of the distribution that it is from.
    values: expected return before it; None without a value head.
    divergences: of that distribution from the one of a reference, over the
      whole vocabulary; None without a reference.
    hidden: [R, S * C, D], what `head` projects for each token of the lanes;
      None unless it was asked for.
  """

  logps: jax.Array
  entropies: jax.Array
  values: jax.Array | None
  divergences: jax.Array | None
  hidden: jax.Array | None


def split(params: Params, train: str) -> tuple[Params, Params]:
  """What is trained and what is not.

  Args:
    params: all collections.
    train: `full` (the model) or `lora` (its adapters); a value head always is.

  Raises:
    ValueError: there is nothing of the kind in `params`.
  """
  kinds = {'full': 'params', 'lora': 'adapters'}
  if kinds.get(train) not in params:
    raise ValueError(
      f'train={train!r}: expected full, or lora with adapters attached; the '
      f'parameters have {", ".join(sorted(params))}'
    )
  chosen = (kinds[train], 'value')
  trained = {name: tree for name, tree in params.items() if name in chosen}
  fixed = {name: tree for name, tree in params.items() if name not in chosen}
  return trained, fixed


def placement(params: Params, family: str, mesh: Mesh) -> Params:
  """A sharding for each leaf, by the rule table of the model's family.

  Args:
    params: collections, or some of them; shapes are enough.
    family: of the model.
    mesh: on one with the axis `data` alone, every device has all of it.

  Raises:
    ValueError: the axes of the mesh do not divide a leaf.
  """
  whole = NamedSharding(mesh, P())
  if not mesh_lib.splits_parameters(mesh):
    return jax.tree.map(lambda _: whole, params)
  rules = pretrained.family(family).partition
  # Rules name leaves from below their collection; the head is small.
  below = lambda tree: sharding.shardings({'params': tree}, rules, mesh)
  return {
    name: jax.tree.map(lambda _: whole, tree)
    if name == 'value'
    else below(tree)['params']
    for name, tree in params.items()
  }


def without_adapters(params: Params) -> Params:
  """The model that adapters started from: the reference (arXiv 2106.09685)."""
  return {name: tree for name, tree in params.items() if name == 'params'}


def cast(params: Params, dtype: Any) -> Params:
  """`params` with the floating-point leaves of the model in `dtype`.

  Adapters and value heads stay as they are: they are small.
  """
  if 'params' not in params:
    return params
  to = lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x
  return {**params, 'params': jax.tree.map(to, params['params'])}


def variables(config: PolicyConfig, params: Params) -> Params:
  """What the model and its samplers run with: adapters are attached."""
  model = {'params': params['params']}
  if config.lora is None or 'adapters' not in params:
    return model
  return lora.attach(config.lora, model, params['adapters'])


def head(config: PolicyConfig, params: Params) -> tuple[jax.Array, int]:
  """The projection on the vocabulary, and its axis that is hidden."""
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
    config, params: the policy.
    rows: R of them.
    reference: of a model to compare it with, for the same rows.
    keep_hidden: to compare others with this one.
  """
  states = lm_states.states(
    config.model, _model_mesh(config), variables(config, params), rows
  )
  projected = config.model.output_scale * states
  found = token_logps(
    Projected(projected, *head(config, params)),
    rows.tokens[:, -states.shape[1] :],
    config.temperature,
    chunk=config.logits_chunk,
    reference=reference,
  )
  values = None
  if 'value' in params:
    below = states if config.value_trunk else jax.lax.stop_gradient(states)
    values = ValueHead().apply({'params': params['value']}, below)
  by_completion = lambda x: of_sequences(rows, x)
  found, values = jax.tree.map(by_completion, (found, values))
  return TokenOutputs(
    logps=found.logps,
    entropies=found.entropies,
    values=values,
    divergences=found.divergences,
    hidden=projected if keep_hidden else None,
  )


def _model_mesh(config: PolicyConfig) -> Mesh | None:
  """The mesh, if it splits parameters."""
  splits = config.mesh is not None and mesh_lib.splits_parameters(config.mesh)
  return config.mesh if splits else None
