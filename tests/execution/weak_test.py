"""The pool on a machine that cannot confine programs."""

from __future__ import annotations

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]

# Gives up namespaces, Landlock and filters of system calls.
WEAKEN = """
import ctypes, logging, sys
logging.basicConfig(format='%(levelname)s %(message)s')
from promptrl_jax.execution import (
  ExecutionPool, Program, TooWeakError, __main__, kernel, seccomp)
kernel.forbid_privileges()
kernel.drop_capabilities()
column = ['x86_64', 'aarch64'].index(kernel.machine())
refused = [(272, 97)[column], 444]
jumps = [(0x15, len(refused) + 3 - i, 0, n) for i, n in enumerate(refused)]
program = seccomp._packed([
  (0x20, 0, 0, 0), *jumps,
  (0x15, 0, 2, (157, 167)[column]),  # prctl(PR_SET_SECCOMP)
  (0x20, 0, 0, 16),
  (0x15, 1, 0, 22),
  (0x06, 0, 0, 0x7FFF0000),
  (0x06, 0, 0, 0x00050001),
])
kernel.prctl(22, 2, ctypes.addressof(program))
RIGHT = Program('def f(x): return x', ('assert f(1) == 1',))
"""


def run(script):
  return subprocess.run(
    [sys.executable, '-c', WEAKEN + script],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=60,
    check=False,
  )


def test_programs_are_not_run_and_the_error_says_why():
  result = run("""
try:
  ExecutionPool(workers=1).run([RIGHT])
except TooWeakError as error:
  print(error)
""")
  assert result.returncode == 0, result.stderr
  for word in ('no seccomp', 'no Landlock', 'allow_weak', 'namespaces none'):
    assert word in result.stdout


def test_they_are_run_on_demand_with_a_warning_at_each_start():
  result = run("""
for _ in range(2):
  with ExecutionPool(workers=1, allow_weak=True) as pool:
    print(pool.run([RIGHT])[0].status)
""")
  assert result.stdout.split() == ['passed', 'passed'], result.stderr
  assert result.stderr.count('WARNING programs cannot be confined here') == 2


def test_the_probe_says_no():
  result = run("sys.exit(__main__.main(['--probe']))")
  assert result.returncode == 1
  assert 'enough      no: without seccomp' in result.stdout
