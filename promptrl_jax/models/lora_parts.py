"""The projections that a low-rank adapter can stand beside, by family."""

from __future__ import annotations

import dataclasses
from typing import Any

_ALL = slice(None)


@dataclasses.dataclass(frozen=True)
class Part:
  """A projection of its own in a checkpoint, a part of a leaf here.

  Attributes:
    module: its name inside a layer of a checkpoint: `self_attn.q_proj`.
    leaf: the leaf that holds it: `layers/qkv` [L, in, ...].
    index: where it lies on the axes of the leaf behind [L, in].
    is_swapped: whether a checkpoint has the first two of these axes the other
      way round: GPT-2 has all queries first, we have a head's three together.
    stack: what a checkpoint calls the list of layers.
  """

  module: str
  leaf: str
  index: tuple[slice, ...] = ()
  is_swapped: bool = False
  stack: str = 'model.layers'

  @property
  def name(self) -> str:
    return self.module.rpartition('.')[2]

  @property
  def path(self) -> str:
    """`layers/qkv/q_proj`."""
    return f'{self.leaf}/{self.name}'

  def full_name(self, layer: int) -> str:
    """Its name in a checkpoint: `model.layers.3.self_attn.q_proj`."""
    return f'{self.stack}.{layer}.{self.module}'


def _t5(is_gated: bool) -> tuple[Part, ...]:
  """The projections of both stacks of a T5."""

  def place(i: int) -> tuple[slice, ...]:
    return (_ALL, slice(i, i + 1))

  parts = []
  for side, mlp_layer in (('encoder', 1), ('decoder', 2)):
    own, mlp = 'layer.0.SelfAttention', f'layer.{mlp_layer}.DenseReluDense'
    found = [(f'{own}.{name}', 'qkv', place(i)) for i, name in enumerate('qkv')]
    found.append((f'{own}.o', 'out', ()))
    if side == 'decoder':
      cross = 'layer.1.EncDecAttention'
      found.append((f'{cross}.q', 'cross_query', ()))
      found += [
        (f'{cross}.{name}', 'cross_kv', place(i)) for i, name in enumerate('kv')
      ]
      found.append((f'{cross}.o', 'cross_out', ()))
    for i, name in enumerate(('wi_0', 'wi_1') if is_gated else ('wi',)):
      found.append((f'{mlp}.{name}', 'gate_up', (slice(i, i + 1),)))
    found.append((f'{mlp}.wo', 'down', ()))
    parts += [
      Part(module, f'{side}/{leaf}', index, stack=f'{side}.block')
      for module, leaf, index in found
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
# Family of models -> the projections of its layers.
PARTS = {
  **dict.fromkeys(('llama', 'mistral', 'qwen2', 'qwen3'), _LLAMA),
  'gpt2': _GPT2,
  't5': _t5(is_gated=False),
  't5_gated': _t5(is_gated=True),
}


def family_of(model: Any) -> str:
  """The key of `PARTS` for the config of a model.

  T5 1.1 and Flan-T5, whose MLP is gated, have a projection more.
  """
  is_gated = model.family == 't5' and model.is_gated
  return 't5_gated' if is_gated else model.family
