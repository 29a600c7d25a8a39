"""The smoke commands, as the README has them, end within two minutes."""

import pathlib
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
COMMANDS = (
  'mbpp_ppo',
  'mbpp_grpo',
  'prewrite',
  'joint',
  'sft_rewriter',
  'rewrite',
)
pytestmark = pytest.mark.slow


@pytest.mark.parametrize('name', COMMANDS)
def test_a_smoke_run_ends_within_two_minutes(name, tmp_path):
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
  assert taken < 120
