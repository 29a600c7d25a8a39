"""Which axes of a mesh each leaf of a parameter tree is split over."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Rules = Sequence[tuple[str, P]]


def path_of(path: Sequence[Any]) -> str:
  """A leaf's path below its collection: `layers/qkv`."""
  names = [str(getattr(part, 'key', part)) for part in path]
  return '/'.join(
    names[1:] if names[0] in ('params', 'stored', 'lora') else names
  )


def spec_of(path: str, rules: Rules) -> P:
  """The first rule whose expression matches all of `path`.

  Raises:
    KeyError: none does.
  """
  for pattern, spec in rules:
    if re.fullmatch(pattern, path):
      return spec
  raise KeyError(f'no partition rule for the leaf {path!r}')


def fit(
  spec: P, shape: Sequence[int], mesh: Mesh, path: str = 'array'
) -> NamedSharding:
  """`spec` on `mesh`: axes that the mesh lacks are left out.

  Raises:
    ValueError: a dimension is not a multiple of the devices it is split over.
  """
  kept = []
  for size, names in zip(shape, tuple(spec), strict=False):
    names = names if isinstance(names, tuple) else (names,)
    names = tuple(n for n in names if n in mesh.shape and mesh.shape[n] > 1)
    count = 1
    for name in names:
      count *= mesh.shape[name]
    if size % count:
      raise ValueError(
        f'{path} of shape {tuple(shape)}: {size} cannot be split over the '
        f'{count} devices of {" x ".join(names)}; choose a mesh whose axes '
        f'divide it'
      )
    kept.append(names[0] if len(names) == 1 else names or None)
  return NamedSharding(mesh, P(*kept))


def shardings(shapes: Any, rules: Rules, mesh: Mesh) -> Any:
  """A tree of `NamedSharding` for a tree of shapes."""
  return jax.tree_util.tree_map_with_path(
    lambda path, leaf: fit(
      spec_of(path_of(path), rules), leaf.shape, mesh, path_of(path)
    ),
    shapes,
  )


def pin(x: Any, mesh: Mesh | None, *names: Any) -> Any:
  """`x`, split over these axes of a mesh where it is computed.

  Without it the compiler may send activations where sending parameters is less.

  Args:
    x: an array.
    mesh: None: `x` is left alone.
    names: axes of the mesh for the first axes of `x`.
  """
  if mesh is None:
    return x
  return jax.lax.with_sharding_constraint(x, fit(P(*names), x.shape, mesh))
