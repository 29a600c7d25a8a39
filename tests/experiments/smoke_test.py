"""The smoke commands, as the README has them, end within minutes."""

import pathlib
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# The most seconds that each may take.
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
pytestmark = [pytest.mark.slow, pytest.mark.timed]


@pytest.mark.parametrize(('name', 'most_s'), COMMANDS.items())
def test_a_smoke_run_ends_in_time(name, most_s, tmp_path):
  started = time.perf_counter()
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
    timeout=600,
  )
  taken = time.perf_counter() - started
  print(f'{name}: {taken:.0f} s')
  assert done.returncode == 0, done.stderr[-3000:]
  assert list((tmp_path / 'run').iterdir())
  assert taken < most_s
