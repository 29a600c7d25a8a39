"""The projections that can have a low-rank adapter, by model family."""

from __future__ import annotations

import dataclasses
from typing import Any

_ALL = slice(None)


@dataclasses.dataclass(frozen=True)
class Part:
  """A projection: a module of a checkpoint and a part of one of our leaves.

  Attributes:
    module: name of the module inside a checkpoint's layer, such as
      `self_attn.q_proj`.
    leaf: path of the leaf [L, in, ...] that holds the projection, such as
      `layers/qkv`.
    is_swapped: whether the checkpoint orders the first two of these axes the
      other way round. GPT-2 stores all queries first; our leaf stores query,
      key and value of a head together.
  """

  module: str
  leaf: str
  index: tuple[slice, ...] = ()
  is_swapped: bool = False
  stack: str = 'model.layers'

  @property
  def name(self) -> str:
    """Last part of the module's name, such as `q_proj`."""
    return self.module.rpartition('.')[2]

  @property
  def path(self) -> str:
    """Path of the adapter in its tree, such as `layers/qkv/q_proj`."""
    return f'{self.leaf}/{self.name}'

  def full_name(self, layer: int) -> str:
    """Returns the module's full name: `model.layers.3.self_attn.q_proj`."""
    return f'{self.stack}.{layer}.{self.module}'


def _t5(is_gated: bool) -> tuple[Part, ...]:
  """Returns the projections of both stacks of a T5 model."""

  def head_part(i: int) -> tuple[slice, ...]:
    return (_ALL, slice(i, i + 1))

  parts = []
  for side, mlp_layer in (('encoder', 1), ('decoder', 2)):
    own, mlp = 'layer.0.SelfAttention', f'layer.{mlp_layer}.DenseReluDense'
    projections = [
      (f'{own}.{name}', 'qkv', head_part(i)) for i, name in enumerate('qkv')
    ]
    projections.append((f'{own}.o', 'out', ()))
    if side == 'decoder':
      cross = 'layer.1.EncDecAttention'
      projections.append((f'{cross}.q', 'cross_query', ()))
      projections += [
        (f'{cross}.{name}', 'cross_kv', head_part(i))
        for i, name in enumerate('kv')
      ]
      projections.append((f'{cross}.o', 'cross_out', ()))
    for i, name in enumerate(('wi_0', 'wi_1') if is_gated else ('wi',)):
      projections.append((f'{mlp}.{name}', 'gate_up', (slice(i, i + 1),)))
    projections.append((f'{mlp}.wo', 'down', ()))
    parts += [
      Part(module, f'{side}/{leaf}', index, stack=f'{side}.block')
      for module, leaf, index in projections
    ]
  return tuple(parts)


_LLAMA = (
  Part('self_attn.q_proj', 'layers/qkv', (_ALL, slice(0, -2))),
  Part('self_attn.k_proj', 'layers/qkv', (_ALL, slice(-2, -1))),
  Part('self_attn.v_proj', 'layers/qkv', (_ALL, slice(-1, None))),
  Part('self_attn.o_proj', 'layers/out'),
  Part('mlp.gate_proj', 'layers/gate_up', (slice(0, 1),)),
  Part('mlp.up_proj', 'layers/gate_up', (slice(1, 2),)),
  Part('mlp.down_proj', 'layers/down'),
)
_GPT2 = (
  Part('attn.c_attn', 'layers/qkv', is_swapped=True, stack='transformer.h'),
  Part('attn.c_proj', 'layers/out', stack='transformer.h'),
  Part('mlp.c_fc', 'layers/gate_up', stack='transformer.h'),
  Part('mlp.c_proj', 'layers/down', stack='transformer.h'),
)
# Model family -> the projections of its layers.
PARTS = {
  **dict.fromkeys(
    ('llama', 'mistral', 'qwen2', 'qwen3', 'gemma3_text'), _LLAMA
  ),
  'gpt2': _GPT2,
  't5': _t5(is_gated=False),
  't5_gated': _t5(is_gated=True),
}


def family_of(model: Any) -> str:
  """Returns the key of `PARTS` for a model's config.

  T5 1.1 and Flan-T5 have a gated MLP, and so one more projection than T5 1.0.
  """
  is_gated = model.family == 't5' and model.is_gated
  return 't5_gated' if is_gated else model.family
