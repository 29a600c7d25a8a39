"""Jits a function of parameters and rows with the rows split over a mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from promptrl_jax.parallel import mesh as mesh_lib


def jit_rows(run: Callable[..., Any], mesh: Mesh) -> Any:
  """Jits a function of parameters and arrays of rows.

  Where every device has all parameters, each runs a program of its own on its
  rows, and a loop ends when those are finished. Where parameters are split
  (axes `fsdp` and `tensor`), all devices run one program together.
  """
  if mesh_lib.splits_parameters(mesh):
    split = mesh_lib.rows(mesh)

    def together(params: Any, *rows: Any) -> Any:
      return run(params, *jax.lax.with_sharding_constraint(rows, split))

    return jax.jit(together, out_shardings=split)
  apart = jax.shard_map(
    lambda params, rows: run(params, *rows),
    mesh=mesh,
    in_specs=(P(), P('data')),
    out_specs=P('data'),
    check_vma=False,  # the loop's trip count differs between devices
  )
  return jax.jit(lambda params, *rows: apart(params, rows))
