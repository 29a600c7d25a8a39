import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def test_a_workdir_without_a_model_is_an_error_of_one_line(tmp_path):
  done = subprocess.run(
    [
      sys.executable,
      '-m',
      'promptrl_jax.tools.minicode_models',
      f'--coder={tmp_path}',
    ],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert done.returncode == 1
  assert done.stderr.splitlines()[-1].startswith('error: ')
  assert str(tmp_path) in done.stderr
  assert 'Traceback' not in done.stderr
