"""Runs an experiment once for each row of its config file's sweep.

  python -m launch.sweep --config=configs/mbpp_ppo.py:smoke \\
    --workdir=runs/sweep -- --config.seeds=5

`get_hyper` of the config file returns the rows for the argument, each a dict of
settings that deviate; a cell without any deviation comes first. Flags after
`--` go to every cell. A cell fills a folder that is named after its deviations.
The same command goes on: cells that have results are left alone, as are those
that are pending or running, and the others are submitted again.

  --engine=local   processes of this machine, --parallel at a time (default 1)
  --engine=slurm   tasks of a job array (extra `slurm`), with parameters that
                   are named as submitit names them:
                     --slurm=slurm_partition=gpu --slurm=gpus_per_node=1
  --engine=jobset  JobSets of a Kubernetes cluster, in the Kueue queue of
                   --queue, made of launch/k8s/jobset.yaml or of --jobset

--dry_run prints what would be submitted; --mode=report writes the table of what
there is so far, and --mode=cancel ends the cells of a cluster.
"""

from __future__ import annotations

import pathlib
import signal
import sys
import time
from collections.abc import Mapping, Sequence

from absl import app, flags

from launch import cells as cells_lib
from launch import jobset, report, slurm, tools
from launch.cells import Cell, Launcher, State
from launch.expand import expand
from launch.local import LocalLauncher
from promptrl_jax.tools import command

_CONFIG = flags.DEFINE_string(
  'config', None, 'Config file with `get_hyper`, FILE:ARGUMENT.', required=True
)
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Where the folders of the cells go.', required=True
)
_ENGINE = flags.DEFINE_enum(
  'engine', 'local', ['local', 'slurm', 'jobset'], 'What runs the cells.'
)
_MODE = flags.DEFINE_enum(
  'mode',
  'run',
  ['run', 'report', 'cancel'],
  'run: submit what is left, then report; report: only that; cancel: end the '
  'cells that a cluster runs, then report.',
)
_DRY_RUN = flags.DEFINE_bool(
  'dry_run', False, 'Print what would be submitted, submit nothing.'
)
_PARALLEL = flags.DEFINE_integer(
  'parallel',
  None,
  'Most cells that run at a time; local: 1 by default, slurm: all.',
  lower_bound=1,
)
_SLURM = flags.DEFINE_multi_string(
  'slurm', [], 'With --engine=slurm: a parameter of submitit, NAME=VALUE.'
)
_JOBSET = flags.DEFINE_string(
  'jobset',
  str(jobset.TEMPLATE),
  'With --engine=jobset: the manifest with image, resources and volumes.',
)
_QUEUE = flags.DEFINE_string(
  'queue', '', 'With --engine=jobset: the Kueue queue that admits the cells.'
)
_POLL_S = 0.5


def main(argv: list[str]) -> None:
  # `kill` and a hang-up end a sweep as Ctrl-C does, unless it is under nohup.
  # Background jobs of a script ignore SIGINT, which its cells would, too.
  for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if (number, signal.getsignal(number)) != (signal.SIGHUP, signal.SIG_IGN):
      signal.signal(number, signal.default_int_handler)
  with command.in_one_line('interrupted'):
    workdir = pathlib.Path(_WORKDIR.value)
    # In a container, the interpreter has another path.
    python = 'python' if _ENGINE.value == 'jobset' else sys.executable
    cells = expand(_CONFIG.value, workdir, argv[1:], python)
    cells_lib.check_same(cells)
    launcher = make_launcher(workdir)
    if _DRY_RUN.value:
      print(launcher.describe(to_submit_dry(launcher, cells)), end='')
      return
    if _MODE.value == 'cancel':
      if launcher.attached:
        raise ValueError('--mode=cancel: local cells are ended with Ctrl-C')
      launcher.cancel(cells)
    elif _MODE.value == 'run':
      run(launcher, cells)
    states = launcher.states(cells)
    show(workdir, cells, states)
    failed = sum(state.kind == 'failed' for state in states.values())
    if failed and _MODE.value == 'run':
      sys.exit(
        f'{failed} of {len(cells)} cells failed: the same command goes on'
      )


def make_launcher(workdir: pathlib.Path) -> Launcher:
  """Returns the engine that the flags name."""
  if _ENGINE.value == 'slurm':
    options = slurm.parse(_SLURM.value)
    return slurm.SlurmLauncher(workdir, _PARALLEL.value, options)
  if _ENGINE.value == 'jobset':
    return jobset.JobSetLauncher(pathlib.Path(_JOBSET.value), _QUEUE.value)
  return LocalLauncher(_PARALLEL.value or 1)


def to_submit(cells: Sequence[Cell], states: Mapping[str, State]) -> list[Cell]:
  """Returns the cells that are missing or have failed."""
  return [c for c in cells if states[c.name].kind in ('missing', 'failed')]


def to_submit_dry(launcher: Launcher, cells: Sequence[Cell]) -> list[Cell]:
  """Returns the same; where no engine answers, as the files alone say."""
  try:
    states = launcher.states(cells)
  except tools.EngineError as error:
    print(f'what runs already is not known: {error}', file=sys.stderr)
    states = {cell.name: cells_lib.state_from_files(cell) for cell in cells}
  return to_submit(cells, states)


def run(launcher: Launcher, cells: Sequence[Cell]) -> None:
  """Submits what is left; waits for cells that would end with this process.

  After Ctrl-C they are cancelled, and the process ends with status 130.
  """
  states = launcher.states(cells)
  for name, state in states.items():
    if state.kind != 'missing':
      print(f'{name}: {state}')
  todo = to_submit(cells, states)
  print(f'{len(todo)} of {len(cells)} cells are submitted', flush=True)
  try:
    if todo:
      launcher.submit(todo)
    while launcher.attached:
      before, states = states, launcher.states(cells)
      for name, state in states.items():
        if state != before[name] and state.kind != 'pending':
          print(f'{name}: {state}', flush=True)
      if not any(state.is_active for state in states.values()):
        return
      time.sleep(_POLL_S)
  except BaseException as error:
    if launcher.attached:
      launcher.cancel(cells)
    if not isinstance(error, KeyboardInterrupt):
      raise
    done = sum(s.kind == 'done' for s in launcher.states(cells).values())
    print(
      f'interrupted: {done} of {len(cells)} cells are done; the same command '
      'goes on with the others',
      file=sys.stderr,
    )
    sys.exit(130)


def show(
  workdir: pathlib.Path, cells: Sequence[Cell], states: Mapping[str, State]
) -> None:
  """Writes the report and says where it is."""
  if not workdir.is_dir():
    for cell in cells:
      print(f'{cell.name}: {states[cell.name]}')
    print(f'{workdir} is not on this machine: there is no report')
    return
  print(f'\n{report.write(workdir, _CONFIG.value, cells, states)}')
  print(f'table        {workdir / "sweep.md"}, {workdir / "sweep.csv"}')
  print(f'TensorBoard  tensorboard --logdir {workdir / "hparams"}')


if __name__ == '__main__':
  app.run(main)
