"""Cells as local processes: states, resumption, cancellation, no orphans."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from launch.cells import Cell, State, check_same, last_line
from launch.local import LocalLauncher
from promptrl_jax import files
from tests.launch.processes import DONE, assert_gone, make, wait, wait_for

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def start():
  """Returns launchers, whose cells end with the test."""
  with contextlib.ExitStack() as stack:

    def start(parallel=1, grace_s=20.0):
      launcher = LocalLauncher(parallel, grace_s)
      stack.callback(launcher.close)
      return launcher

    yield start


@pytest.fixture
def launcher(start):
  return start()


def test_a_cell_is_done_when_its_results_are_there(launcher, tmp_path):
  cells = [make(tmp_path, DONE, 'a'), make(tmp_path, 'true', 'b')]
  assert launcher.states(cells) == {
    'a': State('missing'),
    'b': State('missing'),
  }
  launcher.submit(cells)
  states = wait(launcher, cells)
  assert states['a'] == State('done')
  # The status of a process says nothing: there are no results.
  assert states['b'].kind == 'failed'
  assert not files.is_held(cells[0].folder)


def test_a_failure_has_the_last_line_of_the_log(launcher, tmp_path):
  script = (
    'echo first; printf "10%%\\r20%%\\r"; echo "error: no data" >&2; echo'
  )
  cell = make(tmp_path, script + '; exit 3')
  launcher.submit([cell])
  assert wait(launcher, [cell]) == {'cell': State('failed', 'error: no data')}


@pytest.mark.parametrize(
  ('command', 'detail'),
  [
    (('sh', '-c', 'kill -9 $$'), 'ended by SIGKILL'),
    (('/no/such/program',), 'No such file'),
  ],
)
def test_what_cannot_speak_for_itself_has_a_reason(
  launcher, tmp_path, command, detail
):
  cell = Cell('cell', tmp_path / 'cell', command)
  launcher.submit([cell])
  state = wait(launcher, [cell])['cell']
  assert state.kind == 'failed' and detail in state.detail


def test_the_error_that_ended_a_python_program_is_its_last_line(
  launcher, tmp_path
):
  script = "import sys; print('a table'); sys.exit('error: no data')"
  cell = Cell('cell', tmp_path / 'cell', (sys.executable, '-c', script))
  launcher.submit([cell])
  assert wait(launcher, [cell]) == {'cell': State('failed', 'error: no data')}


def test_nothing_runs_without_the_guard(launcher, tmp_path):
  cells = [make(tmp_path, f'sleep 0.5; {DONE}', name) for name in 'ab']
  launcher.submit(cells)
  wait_for(cells[0].log)
  while launcher._guard is None:
    time.sleep(0.01)
  launcher._guard.kill()
  launcher._guard.wait()
  states = wait(launcher, cells)
  assert states['a'] == State('done')
  assert states['b'].kind == 'failed' and 'Broken pipe' in states['b'].detail


def test_a_folder_that_cannot_be_made_is_a_failure(launcher, tmp_path):
  (tmp_path / 'cell').write_text('a file')
  cell = make(tmp_path, DONE)
  launcher.submit([cell])
  with pytest.raises(OSError, match='cell'):
    launcher.states([cell])


def test_as_many_run_at_a_time_as_were_asked_for(start, tmp_path):
  launcher = start(parallel=2)
  # A shell forgets an interrupt that comes between two commands, but no trap.
  script = 'trap "trap - INT; kill -s INT $$" INT; sleep 600 & '
  script += 'touch "$0/ready"; wait'
  a, b, c = (make(tmp_path, script, name) for name in 'abc')
  launcher.submit([a, b, c])
  for cell in (a, b):
    wait_for(cell.workdir / 'ready')
  assert launcher.states([a, b, c]) == {
    'a': State('running'),
    'b': State('running'),
    'c': State('pending'),
  }
  launcher.cancel([a])
  wait_for(c.workdir / 'ready')  # It has the place of the first.
  assert launcher.states([a, b, c]) == {
    'a': State('failed', 'ended by SIGINT'),
    'b': State('running'),
    'c': State('running'),
  }


def test_a_cell_that_was_cancelled_before_it_ran_is_missing(launcher, tmp_path):
  cells = [make(tmp_path, 'sleep 600', 'a'), make(tmp_path, DONE, 'b')]
  launcher.submit(cells)
  wait(launcher, cells[:1], ['running'])
  launcher.cancel(cells)
  states = launcher.states(cells)
  assert states['a'].kind == 'failed' and states['b'] == State('missing')
  launcher.submit(cells[1:])
  assert wait(launcher, cells[1:]) == {'b': State('done')}


def test_an_interrupted_cell_may_save_its_state(launcher, tmp_path):
  script = f'trap "{DONE.replace(chr(34), chr(92) + chr(34))}; exit" INT; '
  cell = make(tmp_path, script + 'touch "$0/ready"; sleep 600 & wait')
  launcher.submit([cell])
  wait_for(cell.workdir / 'ready')
  launcher.cancel([cell])
  assert launcher.states([cell]) == {'cell': State('done')}


def test_one_that_does_not_listen_is_killed(start, tmp_path):
  launcher = start(grace_s=0.3)
  cell = make(tmp_path, 'trap "" INT; touch "$0/ready"; sleep 600; sleep 600')
  launcher.submit([cell])
  wait_for(cell.workdir / 'ready')
  launcher.close()
  assert launcher.states([cell])['cell'].detail == 'ended by SIGKILL'


def test_what_a_cell_leaves_behind_ends_with_it(launcher, tmp_path):
  cell = make(tmp_path, f'sleep 600 & echo $! > "$0/child"; {DONE}')
  launcher.submit([cell])
  assert wait(launcher, [cell]) == {'cell': State('done')}
  assert_gone([int((cell.workdir / 'child').read_text())])


def test_two_sweeps_share_the_work(start, tmp_path):
  # Each run of a cell adds a line.
  script = f'echo run >> "$0/runs"; sleep 0.3; {DONE}'
  cells = [make(tmp_path, script, name) for name in 'abc']
  both = start(), start()
  for each in both:
    each.submit(cells)
  for each in both:
    wait(each, cells, ['done'])
  for cell in cells:
    assert (cell.workdir / 'runs').read_text() == 'run\n'


def test_a_workdir_belongs_to_one_command(launcher, tmp_path):
  cell = make(tmp_path, DONE)
  launcher.submit([cell])
  wait(launcher, [cell])
  check_same([cell])
  check_same([Cell('cell', cell.workdir, ('bash', *cell.command[1:]))])
  with pytest.raises(ValueError, match='belongs to another command'):
    check_same([make(tmp_path, 'true')])


def test_the_last_line_of_a_large_log_is_found_at_its_end(tmp_path):
  log = tmp_path / 'log'
  log.write_bytes(b'x' * 10_000 + b'\n\xffend  \n\n')
  assert last_line(log) == '�end'
  log.write_bytes(b'')
  assert last_line(log) == ''


SWEEP = """
import pathlib, sys
from launch import sweep
from launch.cells import Cell
from launch.local import LocalLauncher
def make(name, script):
  workdir = pathlib.Path(sys.argv[1], name)
  return Cell(name, workdir, ('sh', '-c', script, str(workdir)))
