"""Counts the bytes that an update of the rewriter sends between devices.

  python -m promptrl_jax.tools.communication --model=codellama_7b
  python -m promptrl_jax.tools.communication --model=path/to/folder \\
    --mesh=data=2,fsdp=4

For each mesh axis the command prints the bytes that one device sends in one
update: as counted in the compiled program, and as computed by the formulas of
docs/scaling.md. Without --mesh it compares the axes, each with all --devices.
Parameters, gradients and activations are float32.

The update is compiled for simulated CPU devices and nothing is allocated. XLA
has no reduce-scatter for CPU devices, so the bytes of `fsdp` are those of an
all-reduce of the gradients; devices with reduce-scatter send less.
"""

from __future__ import annotations

import dataclasses
import math

import jax
from absl import app, flags
from jax.sharding import Mesh

from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.tools import collectives, command, programs, volumes
from promptrl_jax.tools.programs import Batch
from promptrl_jax.training.rewriter.config import LossConfig

_MODEL = flags.DEFINE_string(
  'model', None, 'Preset or folder of a decoder-only model.', required=True
)
_DEVICES = flags.DEFINE_integer(
  'devices', 8, 'Number of devices along each axis.', lower_bound=1
)
_MESH = flags.DEFINE_string(
  'mesh', '', 'A single mesh instead, e.g. data=2,fsdp=4.'
)
_ROWS = flags.DEFINE_integer('rows', 16, 'Rows of a batch.', lower_bound=1)
_PROMPT = flags.DEFINE_integer(
  'prompt', 512, 'Tokens of a prompt.', lower_bound=1
)
_NEW = flags.DEFINE_integer(
  'new_tokens', 512, 'Tokens of a completion.', lower_bound=1
)
_MICRO_BATCHES = flags.DEFINE_integer(
  'micro_batches', 2, 'Micro-batches of an update.', lower_bound=1
)
_REMAT = flags.DEFINE_bool(
  'remat', False, 'Recompute layers in the backward pass.'
)

_FLOAT = 4  # bytes


@dataclasses.dataclass(frozen=True)
class Volume:
  """Bytes that one device sends in one update along one axis.

  Attributes:
    axis: mesh axis, or several joined by `+`.
    compiled: bytes counted in the compiled update.
    formula: bytes computed from the sharding; None for a mesh that splits
      several axes, for which there is no formula.
    is_exact: False if the compiled update has a loop of unknown length.
  """

  axis: str
  compiled: float
  formula: float | None
  is_exact: bool


def count(
  config: TransformerConfig, mesh: Mesh, batch: Batch, micro_batches: int = 1
) -> list[Volume]:
  """Compiles the update of a model and counts the bytes that it sends.

  The model is in float32 and its `remat` is respected; devices may be
  simulated; the batch is that of all devices.

  Returns:
    One volume for each axis, or combination of axes, along which devices send.

  Raises:
    ValueError: the mesh does not divide the model or the rows.
  """
  loss = LossConfig(micro_batches=micro_batches)
  lowered = programs.lower_update(config, mesh, batch, loss)
  instructions = collectives.read(lowered.compile().as_text())
  is_exact = all(x.is_exact for x in instructions)
  sent = collectives.sent(instructions, mesh)
  split = [axis for axis, n in mesh.shape.items() if n > 1]
  volume = None
  if len(split) == 1:
    volume = formula(config, mesh, split[0], batch, micro_batches)
  return [
    Volume(axis, compiled, volume if axis in split else None, is_exact)
    for axis, compiled in sent.items()
  ]


