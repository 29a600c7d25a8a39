"""Prints which operator solves what one greedy call did not.

  python -m promptrl_jax.tools.mending --data=minicode2 --splits=validation
  ... --coder=runs/coder/model --rewriter=runs/rewriter/model --out=mending.json

`evaluation.mending` says what is measured.
"""

from __future__ import annotations

import json
import pathlib

from absl import app, flags

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation import mending
from promptrl_jax.evaluation.play import LineUp
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.files import write_atomically
from promptrl_jax.llm.ask import CODER, REWRITER, AskConfig
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.llm.load import BackendConfig, load_backend
from promptrl_jax.parallel import compilation
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.tasks import load as load_lib
from promptrl_jax.tasks.task_set import DataConfig
from promptrl_jax.tools import command

_DATA = flags.DEFINE_string('data', 'minicode2', 'Task set.')
_SPLITS = flags.DEFINE_list('splits', ['validation'], 'Splits.')
_CODER = flags.DEFINE_string('coder', 'minicode2_coder', 'Name or folder.')
_REWRITER = flags.DEFINE_string(
  'rewriter', 'minicode2_rewriter', 'Name or folder.'
)
_PROTOCOL = flags.DEFINE_string('protocol', 'visible1', 'See tasks.splits.')
_SEEDS = flags.DEFINE_integer('seeds', 3, 'Runs of each operator.')
_LIMIT = flags.DEFINE_integer('limit', 0, 'First N tasks; 0 for all.')
_OUT = flags.DEFINE_string('out', '', 'JSON file of the figures.')


def run() -> None:
  mesh_lib.use_cpu_cores()
  compilation.use_cache()
  mesh = mesh_lib.make_data_mesh()
  tasks = load_lib.load_tasks(DataConfig(_DATA.value), only=_SPLITS.value)
  backends = {
    role: CachedBackend(load_backend(BackendConfig(model=flag.value), mesh))
    for role, flag in ((REWRITER, _REWRITER), (CODER, _CODER))
  }
  figures = {}
  with ExecutionPool() as pool:
    line_up = LineUp(backends, MemoPool(pool), AskConfig())
    for split in _SPLITS.value:
      figures[split] = mending.measure(
        line_up,
        tasks[split][: _LIMIT.value or None],
        EditingConfig(),
        protocol=_PROTOCOL.value,
        seeds=range(_SEEDS.value),
      )
      print(mending.to_markdown(split, figures[split]))
  if _OUT.value:
    content = json.dumps(figures, indent=2) + '\n'
    write_atomically(pathlib.Path(_OUT.value), content.encode())


if __name__ == '__main__':
  app.run(command.without_arguments(run))
