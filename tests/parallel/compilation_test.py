"""A second process finds what the first one has compiled."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = """
import sys
from promptrl_jax.parallel import compilation
compilation._MIN_SECONDS = 0.0
compilation.use_cache(sys.argv[1] if len(sys.argv) > 1 else None)
import jax
hits = []
jax.monitoring.register_event_listener(
  lambda name, **_: hits.append(name.endswith('cache_hits')))
print(float(jax.jit(lambda x: (x * 2).sum())(jax.numpy.ones(7))), sum(hits))
"""


def run(*folder, **environment):
  done = subprocess.run(
    [sys.executable, '-c', SCRIPT, *folder],
    cwd=ROOT,
    env={'PATH': '/usr/bin:/bin', 'JAX_PLATFORMS': 'cpu', **environment},
    capture_output=True,
    text=True,
    check=True,
  )
  value, hits = done.stdout.split()
  assert float(value) == 14.0
  return int(hits)


def test_the_second_start_compiles_nothing(tmp_path):
  assert run(str(tmp_path)) == 0
  assert list(tmp_path.iterdir())
  assert run(str(tmp_path)) > 0


def test_the_folder_comes_from_the_environment(tmp_path):
  run(PROMPTRL_COMPILATION_CACHE=str(tmp_path / 'here'))
  assert list((tmp_path / 'here').iterdir())


def test_a_home_that_cannot_be_written_to_is_no_reason_to_stop(tmp_path):
  (tmp_path / 'file').write_text('')
  assert run(str(tmp_path / 'file' / 'cache')) == 0
