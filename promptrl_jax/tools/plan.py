"""What a model needs of each device, told without allocating any of it.

  python -m promptrl_jax.tools.plan --model=codellama_7b --mesh=tensor=8
  python -m promptrl_jax.tools.plan --model=path/to/folder --task=train

Parameters, optimizer and cache are counted from their shapes; the activations
are what the compiler reserves beside them. It compiles for simulated CPU
devices, on which attention is not fused, so a GPU needs less of the last.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
from absl import app, flags
from jax.sharding import Mesh

from promptrl_jax.models import presets, pretrained
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.parallel import sharding
from promptrl_jax.tools import programs
from promptrl_jax.tools.programs import Batch, LanguageModelConfig

_MODEL = flags.DEFINE_string(
  'model', None, 'A preset or a model folder.', required=True
)
_MESH = flags.DEFINE_string(
  'mesh', '', 'Devices by axis: data=2,fsdp=2,tensor=2. Default: one device.'
)
_TASK = flags.DEFINE_enum(
  'task', 'sample', ['sample', 'train'], 'What the devices are to do.'
)
_ROWS = flags.DEFINE_integer('rows', 8, 'Rows of a batch.', lower_bound=1)
_PROMPT = flags.DEFINE_integer('prompt', 512, 'Tokens of a prompt.')
_NEW = flags.DEFINE_integer('new_tokens', 512, 'Tokens of a completion.')
_DTYPE = flags.DEFINE_enum(
  'dtype', 'bfloat16', ['bfloat16', 'float32'], 'Of the parameters.'
)

_GIB = 2**30
# Name of what people have, devices, bytes of each.
_MACHINES = (
  ('1 x 24 GB', 1, 24e9),
  ('1 x 80 GB', 1, 80e9),
  ('8 x 80 GB', 8, 80e9),
)
# Of a device's memory; the rest is taken by the runtime and by fragments.
_USABLE = 0.92


@dataclasses.dataclass(frozen=True)
class Plan:
  """Bytes on the device that holds most.

  Attributes:
    params: parameters.
    optimizer: AdamW's two moments in float32, and the float32 parameters that
      go with bfloat16 ones; 0 for sampling.
    cache: keys and values; 0 for training.
    activations: what the program needs beside its arguments and results.
  """

  params: int
  optimizer: int
  cache: int
  activations: int

  @property
  def total(self) -> int:
    return self.params + self.optimizer + self.cache + self.activations


def plan(
  config: LanguageModelConfig, mesh: Mesh, task: str, batch: Batch
) -> Plan:
  """Compiles the program of `task` for shapes and reads what it needs.

  Args:
    config: the model; its `dtype` is that of the parameters, too.
    mesh: devices, simulated or not, from `mesh.make_mesh`.
    task: `sample` or `train`.
    batch: over all devices.

  Raises:
    ValueError: the mesh does not divide the model or the rows, or the context
      is too short.
  """
  length = batch.prompt + batch.new_tokens
  if length > config.max_positions:
    raise ValueError(
      f'{batch.prompt} + {batch.new_tokens} tokens exceed the context of '
      f'{config.max_positions}'
    )
  over = mesh_lib.num_row_shards(mesh)
  if batch.rows % over:
    raise ValueError(f'{batch.rows} rows cannot be split over {over} devices')
  of = pretrained.family(config.family)
  dtype = jnp.dtype(config.dtype)
  shapes = jax.tree.map(
    lambda s: jax.ShapeDtypeStruct(s.shape, dtype), of.shapes(config)
  )
  params = _on(shapes, sharding.shardings(shapes, of.partition, mesh))
  if task == 'train':
    return _plan_training(config, mesh, params, batch)
  return _plan_sampling(config, mesh, params, batch)


def _plan_training(
  config: LanguageModelConfig, mesh: Mesh, params: Any, batch: Batch
) -> Plan:
  wide = jax.tree.map(
    lambda p: jax.ShapeDtypeStruct(p.shape, jnp.float32, sharding=p.sharding),
    params,
  )
  moments = 2 * _bytes_of(wide)
  master = _bytes_of(wide) if config.dtype != 'float32' else 0
  compiled = programs.compile_training(config, mesh, params, batch)
  needed = compiled.memory_analysis()
  return Plan(
    params=_bytes_of(params),
    optimizer=moments + master,
    cache=0,
    activations=needed.temp_size_in_bytes + needed.output_size_in_bytes,
  )


def _plan_sampling(
  config: LanguageModelConfig, mesh: Mesh, params: Any, batch: Batch
) -> Plan:
  cache = programs.cache_bytes(config, mesh, batch)
  compiled = programs.compile_sampling(config, mesh, params, batch)
  # Slots hold more than the cache: whole blocks, and logits of each row.
  slots = _bytes_of(compiled.slots)
  prefill = compiled.prefill.memory_analysis()
  decode = compiled.decode.memory_analysis()
  # Decoding updates the slots in place; a prefill has its results beside them.
  needed = max(
    prefill.temp_size_in_bytes + prefill.output_size_in_bytes,
    decode.temp_size_in_bytes
    + decode.output_size_in_bytes
    - decode.alias_size_in_bytes,
  )
  return Plan(_bytes_of(params), 0, cache, slots - cache + needed)


def _on(shapes: Any, placed: Any) -> Any:
  return jax.tree.map(
    lambda s, where: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=where),
    shapes,
    placed,
  )


def _bytes_of(tree: Any) -> int:
  """Bytes on one device."""
  return sum(
    math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
    for leaf in jax.tree.leaves(tree)
  )


def _load(name: str, dtype: str) -> LanguageModelConfig:
  if pathlib.Path(name).is_dir():
    config = pretrained.load_config(name)
    if not isinstance(config, LanguageModelConfig):
      raise ValueError(
        f'{name} is a {config.family} model, which writes no text: expected a '
        'causal or an encoder-decoder language model'
      )
  else:
    config = presets.find(name).config
  return dataclasses.replace(config, dtype=dtype)


def _report(config: LanguageModelConfig, mesh: Mesh, needed: Plan) -> str:
  devices = ', '.join(f'{axis} {n}' for axis, n in mesh.shape.items())
  lines = [
    f'{config.num_params / 1e9:.2f} B parameters in {config.dtype} on '
    f'{mesh.size} device(s) ({devices}); GiB on each:'
  ]
  for field in dataclasses.fields(needed):
    lines.append(f'  {field.name:12} {getattr(needed, field.name) / _GIB:8.2f}')
  lines.append(f'  {"all":12} {needed.total / _GIB:8.2f}')
  for name, count, size in _MACHINES:
    if count == mesh.size:
      fits = needed.total <= _USABLE * size
      share = needed.total / size
      lines.append(
        f'{"fits" if fits else "does not fit"} {name} ({share:.0%} of each)'
      )
  return '\n'.join(lines)


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  shape = mesh_lib.parse(_MESH.value)
  jax.config.update('jax_platforms', 'cpu')
  jax.config.update('jax_num_cpu_devices', math.prod(shape.values()))
  mesh = mesh_lib.make_mesh(shape)
  config = _load(_MODEL.value, _DTYPE.value)
  batch = Batch(_ROWS.value, _PROMPT.value, _NEW.value)
  needed = plan(config, mesh, _TASK.value, batch)
  print(_report(config, mesh, needed))


if __name__ == '__main__':
  app.run(main)
