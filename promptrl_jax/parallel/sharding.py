"""Shardings of parameter trees, from rules on the names of leaves."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

# (regular expression that matches a leaf's path, mesh axes of the leaf).
Rules = Sequence[tuple[str, P]]


def path_of(path: Sequence[Any]) -> str:
  """Returns a leaf's path below its collection: `layers/qkv`."""
  names = [str(getattr(part, 'key', part)) for part in path]
  return '/'.join(
    names[1:] if names[0] in ('params', 'stored', 'lora') else names
  )


def spec_of(path: str, rules: Rules) -> P:
  """Returns the spec of the first rule that matches all of `path`."""
  for pattern, spec in rules:
    if re.fullmatch(pattern, path):
      return spec
  raise KeyError(f'no partition rule for the leaf {path!r}')


def fit(
  spec: P, shape: Sequence[int], mesh: Mesh, path: str = 'array'
) -> NamedSharding:
  """Returns the sharding of `spec` on `mesh`, without axes the mesh lacks.

  Raises:
    ValueError: a dimension is not a multiple of the number of devices that it
      is split over.
  """
  kept = []
  for size, names in zip(shape, tuple(spec), strict=False):
    names = names if isinstance(names, tuple) else (names,)
    names = tuple(n for n in names if n in mesh.shape and mesh.shape[n] > 1)
    count = math.prod(mesh.shape[name] for name in names)
    if size % count:
      raise ValueError(
        f'{path} of shape {tuple(shape)}: {size} cannot be split over the '
        f'{count} devices of {" x ".join(names)}; choose a mesh whose axes '
        f'divide it'
      )
    kept.append(names[0] if len(names) == 1 else names or None)
  return NamedSharding(mesh, P(*kept))


def shardings(shapes: Any, rules: Rules, mesh: Mesh) -> Any:
  """Returns the tree of `NamedSharding` for a tree of shapes."""
  return jax.tree_util.tree_map_with_path(
    lambda path, leaf: fit(
      spec_of(path_of(path), rules), leaf.shape, mesh, path_of(path)
    ),
    shapes,
  )


def pin(x: Any, mesh: Mesh | None, *names: Any) -> Any:
  """Constrains the leading axes of `x` to mesh axes inside a jitted function.

  Without the constraint, the compiler may move activations between devices
  where moving parameters is cheaper.
  """
  if mesh is None:
    return x
  return jax.lax.with_sharding_constraint(x, fit(P(*names), x.shape, mesh))
