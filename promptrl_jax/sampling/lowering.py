"""Compiles the programs of an engine from shapes alone, without parameters."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.models.encoder_decoder_config import LanguageModelConfig
from promptrl_jax.sampling import methods
from promptrl_jax.sampling.model import InputBatch, make_model
from promptrl_jax.sampling.packing import pack
from promptrl_jax.sampling.prepare import DecodeParams
from promptrl_jax.sampling.programs import SlotState, make_programs
from promptrl_jax.sampling.requests import EngineConfig


@dataclasses.dataclass(frozen=True)
class CompiledEngine:
  """The prefill of one batch of prompts and the decode of all slots.

  `slots` has the shapes and shardings of the state that `decode` updates.
  """

  prefill: Any
  decode: Any
  slots: SlotState


def compile_engine(
  config: LanguageModelConfig,
  method: methods.Sampling,
  params: DecodeParams,
  mesh: Mesh,
  shapes: EngineConfig,
) -> CompiledEngine:
  """Compiles what `make_engine` of the same arguments would run.

  `params` are shapes, from `prepare.abstract`.

  Raises:
    ValueError: the lengths exceed the context of the model.
  """
  model = make_model(config, shapes.prompt_limit, shapes.new_tokens)
  groups = mesh.shape['data']
  programs = make_programs(model, method, mesh)
  size = shapes.slots_per_group(groups)
  split = NamedSharding(mesh, P('data'))
  array = lambda dtype, *shape: jax.ShapeDtypeStruct(
    shape, dtype, sharding=split
  )
  blocks = model.blocks(shapes.prompt_limit)
  lower_empty: Any = programs.empty_fn
  slots = jax.tree.map(
    lambda s, where: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=where),
    jax.eval_shape(lambda: programs.empty_fn(blocks, size)),
    lower_empty.lower(blocks, size).compile().output_shardings,
  )
  lower_prefill: Any = programs.prefill_fn
  lower_decode: Any = programs.decode_fn
  prompts = groups * shapes.prefill_rows_per_group(groups)
  prefill = lower_prefill.lower(
    params,
    array(jnp.int32, prompts, shapes.prompt_limit),
    array(jnp.bool_, prompts, shapes.prompt_limit),
  )
  limits = np.zeros(groups, np.int32)
  packed = pack(InputBatch.free(groups * size), limits, limits)
  decode = lower_decode.lower(params, slots, array(jnp.int32, *packed.shape))
  return CompiledEngine(prefill.compile(), decode.compile(), slots)
