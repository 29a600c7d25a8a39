"""Attacks of candidates, on machines with different isolation layers."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess
import sys

import pytest

from promptrl_jax.execution import seccomp
from promptrl_jax.execution.layers import Layers

ROOT = pathlib.Path(__file__).parents[2]

# Gives up the privileges that the simulated machine lacks, then runs attacks in
# a pool. Prints the layers and what each attack returned.
SCRIPT = """
import ctypes, json, os, sys
from promptrl_jax.execution import ExecutionPool, Limits, Program
from promptrl_jax.execution import kernel, seccomp
machine, attacks = json.loads(sys.stdin.read())
if machine != 'as started':
  kernel.forbid_privileges()
  kernel.drop_capabilities()
if machine == 'no namespaces':
  column = ['x86_64', 'aarch64'].index(kernel.machine())
  program = seccomp._packed([
    (0x20, 0, 0, 0),
    (0x15, 0, 1, (272, 97)[column]),
    (0x06, 0, 0, 0x00050001),
    (0x06, 0, 0, 0x7FFF0000),
  ])
  kernel.prctl(22, 2, ctypes.addressof(program))
head = 'import os, sys, socket, ctypes, subprocess, threading, pathlib\\n'
programs = [
  Program(f'{head}{setup}\\ndef f(x): return bool({attack})',
          ('assert f(1) == False',))
  for setup, attack in attacks]
control = Program(
  'import json, math, random, re, unicodedata, zoneinfo, sqlite3, tempfile\\n'
  'def f(x):\\n'
  '  with tempfile.TemporaryFile(dir=".") as file: return file.write(x)',
  ('assert f(b"abc") == 3',))
with ExecutionPool(workers=1, limits=Limits(cpu_s=2)) as pool:
  results = pool.run([*programs, control])
  print(json.dumps([
    vars(pool.layers),
    [(r.status, r.tests[0].error_type, r.tests[0].message) for r in results],
  ]))
