import pytest

from tests.experiments import commands


@pytest.mark.slow
def test_a_workdir_without_a_model_is_an_error_of_one_line(tmp_path):
  done = commands.run(
    'promptrl_jax.tools.minicode_models', f'--coder={tmp_path}'
  )
  assert done.returncode == 1
  assert done.stderr.splitlines()[-1].startswith('error: ')
  assert str(tmp_path) in done.stderr
  assert 'Traceback' not in done.stderr
