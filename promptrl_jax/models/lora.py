"""Low-rank adapters of a language model (LoRA, arXiv 2106.09685).

Adapters form their own tree beside the parameters. A layer fuses several
projections into one leaf (queries, keys and values in `layers/qkv`), but each
projection has its own pair of adapter matrices A [in, r] and B [r, out]:

  layers/qkv/q_proj/a  [L, D, r]
  layers/qkv/q_proj/b  [L, r, K, U, H]

Functions that take parameters also take the result of `attach`, which combines
the pairs of a leaf into one; the model then adds (x A) B to the projection.

  adapters = lora.init(config, params, key)
  gradients = jax.grad(
    lambda adapters: loss(lora.attach(config, params, adapters))
  )(adapters)
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import traverse_util
from jax.sharding import PartitionSpec as P

from promptrl_jax.models.lora_parts import PARTS, Part, family_of
from promptrl_jax.parallel import sharding

__all__ = [
  'PARTS',
  'LoraConfig',
  'Part',
  'attach',
  'family_of',
  'init',
  'leaf_of',
  'merge',
  'partition',
  'shapes',
]

_ALL = slice(None)


@dataclasses.dataclass(frozen=True)
class LoraConfig:
  """Rank, scale and target projections of adapters.

  Attributes:
    targets: regular expressions that are searched for in the paths of the
      family's `PARTS`. `layers/qkv` selects queries, keys and values;
      `[qv]_proj` (for T5 `/[qv]$`) selects the projections that the paper
      adapts.
    family: key of `PARTS`, see `family_of`; empty until the model is known.
  """

  rank: int = 16
  alpha: float = 32.0
  targets: tuple[str, ...] = ('.*',)
  rslora: bool = False
  family: str = 'llama'

  def __post_init__(self):
    if self.rank < 1:
      raise ValueError(f'rank={self.rank} must be at least 1')
    if not self.family:
      return
    if self.family not in PARTS:
      raise ValueError(
        f'family={self.family!r}: expected one of {", ".join(PARTS)}'
      )
    paths = [part.path for part in PARTS[self.family]]
    if not self.targets:
      raise ValueError(f'targets is empty: expected some of {", ".join(paths)}')
    for target in self.targets:
      if not any(re.search(target, path) for path in paths):
        raise ValueError(
          f'targets={self.targets}: {target!r} matches none of '
          f'{", ".join(paths)}'
        )

  @property
  def scale(self) -> float:
    """Factor on A B."""
    return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)

  @property
  def parts(self) -> tuple[Part, ...]:
    """Projections that have an adapter."""
    return tuple(
      part
      for part in PARTS[self.family]
      if any(re.search(target, part.path) for target in self.targets)
    )


def partition(rules: sharding.Rules) -> sharding.Rules:
  """Returns the sharding rules of a model extended to its adapters.

  B is split like the outputs of the kernel and A like its inputs; r is too
  small to split. The rules cover adapter trees and attached adapters.
  """
  adapters = []
  for pattern, spec in rules:
    if len(spec) < 2 or spec[0] is not None:
      continue
    layers, size, *out = spec
    # The pattern matches a part, `layers/qkv/q_proj/a`, and attached adapters,
    # `layers/qkv/a`.
    pair = rf'(?:{pattern})(?:/\w+)?'
    adapters.append((rf'{pair}/a', P(layers, size, None)))
    adapters.append((rf'{pair}/b', P(layers, None, *out)))
  return (*rules, *adapters)


def shapes(config: LoraConfig, model_shapes: Any) -> Any:
  """Returns the float32 shapes of the adapters, as for `init`."""
  leaves = {}
  for part in config.parts:
    layers, size, *out = leaf_of(model_shapes, part.leaf).shape
    index = _index(part, out)
    outputs = [len(range(n)[i]) for n, i in zip(out, index, strict=True)]
    for matrix, shape in (
      ('a', (layers, size, config.rank)),
      ('b', (layers, config.rank, *outputs)),
    ):
      leaf = jax.ShapeDtypeStruct(shape, jnp.float32)
      leaves[f'{part.path}/{matrix}'] = leaf
  return {'params': traverse_util.unflatten_dict(leaves, sep='/')}


def init(config: LoraConfig, model_shapes: Any, key: jax.Array) -> Any:
  """Initialises adapters, A [L, in, r] and B [L, r, ...] of each part.

  B is zero, so that they do not change the model, and A is uniform in
  [-1/sqrt(in), 1/sqrt(in)) as in the authors' code.
  """
  leaves, treedef = jax.tree.flatten_with_path(shapes(config, model_shapes))
  keys = jax.random.split(key, len(leaves))

  def draw(path: Any, leaf: jax.ShapeDtypeStruct, key: jax.Array) -> jax.Array:
    if path[-1].key == 'b':
      return jnp.zeros(leaf.shape, leaf.dtype)
    bound = leaf.shape[1] ** -0.5
    return jax.random.uniform(key, leaf.shape, leaf.dtype, -bound, bound)

  pairs = zip(leaves, keys, strict=True)
  return jax.tree.unflatten(treedef, [draw(*leaf, k) for leaf, k in pairs])


def attach(config: LoraConfig, params: Any, adapters: Any) -> Any:
  """Returns the model's variables with its adapters; nothing is copied.

  The collection `lora` holds A [L, in, parts * r] and `scale` * B
  [L, parts * r, ...] for each leaf.

  Raises:
    ValueError: the adapters do not fit the config and the model.
  """
  fused = {
    path: {'a': a, 'b': b}
    for path, a, b in _fused_pairs(config, params, adapters)
  }
  return {**params, 'lora': traverse_util.unflatten_dict(fused, sep='/')}


def merge(config: LoraConfig, params: Any, adapters: Any) -> Any:
  """Adds the adapters' updates in float32; raises as `attach`."""
  tree = dict(params['params'])
  for path, a, b in _fused_pairs(config, params, adapters):
    scope, name = path.split('/')
    leaf = leaf_of(params, path)
    b = b.reshape(*b.shape[:2], -1)
    # y is the axis of all outputs of the leaf.
    update = jnp.einsum('ldr,lry->ldy', a, b, precision='highest')
    total = leaf.astype(jnp.float32) + update.reshape(leaf.shape)
    tree[scope] = {**tree[scope], name: total.astype(leaf.dtype)}
  return {**params, 'params': tree}


