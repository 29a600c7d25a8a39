"""What tools play with: models, and a pool."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from promptrl_jax.evaluation.play import LineUp
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.backend import Backend
from promptrl_jax.llm.cache import IN_MEMORY, CachedBackend
from promptrl_jax.llm.load import BackendConfig, load_backend
from promptrl_jax.parallel import compilation
from promptrl_jax.parallel import mesh as mesh_lib

_NEW_TOKENS = 96  # of a program


@contextlib.contextmanager
def open_models(
  models: Mapping[str, str], cache: str = IN_MEMORY
) -> Iterator[tuple[dict[str, Backend], ExecutionPool, AskConfig]]:
  """Opens cached models, given by role, a pool, and how models are asked."""
  mesh_lib.use_cpu_cores()
  compilation.use_cache()
  mesh = mesh_lib.make_data_mesh()
  backends: dict[str, Backend] = {}
  for role, model in models.items():
    config = BackendConfig(model=model, new_tokens=_NEW_TOKENS)
    backends[role] = CachedBackend(
      load_backend(config, mesh), cache, config.identity
    )
  with ExecutionPool() as pool:
    yield backends, pool, AskConfig(max_tokens=_NEW_TOKENS)


@contextlib.contextmanager
def open_line_up(
  models: Mapping[str, str], cache: str = IN_MEMORY
) -> Iterator[LineUp]:
  """Opens a line-up of cached models, given by role, on this machine."""
  with open_models(models, cache) as (backends, pool, ask):
    yield LineUp(backends, MemoPool(pool), ask)