LONG = 'sleep 600 & echo $$ $! > "$0/new"; mv "$0/new" "$0/pids"; wait'
cells = [make('done', 'echo {} > "$0/results.json"')]
sweep.run(LocalLauncher(2), cells + [make(name, LONG) for name in 'ab'])
"""


def start_sweep(folder):
  """Starts a sweep in a process; returns it and the processes of its cells."""
  process = subprocess.Popen(
    [sys.executable, '-c', SWEEP, str(folder)],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    start_new_session=True,
  )
  pids = []
  try:
    for name in 'ab':
      path = folder / name / 'pids'
      wait_for(path, 240.0)  # It imports much.
      pids += map(int, path.read_text().split())
  except AssertionError:
    process.kill()
    raise
  return process, pids


@pytest.mark.parametrize('whom', ['process', 'group'])
def test_a_killed_sweep_leaves_nobody_behind(tmp_path, whom):
  process, pids = start_sweep(tmp_path)
  kill = os.kill if whom == 'process' else os.killpg
  kill(process.pid, signal.SIGKILL)
  process.communicate(timeout=30)
  assert_gone(pids)
  # The next one sees what there is: no cell runs any more.
  cell = make(tmp_path, '', 'a')
  assert LocalLauncher().states([cell])['a'].kind == 'failed'


def test_an_interrupted_sweep_ends_its_cells_and_says_how_to_go_on(tmp_path):
  process, pids = start_sweep(tmp_path)
  process.send_signal(signal.SIGINT)
  out, errors = process.communicate(timeout=30)
  assert process.returncode == 130
  assert '1 of 3 cells are done; the same command goes on' in errors
  assert 'Traceback' not in errors
  assert '3 of 3 cells are submitted\n' in out and 'a: running\n' in out
  assert_gone(pids)
  record = json.loads((tmp_path / 'a' / 'launch' / 'cell.json').read_text())
  assert record['command'][0] == 'sh'
