"""Starting, losing and ending worker processes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from promptrl_jax.execution import ExecutionPool, Limits, Program, process

RIGHT = Program('def f(x): return x', ('assert f(1) == 1',))
SCRATCH = pathlib.Path('/dev/shm')

# Leaves its session without being waited for.
DAEMONS = """
import os, threading, time
def f(x):
  threading.Thread(target=time.sleep, args=(300,)).start()
  for _ in range(10):
    try:
      if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: time.sleep(300)
        os._exit(0)
    except PermissionError:
      pass
  return x
"""


def processes(trainer: int) -> list[int]:
  """Finds the processes of one trainer's pools by their scratch directory."""
  pids = []
  mark = f'promptrl-execution-{trainer}-'.encode()
  for path in pathlib.Path('/proc').iterdir():
    if path.name.isdigit():
      try:
        if mark in (path / 'cmdline').read_bytes():
          pids.append(int(path.name))
      except OSError:
        continue
  return pids


def gone_within(seconds: float, find) -> bool:
  deadline = time.monotonic() + seconds
  while find():
    if time.monotonic() > deadline:
      return False
    time.sleep(0.02)
  return True


@pytest.fixture
def before():
  """Processes of the pools that other tests keep open."""
  return set(processes(os.getpid()))


def new(before):
  return set(processes(os.getpid())) - before


def of_one_worker() -> int:
  """Number of processes of an idle worker: one judge, one or two zygotes."""
  with ExecutionPool(workers=1) as pool:
    return 3 if 'pid' in pool.layers.namespaces else 2


def test_workers_start_with_the_first_run_and_end_with_close(before):
  count = of_one_worker()
  pool = ExecutionPool(workers=2)
  assert not new(before)
  assert pool.run([RIGHT])[0].passed
  assert len(new(before)) == count  # Of one worker; the other is idle.
  folders = list(SCRATCH.glob(f'promptrl-execution-{os.getpid()}-*'))
  pool.close()
  assert not new(before)
  left = list(SCRATCH.glob(f'promptrl-execution-{os.getpid()}-*'))
  assert len(left) < len(folders)
  pool.close()
  with pytest.raises(RuntimeError, match='closed'):
    pool.run([RIGHT])


def test_a_worker_starts_quickly():
  start = time.monotonic()
  with ExecutionPool(workers=1) as pool:
    pool.run([RIGHT])
    assert time.monotonic() - start < 2  # 0.07 s on a quiet machine.


def test_what_a_program_starts_is_gone_when_its_result_is_there(before):
  count = of_one_worker()
  with ExecutionPool(workers=1) as pool:
    assert pool.run([Program(DAEMONS, RIGHT.tests)])[0].passed
    assert len(new(before)) == count


def test_a_worker_that_is_killed_is_replaced_and_its_program_tried_again(
  before,
):
  code = 'import time\ntime.sleep(0.02)\ndef f(x): return x #'
  programs = [Program(f'{code}{i}', RIGHT.tests) for i in range(40)]
  with ExecutionPool(workers=2) as pool:
    results = []
    thread = threading.Thread(target=lambda: results.extend(pool.run(programs)))
    thread.start()
    time.sleep(0.25)
    victims = new(before)
    judges = [p for p in victims if parent(p) == os.getpid()]
    assert judges
    os.kill(judges[0], signal.SIGKILL)
    thread.join(20)
    assert [r.status for r in results] == ['passed'] * 40


def parent(pid: int) -> int | None:
  """None once the process is gone, because candidates end all the time."""
  try:
    stat = pathlib.Path(f'/proc/{pid}/stat').read_text()
  except (FileNotFoundError, ProcessLookupError):
    return None
  return int(stat.rpartition(')')[2].split()[1])


def test_a_worker_that_is_killed_between_two_runs_is_replaced(before):
  with ExecutionPool(workers=1) as pool:
    pool.run([RIGHT])
    for pid in new(before):
      # All processes of a namespace end with its first one.
      with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    assert pool.run([RIGHT])[0].passed


