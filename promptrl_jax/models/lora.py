"""Low-rank adapters of a language model (LoRA, arXiv 2106.09685).

An adapter is a tree of its own beside the parameters. The layers hold several
projections in one leaf (queries, keys and values in `layers/qkv`); here each
projection has a pair of its own, A [in, r] and B [r, out], as in the files that
`peft.py` reads and writes:

  layers/qkv/q_proj/a  [L, D, r]
  layers/qkv/q_proj/b  [L, r, K, G, H]

`attach` lays the pairs of a leaf side by side in one pair [in, R], [R, ...],
whose product is the update of the whole leaf, and the model adds (x A) B to
whatever it projects. What it returns goes wherever parameters go: `apply`,
`sampling.generate`, `sampling.score`, and with `partition` onto a mesh. `merge`
adds the product to the leaf.

  adapters = lora.init(config, params, key)
  gradients = jax.grad(
    lambda adapters: loss(lora.attach(config, params, adapters))
  )(adapters)
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
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
  """Which projections get an adapter, and how large it is.

  Attributes:
    rank: r, columns of A.
    alpha: the update is `scale` times A B, and `scale` is alpha / r.
    targets: regular expressions, each searched for in the paths of the
      family's `PARTS`: `layers/qkv` is all three, `[qv]_proj` what the paper
      adapts, of T5 `/[qv]$`.
    rslora: `scale` is alpha / sqrt(r), so that a high rank still learns
      (arXiv 2312.03732).
    family: `family_of` the model.
  """

  rank: int = 16
  alpha: float = 32.0
  targets: tuple[str, ...] = ('.*',)
  rslora: bool = False
  family: str = 'llama'

  def __post_init__(self):
    if self.rank < 1:
      raise ValueError(f'rank={self.rank} must be at least 1')
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
    """What A B is multiplied by."""
    return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)

  @property
  def parts(self) -> tuple[Part, ...]:
    """The projections that have an adapter."""
    return tuple(
      part
      for part in PARTS[self.family]
      if any(re.search(target, part.path) for target in self.targets)
    )


def partition(rules: sharding.Rules) -> sharding.Rules:
  """The rules of a model, and of adapters beside it and attached to it.

  The axis that a kernel is split over is that of B if it is an output, of A if
  it is an input; r is too small to split.

  Args:
    rules: of the model's leaves; those with [L, in, ...] start with None.
  """
  adapters = []
  for pattern, spec in rules:
    if len(spec) < 2 or spec[0] is not None:
      continue
    layers, size, *out = spec
    # The pairs of each part, `layers/qkv/q_proj/a`, and the fused ones.
    pair = rf'(?:{pattern})(?:/\w+)?'
    adapters.append((rf'{pair}/a', P(layers, size, None)))
    adapters.append((rf'{pair}/b', P(layers, None, *out)))
  return (*rules, *adapters)


def shapes(config: LoraConfig, model_shapes: Any) -> Any:
  """Shapes of the adapters.

  Args:
    config: of the adapters.
    model_shapes: tree of the model's parameters or of `jax.ShapeDtypeStruct`,
      with `params` at the top.

  Returns:
    Tree of float32 `jax.ShapeDtypeStruct` with `params` at the top: A
    [L, in, r] and B [L, r, ...] of each part.
  """
  tree: dict[str, Any] = {}
  for part in config.parts:
    layers, size, *out = leaf_of(model_shapes, part.leaf).shape
    outputs = tuple(
      len(range(n)[i]) for n, i in zip(out, _index(part, out), strict=True)
    )
    pair = {
      'a': (layers, size, config.rank),
      'b': (layers, config.rank, *outputs),
    }
    scope, leaf = part.leaf.split('/')
    tree.setdefault(scope, {}).setdefault(leaf, {})[part.name] = {
      k: jax.ShapeDtypeStruct(v, jnp.float32) for k, v in pair.items()
    }
  return {'params': tree}


def init(config: LoraConfig, model_shapes: Any, key: jax.Array) -> Any:
  """New adapters, which do not change the model: B is zero.

  A is uniform in [-1/sqrt(in), 1/sqrt(in)), as in the authors' code.

  Args:
    config: of the adapters.
    model_shapes: as in `shapes`.
    key: consumed.
  """
  leaves, treedef = jax.tree.flatten_with_path(shapes(config, model_shapes))
  keys = jax.random.split(key, len(leaves))

  def draw(path: Any, leaf: jax.ShapeDtypeStruct, key: jax.Array) -> jax.Array:
    if path[-1].key == 'b':
      return jnp.zeros(leaf.shape, leaf.dtype)
    bound = leaf.shape[1] ** -0.5
    return jax.random.uniform(key, leaf.shape, leaf.dtype, -bound, bound)

  values = [
    draw(path, leaf, k) for (path, leaf), k in zip(leaves, keys, strict=True)
  ]
  return jax.tree.unflatten(treedef, values)


def attach(config: LoraConfig, params: Any, adapters: Any) -> Any:
  """Variables with which the model runs with the adapters.

  Differentiate with respect to `adapters` and the parameters stay as they are.

  Args:
    config: of the adapters.
    params: of the model, with `params` at the top; not copied.
    adapters: as `init` returns them.

  Returns:
    `params` with one more collection, `lora`: for each leaf A [L, in, R] and
    `scale` B [L, R, ...], where R is the sum of its parts' ranks.

  Raises:
    ValueError: the adapters are not those of this config and model.
  """
  _check(config, params, adapters)
  fused: dict[str, Any] = {}
  for path in dict.fromkeys(part.leaf for part in config.parts):
    scope, leaf = path.split('/')
    a, b = _fuse(config, path, leaf_of(params, path).shape, adapters)
    fused.setdefault(scope, {})[leaf] = {'a': a, 'b': b}
  return {**params, 'lora': fused}


def merge(config: LoraConfig, params: Any, adapters: Any) -> Any:
  """Parameters of a model that does by itself what it does with the adapters.

  Args:
    config: of the adapters.
    params: of the model; a leaf keeps its dtype, the sum is in float32.
    adapters: as `init` returns them.

  Raises:
    ValueError: the adapters are not those of this config and model.
  """
  _check(config, params, adapters)
  tree = dict(params['params'])
  for path in dict.fromkeys(part.leaf for part in config.parts):
    scope, name = path.split('/')
    leaf = leaf_of(params, path)
    a, b = _fuse(config, path, leaf.shape, adapters)
    b = b.reshape(*b.shape[:2], -1)
    update = jnp.einsum('ldr,lro->ldo', a, b, precision='highest')
    total = leaf.astype(jnp.float32) + update.reshape(leaf.shape)
    tree[scope] = {**tree[scope], name: total.astype(leaf.dtype)}
  return {**params, 'params': tree}


def leaf_of(tree: Any, path: str) -> Any:
  """The leaf at `path` below `params`.

  Raises:
    KeyError: there is none.
  """
  node = tree['params']
  for key in path.split('/'):
    if not isinstance(node, Mapping) or key not in node:
      raise KeyError(f'no {path} in the tree: {key!r} is missing')
    node = node[key]
  return node


def _check(config: LoraConfig, params: Any, adapters: Any) -> None:
  """Refuses what would be broadcast or left out in silence."""
  found, expected = (
    {
      sharding.path_of(path): leaf.shape
      for path, leaf in jax.tree.leaves_with_path(tree)
    }
    for tree in (adapters, shapes(config, params))
  )
  for path in sorted(found.keys() | expected.keys()):
    if found.get(path) != expected.get(path):
      raise ValueError(
        f'adapter {path} has shape {found.get(path)}; the model and '
        f'{config} say {expected.get(path)} (None: not there)'
      )


def _fuse(
  config: LoraConfig, path: str, shape: tuple[int, ...], adapters: Any
) -> tuple[jax.Array, jax.Array]:
  """The pairs of a leaf as one.

  The columns of all A stand side by side. The rows of all B stand one below the
  other, each on its part of the outputs, with zeros on the parts of others.
  """
  layers, _, *out = shape
  parts = [part for part in config.parts if part.leaf == path]
  pairs = [leaf_of(adapters, part.path) for part in parts]
  rows = config.rank * len(parts)
  b = jnp.zeros((layers, rows, *out), jnp.float32)
  for i, (part, pair) in enumerate(zip(parts, pairs, strict=True)):
    block = slice(i * config.rank, (i + 1) * config.rank)
    place = (_ALL, block, *_index(part, out))
    b = b.at[place].set(config.scale * pair['b'])
  return jnp.concatenate([pair['a'] for pair in pairs], axis=-1), b


def _index(part: Part, out: list[int]) -> tuple[slice, ...]:
  return (*part.index, *[_ALL] * (len(out) - len(part.index)))