"""

# (statements, expression that is true if the attack succeeds)
ATTACKS = [
  ('', 'os.listdir("/")'),
  ('', 'os.listdir(os.path.expanduser("~root"))'),
  ('', 'open("/etc/passwd").read()'),
  ('', 'open("/proc/self/mem", "rb")'),
  ('', 'open("/proc/1/environ").read()'),
  ('', 'open("/dev/shm/planted", "w").write("x")'),
  ('', f'open({str(ROOT / "planted")!r}, "w").write("x")'),
  ('', f'open({os.__file__!r}, "a")'),
  ('', f'os.unlink({os.__file__!r}) is None'),
  ('', 'os.chmod(".", 0o777) is None'),
  ('', 'os.symlink("/etc/passwd", "x") or open("x").read()'),
  ('', 'os.link("/usr/bin/env", "x") is None'),
  ('', 'os.chroot(".") is None'),
  ('', 'os.mkfifo("x") is None'),
  ('', 'socket.create_connection(("127.0.0.1", 22), 1)'),
  ('', 'socket.socket(socket.AF_UNIX)'),
  ('', 'socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)'),
  ('', 'socket.socketpair(socket.AF_UNIX) and socket.socketpair(2)'),
  ('', 'os.fork() or True'),
  ('', 'os.posix_spawn("/bin/true", ["true"], {})'),
  ('', 'subprocess.run(["/bin/true"])'),
  ('', 'os.system("true") == 0'),
  ('', 'os.setuid(0) is None and os.stat("/root")'),
  ('', 'os.kill(os.getppid(), 0) is None'),
  ('', 'os.kill(-1, 0) is None'),
  ('', 'os.nice(-5)'),
  ('', 'os.sched_setaffinity(0, {0}) is None'),
  ('', 'os.memfd_create("x")'),
  ('', 'os.getxattr("/usr", "user.x") is not None'),
  ('c = ctypes.CDLL(None)', 'c.ptrace(16, os.getppid(), 0, 0) == 0'),
  ('c = ctypes.CDLL(None)', 'c.unshare(0x10000000) == 0'),
  ('c = ctypes.CDLL(None)', 'c.mount(b"x", b".", b"tmpfs", 0, None) == 0'),
  ('c = ctypes.CDLL(None)', 'c.prctl(22, 0) == 0'),
  ('c = ctypes.CDLL(None)', 'c.prctl(1, 0) == 0'),
  (
    'c = ctypes.CDLL(None)\nb = ctypes.create_string_buffer(256)',
    'c.syscall(425, 8, b) >= 0',
  ),
  (
    'import time\nthreading.stack_size(2**16)\n'
    't = [threading.Thread(target=time.sleep, args=[0.3]) for _ in range(400)]',
    '[x.start() for x in t] and time.sleep(0.1) is None',
  ),
  ('import fcntl', 'fcntl.fcntl(os.open(os.__file__, 0), 1024, 0) == 0'),
  ('', '[open(str(i), "wb").write(bytes(2**20)) for i in range(30)]'),
  ('', '[open(str(i), "wb").close() for i in range(5000)]'),
  ('c = ctypes.CDLL(None)', 'c.syscall(321, 0, 0, 0) >= 0'),
  ('c = ctypes.CDLL(None)', 'c.syscall(0x40000000 + 39) > 0'),
  (
    'c = ctypes.CDLL(None)\nb = ctypes.create_string_buffer(88)',
    'c.syscall(435, b, 88) == 0',
  ),
  ('c = ctypes.CDLL(None)', 'c.keyctl(0, -3, 1) >= 0'),
  ('c = ctypes.CDLL(None)', 'c.shmget(1, 4096, 0o1600) >= 0'),
  ('c = ctypes.CDLL(None)', 'c.msgget(1, 0o1600) >= 0'),
]


def attack(machine: str, attacks=ATTACKS):
  run = subprocess.run(
    [sys.executable, '-c', SCRIPT],
    input=json.dumps([machine, attacks]),
    capture_output=True,
    text=True,
    cwd=ROOT,
    timeout=120,
    check=False,
  )
  assert run.returncode == 0, run.stderr[-2000:]
  return json.loads(run.stdout)


@pytest.mark.parametrize(
  'machine', ['as started', 'no capabilities', 'no namespaces']
)
def test_no_attack_works(machine):
  layers, outcomes = attack(machine)
  *outcomes, control = outcomes
  assert control[0] == 'passed', control
  if machine == 'no namespaces':
    assert layers['namespaces'] == []
    assert not layers['root']
  # The kernel refused (`error`), the process was killed, or it returned False.
  worked = [
    (expression, outcome)
    for (_, expression), outcome in zip(ATTACKS, outcomes, strict=True)
    if outcome[0] not in ('error', 'crash', 'passed')
  ]
  assert not worked
  assert not (ROOT / 'planted').exists()
  assert not pathlib.Path('/dev/shm/planted').exists()


@pytest.mark.parametrize(
  'machine', ['as started', 'no capabilities', 'no namespaces']
)
def test_nothing_outlives_a_program(machine):
  plant = 'def plant():\n  try: open("../planted", "w").write("x")\n'
  plant += '  except OSError: pass\n  return False\nopen("here", "w")'
  find = 'def find(): return "planted" in os.listdir("..") or os.listdir(".")'
  find = f'{find}\n'
  _, outcomes = attack(machine, [(plant, 'plant()'), (find, 'find()')])
  assert [status for status, *_ in outcomes] == ['passed'] * 3, outcomes


def test_the_filter_refuses_machines_whose_calls_it_does_not_know():
  with pytest.raises(OSError, match='riscv64'):
    seccomp.of_zygote('riscv64')


@pytest.mark.parametrize('machine', ['x86_64', 'aarch64'])
@pytest.mark.parametrize(
  'of', [seccomp.of_zygote, functools.partial(seccomp.of_candidate, pid=7)]
)
def test_a_filter_is_well_formed(machine, of):
  program = of(machine)
  for place, (code, if_true, if_false, _) in enumerate(program):
    if code in (0x15, 0x35, 0x45):
      assert place + 1 + max(if_true, if_false) < len(program)
  assert program[-1][0] == 0x06
  assert len(program) < 4096


def test_the_required_minimum():
  assert Layers(landlock=1, seccomp=True).missing() == []
  assert Layers(('mount',), root=True, seccomp=True).missing() == []
  assert 'files' in Layers(('network',), seccomp=True).missing()[0]
  assert 'seccomp' in Layers(landlock=1).missing()[0]