@pytest.mark.parametrize(
  'attempt',
  [
    'os.fork()',
    'os.kill(os.getppid(), 9)',
    'os.kill(-1, 9)',
    'os.killpg(os.getpgid(os.getppid()), 9)',
    'os.pidfd_open(os.getppid())',
    'signal.pthread_kill(os.getppid(), 9)',
    'subprocess.run(["/bin/true"])',
    'os.execv("/bin/true", ["true"])',
    'fcntl.fcntl(1, fcntl.F_SETOWN, os.getppid())',
  ],
)
def test_a_program_starts_and_signals_nothing(before, attempt):
  code = f"""
import fcntl, os, signal, subprocess
def f(x):
  if x: {attempt}
  return x"""
  with ExecutionPool(workers=1) as pool:
    pool.run([RIGHT])
    started = new(before)
    tests = ('assert f(0) == 0', 'assert f(1) == 1', *RIGHT.tests)
    result, after = pool.run([Program(code, tests), RIGHT])
    assert [t.status for t in result.tests] in (
      ['passed', 'error', 'error'],
      ['passed', 'crash', 'crash'],
    ), result
    assert after.passed
    assert new(before) == started


def test_a_comparison_without_end_does_not_hang_the_pool(monkeypatch):
  monkeypatch.setattr(process, '_JUDGE_CPU_S', 0.3)
  endless = Program(RIGHT.code, ('assert sum(range(f(10 ** 11))) == 1',))
  with ExecutionPool(workers=1) as pool:
    results = pool.run([endless, RIGHT])
  assert [r.status for r in results] == ['infra_error', 'passed']


def test_a_greedy_comparison_is_invalid(pool):
  greedy = Program(RIGHT.code, ('assert [0] * f(10 ** 10) == 1',))
  assert pool.run([greedy])[0].status == 'invalid'


@pytest.mark.parametrize(
  'sign', [signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
)
def test_nothing_is_left_when_the_trainer_is_killed(sign):
  script = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from promptrl_jax.execution import ExecutionPool, Limits, Program
code = {DAEMONS!r}.replace('return x', 'print(flush=True); time.sleep(300)')
pool = ExecutionPool(workers=2, limits=Limits(idle_s=200, wall_s=200))
print('running', flush=True)
pool.run([Program(code + str(i), ('assert f(1) == 1',)) for i in range(2)])
"""
  trainer = subprocess.Popen(
    [sys.executable, '-c', script],
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    cwd=pathlib.Path(__file__).parents[2],
  )
  assert trainer.stdout is not None
  trainer.stdout.readline()
  # Two judges, two zygotes and two programs, at least.
  assert gone_within(10, lambda: len(processes(trainer.pid)) < 6)
  trainer.send_signal(sign)
  trainer.wait()
  trainer.stdout.close()
  assert gone_within(3, lambda: processes(trainer.pid))


def test_close_ends_a_run_in_another_thread(before):
  endless = Program('while True: pass', RIGHT.tests)
  pool = ExecutionPool(workers=1, limits=Limits(cpu_s=100))
  errors = []

  def run():
    try:
      pool.run([endless, RIGHT])
    except RuntimeError as error:
      errors.append(str(error))

  thread = threading.Thread(target=run)
  thread.start()
  time.sleep(0.3)
  pool.close()
  thread.join(5)
  assert len(errors) == 1
  assert 'closed' in errors[0]
  assert not new(before)


def test_several_threads_may_run_at_the_same_time(pool):
  results = {}

  def run(i):
    code = f'def f(x): return x + {i}'
    tests = tuple(f'assert f({j}) == {i + j}' for j in range(5))
    results[i] = pool.run([Program(code, tests)] + [RIGHT] * 3)

  threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(20)
  assert all(r.passed for i in range(8) for r in results[i])


def test_an_interpreter_that_does_not_start_is_reported(monkeypatch):
  monkeypatch.setattr(sys, 'executable', '/bin/false')
  pool = ExecutionPool(workers=1)
  with pytest.raises(RuntimeError, match=r'did not start.*exit status 1'):
    pool.run([RIGHT])
  pool.close()


def test_a_worker_that_does_not_listen_is_killed(tmp_path, monkeypatch):
  monkeypatch.setattr(process, '_STOP_S', 0.2)
  worker = process.WorkerProcess(str(tmp_path), threading.Event())
  pid = worker._process.pid
  os.kill(pid, signal.SIGSTOP)
  worker.stop()
  assert worker._process.returncode == -signal.SIGKILL
  with pytest.raises(process.LostError):
    worker.judge(RIGHT, Limits())
  assert not list(tmp_path.iterdir())


def test_a_worker_needs_an_interpreter(tmp_path, monkeypatch):
  monkeypatch.setattr(sys, 'executable', '')
  with pytest.raises(RuntimeError, match=r'sys\.executable is empty'):
    process.WorkerProcess(str(tmp_path), threading.Event())
