"""The compilation cache serves a second process."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = """
from promptrl_jax.parallel import compilation
compilation.MIN_SECONDS = 0.0
compilation.use_cache()
import jax
hits = []
jax.monitoring.register_event_listener(
  lambda name, **_: hits.append(name.endswith('cache_hits')))
print(float(jax.jit(lambda x: (x * 2).sum())(jax.numpy.ones(7))), sum(hits))
"""


def run(folder, **environment):
  done = subprocess.run(
    [sys.executable, '-c', SCRIPT],
    cwd=ROOT,
    env={
      'PATH': '/usr/bin:/bin',
      'JAX_PLATFORMS': 'cpu',
      'PROMPTRL_COMPILATION_CACHE': str(folder),
      **environment,
    },
    capture_output=True,
    text=True,
    check=True,
  )
  value, hits = done.stdout.split()
  assert float(value) == 14.0
  return int(hits)


def test_the_second_start_compiles_nothing(tmp_path):
  assert run(tmp_path / 'here') == 0
  assert list((tmp_path / 'here').iterdir())
  assert run(tmp_path / 'here') > 0


def test_a_folder_that_cannot_be_written_to_is_no_reason_to_stop(tmp_path):
  (tmp_path / 'file').write_text('')
  assert run(tmp_path / 'file' / 'cache') == 0


@pytest.mark.slow
def test_an_empty_name_turns_it_off():
  assert run('') == 0
  assert run('') == 0


@pytest.mark.slow
def test_a_cache_that_jax_was_given_is_kept(tmp_path):
  given = {
    'JAX_COMPILATION_CACHE_DIR': str(tmp_path / 'given'),
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
  }
  assert run(tmp_path / 'other', **given) == 0
  assert run(tmp_path / 'other', **given) > 0
  assert list((tmp_path / 'given').iterdir())
  assert not (tmp_path / 'other').exists()
