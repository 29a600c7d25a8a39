"""launch/local.sh: arguments, exit status, and no processes left."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from tests.launch.processes import assert_gone

ROOT = pathlib.Path(__file__).parents[2]
LOCAL = str(ROOT / 'launch' / 'local.sh')

# Says what it was given and its own number and that of a child, then waits. If
# it was given a path, process 1 fails when there is such a file.
CHILD = """
import os, signal, subprocess, sys, time
what, mine = sys.argv[1], sys.argv[-1].removeprefix('--process_id=')
child = subprocess.Popen(['sleep', '600']) if what != 'end' else None
text = f'pids {os.getpid()} {child.pid if child else 0} ' + ' '.join(sys.argv)
if what == 'deaf':
  for name in ('SIGINT', 'SIGTERM', 'SIGHUP'):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
try:  # From its first words on: an interrupt may come at once.
  os.write(1, (text + '\\n').encode())
  if what.startswith('/') and mine == '1':
    while not os.path.exists(what):
      time.sleep(0.05)
    sys.exit(5)
  time.sleep(600 if child else 0)
except KeyboardInterrupt:
  os.write(1, f'last words of {mine}\\n'.encode())
  sys.exit(1)
"""


def _restore_signals():
  """Restores the default handlers of signals.

  A background job, or one under nohup, inherits ignored signals, which a shell
  cannot trap.
  """
  for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(name, signal.SIG_DFL)


def start(count, behaviour, grace=20):
  return subprocess.Popen(
    [LOCAL, str(count), sys.executable, '-c', CHILD, behaviour],
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    env={**os.environ, 'GRACE_S': str(grace)},
    start_new_session=True,
    preexec_fn=_restore_signals,
  )


def read_pids(process, count):
  """Returns the ids of all processes, from the first line of each."""
  pids = []
  while len(pids) < 2 * count:
    line = process.stdout.readline()
    assert line, 'ended before all had started'
    if match := re.search(r'pids (\d+) (\d+) ', line):
      pids += map(int, match.groups())
  return pids


def test_each_process_is_told_who_it_is_and_where_they_meet():
  process = start(3, 'end')
  out, _ = process.communicate(timeout=60)
  assert process.returncode == 0
  lines = sorted(out.splitlines())
  assert [line.split('pids')[0] for line in lines] == ['[1] ', '[2] ', '']
  flags = [line.split(' end ')[1] for line in lines]
  pattern = (
    r'--distributed=flags --coordinator=127\.0\.0\.1:(\d+) '
    r'--num_processes=3 --process_id=(\d)'
  )
  groups = [re.fullmatch(pattern, text).groups() for text in flags]
  ports, ids = zip(*groups, strict=True)
  assert len(set(ports)) == 1 and ids == ('1', '2', '0')


def test_one_that_fails_ends_the_others_and_gives_its_status(tmp_path):
  process = start(3, str(tmp_path / 'fail'))
  pids = read_pids(process, 3)
  (tmp_path / 'fail').touch()
  assert process.wait(30) == 5
  assert_gone(pids)
  assert 'a process ended with status 5' in process.stdout.read()


@pytest.mark.parametrize(
  ('name', 'status'), [('SIGINT', 130), ('SIGTERM', 143), ('SIGHUP', 129)]
)
def test_a_signal_ends_all_and_their_children(name, status):
  process = start(2, 'wait')
  pids = read_pids(process, 2)
  process.send_signal(getattr(signal, name))
  assert process.wait(15) == status
  assert_gone(pids)
  if name == 'SIGINT':
    words = sorted(process.stdout.read().splitlines())
    assert words == ['[1] last words of 1', 'last words of 0']


def test_those_who_do_not_listen_are_killed_in_the_end():
  process = start(2, 'deaf', grace=1)
  pids = read_pids(process, 2)
  process.send_signal(signal.SIGTERM)
  assert process.wait(15) == 143
  assert_gone(pids)


def test_even_a_killed_script_leaves_nobody_behind():
  process = start(2, 'deaf')
  pids = read_pids(process, 2)
  process.kill()
  assert_gone(pids)


@pytest.mark.parametrize(
  'arguments', [(), ('2',), ('0', 'true'), ('x', 'true')]
)
def test_bad_calls_are_told_the_usage(arguments):
  done = subprocess.run(
    [LOCAL, *arguments], capture_output=True, text=True, check=False
  )
  assert done.returncode == 2
  assert done.stderr.startswith('usage: launch/local.sh N command')
