"""The smoke commands, as the README has them, end within minutes."""

import pathlib
import resource
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# The most seconds that each may take; beside other tests, which make it wait,
# seconds of the processor's time.
COMMANDS = {
  'mbpp_ppo': 120,
  'mbpp_grpo': 120,
  'prewrite': 120,
  'joint': 120,
  'sft_rewriter': 120,
  'rewrite': 120,
  'hybrid': 120,
  'compare': 180,
}
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(('name', 'most_s'), COMMANDS.items())
def test_a_smoke_run_ends_in_time(name, most_s, tmp_path):
  started = time.perf_counter(), processor_seconds()
  done = subprocess.run(
    [
      sys.executable,
      '-m',
      f'experiments.{name}',
      f'--config=configs/{name}.py:smoke',
      f'--workdir={tmp_path / "run"}',
    ],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=3 * most_s,
  )
  ended = time.perf_counter(), processor_seconds()
  taken = [b - a for a, b in zip(started, ended, strict=True)]
  print(f'{name}: {taken[0]:.0f} s, {taken[1]:.0f} s of the processor')
  assert done.returncode == 0, done.stderr[-3000:]
  assert list((tmp_path / 'run').iterdir())
  assert min(taken) < most_s


def processor_seconds():
  """Seconds that processes which were started here have used in all."""
  usage = resource.getrusage(resource.RUSAGE_CHILDREN)
  return usage.ru_utime + usage.ru_stime
