"""Estimates the memory that a model needs on each device; allocates nothing.

  python -m promptrl_jax.tools.plan --model=codellama_7b --mesh=tensor=8
  python -m promptrl_jax.tools.plan --model=path/to/folder --task=train

Parameters, optimizer state and key-value cache are counted from their shapes.
Activations are the temporary memory that XLA reserves for the compiled program.
The program is compiled for simulated CPU devices, on which attention is not
fused, so a GPU needs less memory for activations.

`train` is the update of a rewriter with `train.remat=True` and the
`train.logits_chunk` of the flag. A run holds more beside it: a reference of the
kind `frozen` as many bytes as the parameters, the sampler a copy of them in its
own dtype.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
from absl import app, flags
from jax.sharding import Mesh

from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.tools import command, programs
from promptrl_jax.tools.programs import Batch, LanguageModelConfig
from promptrl_jax.training.rewriter.config import LossConfig

_MODEL = flags.DEFINE_string(
  'model', None, 'Preset or model folder.', required=True
)
_MESH = flags.DEFINE_string(
  'mesh', '', 'Devices by axis: data=2,fsdp=2,tensor=2; empty: one device.'
)
_TASK = flags.DEFINE_enum(
  'task', 'sample', ['sample', 'train'], 'Program that is planned.'
)
_ROWS = flags.DEFINE_integer('rows', 8, 'Rows of a batch.', lower_bound=1)
_PROMPT = flags.DEFINE_integer('prompt', 512, 'Tokens of a prompt.')
_NEW = flags.DEFINE_integer('new_tokens', 512, 'Tokens of a completion.')
_DTYPE = flags.DEFINE_enum(
  'dtype',
  'bfloat16',
  ['bfloat16', 'float32'],
  'Dtype of sampled parameters, or of the kernels of an update.',
)
_CHUNK = flags.DEFINE_integer(
  'logits_chunk', 64, 'Tokens of a row whose logits an update has at a time.'
)

_GIB = 2**30
# Common machines: name, number of devices, bytes of memory of each device.
_MACHINES = (
  ('1 x 24 GB', 1, 24e9),
  ('1 x 80 GB', 1, 80e9),
  ('8 x 80 GB', 8, 80e9),
)
# Share of a device's memory that programs can use; the rest goes to the runtime
# and to fragmentation.
_USABLE = 0.92


@dataclasses.dataclass(frozen=True)
class Plan:
  """Bytes on the device that needs the most memory.

  Attributes:
    params: bytes of the parameters, in float32 for training.
    optimizer: bytes of AdamW's two moments in float32; 0 for sampling.
    cache: bytes of keys and values; 0 for training.
    activations: bytes that the program needs besides arguments and results: in
      training also gradients, and parameters cast to the dtype of kernels.
  """

  params: int
  optimizer: int
  cache: int
  activations: int

  @property
  def total(self) -> int:
    return self.params + self.optimizer + self.cache + self.activations


def plan(
  config: LanguageModelConfig,
  mesh: Mesh,
  task: str,
  batch: Batch,
  logits_chunk: int = 64,
) -> Plan:
  """Compiles the program of `task` from shapes and reads its memory use.

  Args:
    config: the model; sampled parameters, or the kernels of an update, have its
      `dtype`.
    mesh: devices, simulated or not, from `mesh.make_mesh`.
    task: `sample` or `train`.
    batch: sizes of the batch over all devices.
    logits_chunk: tokens of a row whose logits an update has at a time.

  Raises:
    ValueError: the mesh does not divide the model or the rows, or the batch
      exceeds the context of the model.
  """
  length = batch.prompt + batch.new_tokens
  if length > config.max_positions:
    raise ValueError(
      f'{batch.prompt} + {batch.new_tokens} tokens exceed the context of '
      f'{config.max_positions}'
    )
  shards = mesh_lib.num_row_shards(mesh)
  if batch.rows % shards:
    raise ValueError(f'{batch.rows} rows cannot be split over {shards} devices')
  if task == 'train':
    return _plan_training(config, mesh, batch, logits_chunk)
  return _plan_sampling(config, mesh, batch)


def _plan_training(
  config: LanguageModelConfig, mesh: Mesh, batch: Batch, logits_chunk: int
) -> Plan:
  # A rewriter is trained in float32; only its kernels are cast.
  loss = LossConfig(compute_dtype=config.dtype)
  config = dataclasses.replace(config, dtype='float32', remat=True)
  lowered = programs.lower_update(config, mesh, batch, loss, logits_chunk)
  params = programs.num_bytes(programs.param_shapes(config, mesh))
  return Plan(params, 2 * params, 0, _besides(lowered.compile()))


def _plan_sampling(
  config: LanguageModelConfig, mesh: Mesh, batch: Batch
) -> Plan:
  params = programs.param_shapes(config, mesh)
  cache = programs.cache_bytes(config, mesh, batch)
  compiled = programs.compile_sampling(config, mesh, params, batch)
  # Besides the cache, slots hold padding of whole blocks and a row of logits.
  slots = programs.num_bytes(compiled.slots)
  # Decoding updates the slots in place; a prefill's results lie beside them.
  needed = max(_besides(compiled.prefill), _besides(compiled.decode))
  return Plan(programs.num_bytes(params), 0, cache, slots - cache + needed)


def _besides(compiled: Any) -> int:
  """Returns the bytes that a compiled program needs besides its arguments."""
  memory = compiled.memory_analysis()
  results = memory.output_size_in_bytes - memory.alias_size_in_bytes
  return memory.temp_size_in_bytes + results


def _report(config: LanguageModelConfig, mesh: Mesh, needed: Plan) -> str:
  """Prints the plan in GiB, and the common machines that it fits on."""
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
  with command.in_one_line(interrupted='interrupted'):
    run()


def run() -> None:
  """Prints the plan that the flags ask for."""
  shape = mesh_lib.parse(_MESH.value)
  jax.config.update('jax_platforms', 'cpu')
  jax.config.update('jax_num_cpu_devices', math.prod(shape.values()))
  mesh = mesh_lib.make_mesh(shape)
  config = programs.find_config(_MODEL.value, _DTYPE.value)
  batch = Batch(_ROWS.value, _PROMPT.value, _NEW.value)
  needed = plan(config, mesh, _TASK.value, batch, _CHUNK.value)
  print(_report(config, mesh, needed))


if __name__ == '__main__':
  app.run(main)