def formula(
  config: TransformerConfig,
  mesh: Mesh,
  axis: str,
  batch: Batch,
  micro_batches: int,
) -> float:
  """Returns the bytes that one device sends, by the formulas of `volumes`.

  The packed rows of the batch, which XLA sends once to deal them to
  micro-batches, and a few numbers for metrics are left out. The mesh splits
  `axis` (`data`, `fsdp` or `tensor`) and no other.
  """
  n = mesh.shape[axis]
  # A tied embedding has two gradients, of the look-up and of the projection.
  twice = config.vocab_size * config.hidden_size * config.tie_embeddings
  gradients = _FLOAT * (config.num_params + twice)
  if axis == 'data':
    return volumes.data(gradients, n, micro_batches=micro_batches)
  if axis == 'fsdp':
    return _fsdp(config, mesh, gradients, micro_batches)
  rows = batch.rows // micro_batches
  length = batch.prompt + batch.new_tokens
  activations = _FLOAT * rows * length * config.hidden_size
  layers = volumes.tensor(activations, config.num_layers, n, remat=config.remat)
  # The embedding of all tokens, and for the tokens that a prediction is made
  # from the gradient of the projection and four numbers of the softmax.
  predicted = rows * batch.new_tokens
  outside = activations + _FLOAT * predicted * (config.hidden_size + 4)
  return micro_batches * (layers + volumes.all_reduce(outside, n))


def _fsdp(
  config: TransformerConfig, mesh: Mesh, gradients: int, micro_batches: int
) -> float:
  """Returns the bytes sent along `fsdp`; `gradients` are those of all."""
  tree = programs.param_shapes(config, mesh)['params']
  kernels = programs.split_bytes(tree['layers'])
  # The loop over layers gathers kernels for every micro-batch. Embedding and
  # projection are outside of the loop and gathered once for all micro-batches.
  outside = programs.split_bytes(
    {name: leaf for name, leaf in tree.items() if name != 'layers'}
  )
  n = mesh.shape['fsdp']
  layers = volumes.fsdp(
    kernels, kernels, n, gathers=1 + config.remat, scatters=False
  )
  rest = volumes.all_reduce(gradients - kernels, n)
  return micro_batches * (layers + rest) + volumes.all_gather(outside, n)


def table(volumes_by_mesh: list[tuple[Mesh, list[Volume]]]) -> str:
  """Prints volumes in MB of 10^6 bytes, a row per mesh and axis."""
  lines = [f'{"mesh":20} {"axis":16} {"compiled":>12} {"formula":>12}   MB']
  for mesh, rows in volumes_by_mesh:
    name = ','.join(f'{axis}={n}' for axis, n in mesh.shape.items() if n > 1)
    for row in rows:
      formula_mb = '-' if row.formula is None else f'{row.formula / 1e6:.2f}'
      note = '' if row.is_exact else '   at least: a loop of unknown length'
      lines.append(
        f'{name:20} {row.axis:16} {row.compiled / 1e6:12.2f} '
        f'{formula_mb:>12}{note}'
      )
  return '\n'.join(lines)


@command.without_arguments
def main() -> None:
  """Prints the table that the flags ask for."""
  shapes = [{axis: _DEVICES.value} for axis in mesh_lib.AXES]
  if _MESH.value:
    shapes = [mesh_lib.parse(_MESH.value)]
  jax.config.update('jax_platforms', 'cpu')
  devices = max(math.prod(shape.values()) for shape in shapes)
  jax.config.update('jax_num_cpu_devices', devices)
  config = programs.find_config(_MODEL.value, 'float32')
  if not isinstance(config, TransformerConfig):
    raise ValueError(
      f'--model={_MODEL.value} is an encoder-decoder: expected a decoder-only '
      'model'
    )
  config = dataclasses.replace(config, remat=_REMAT.value)
  batch = Batch(_ROWS.value, _PROMPT.value, _NEW.value)
  meshes = [mesh_lib.make_mesh(shape) for shape in shapes]
  print(
    f'{config.num_params / 1e9:.2f} B parameters; bytes that one device sends '
    f'in an update of {batch.rows} rows of {batch.prompt} + {batch.new_tokens} '
    f'tokens in {_MICRO_BATCHES.value} micro-batches'
  )
  pieces = _MICRO_BATCHES.value
  print(table([(mesh, count(config, mesh, batch, pieces)) for mesh in meshes]))


if __name__ == '__main__':
  app.run(main)