def leaf_of(tree: Any, path: str) -> Any:
  """Returns the leaf at `path` below `params`, or raises a KeyError."""
  node = tree['params']
  for key in path.split('/'):
    if not isinstance(node, Mapping) or key not in node:
      raise KeyError(f'no {path} in the tree: {key!r} is missing')
    node = node[key]
  return node


def _check(config: LoraConfig, params: Any, adapters: Any) -> None:
  """Raises a ValueError unless the adapters have the expected shapes."""
  actual, expected = (
    {
      sharding.path_of(path): leaf.shape
      for path, leaf in jax.tree.leaves_with_path(tree)
    }
    for tree in (adapters, shapes(config, params))
  )
  for path in sorted(actual.keys() | expected.keys()):
    if actual.get(path) != expected.get(path):
      raise ValueError(
        f'adapter {path} has shape {actual.get(path)}; the model and '
        f'{config} say {expected.get(path)} (None: not there)'
      )


def _fused_pairs(
  config: LoraConfig, params: Any, adapters: Any
) -> Iterator[tuple[str, jax.Array, jax.Array]]:
  """Yields the path of each leaf, and one pair instead of those of its parts.

  A is the concatenation of all A. B is block-diagonal: the rows of a part hold
  its B on the part's outputs and zeros on all other outputs.
  """
  _check(config, params, adapters)
  for path in dict.fromkeys(part.leaf for part in config.parts):
    layers, _, *out = leaf_of(params, path).shape
    parts = [part for part in config.parts if part.leaf == path]
    pairs = [leaf_of(adapters, part.path) for part in parts]
    b = jnp.zeros((layers, config.rank * len(parts), *out), jnp.float32)
    for i, (part, pair) in enumerate(zip(parts, pairs, strict=True)):
      block = slice(i * config.rank, (i + 1) * config.rank)
      index = (_ALL, block, *_index(part, out))
      b = b.at[index].set(config.scale * pair['b'])
    yield path, jnp.concatenate([pair['a'] for pair in pairs], axis=-1), b


def _index(part: Part, out: list[int]) -> tuple[slice, ...]:
  """Returns the part's index on the output axes of its leaf."""
  return (*part.index, *[_ALL] * (len(out) - len(part.index)))
