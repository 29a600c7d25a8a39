"""The package: public names, metadata, and a wheel outside of the checkout."""

from __future__ import annotations

import ast
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile

import pytest
import yaml

import promptrl_jax
from promptrl_jax import execution, types
from tests import scripts
from tests.processor import slowness

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / 'promptrl_jax'
HEAVY = ('jax', 'flax', 'optax', 'numpy', 'transformers')


def test_type_checkers_see_the_public_names():
  tree = ast.parse((PACKAGE / '__init__.py').read_text(encoding='utf-8'))
  (block,) = (node for node in tree.body if isinstance(node, ast.If))
  seen = {}
  for node in block.body:
    assert isinstance(node, ast.ImportFrom) and node.module
    home = node.module.removeprefix('promptrl_jax').lstrip('.')
    for alias in node.names:
      assert alias.asname == alias.name, 'without `as` it is not exported'
      seen[alias.name] = home or alias.name
  assert seen == promptrl_jax._HOMES


@pytest.mark.parametrize('name', promptrl_jax._HOMES)
def test_a_public_name_is_what_its_home_defines(name):
  value = getattr(promptrl_jax, name)
  assert value.__name__.removeprefix('promptrl_jax.') == name
  assert name in dir(promptrl_jax)
  assert name in promptrl_jax.__all__


def test_a_public_name_is_the_object_itself():
  assert promptrl_jax.ExecutionPool is execution.ExecutionPool
  assert promptrl_jax.Task is types.Task


def test_an_unknown_name_is_refused_with_the_known_ones():
  with pytest.raises(
    AttributeError, match=r"'nope'; its public .*load_backend"
  ):
    promptrl_jax.nope  # noqa: B018


def test_what_starts_other_processes_imports_no_jax():
  names = scripts.found("""
import json, sys
import launch.local, launch.sweep
print(json.dumps(list(sys.modules)))
""")
  heavy = {'jax', 'flax', 'optax', 'orbax', 'matplotlib', 'transformers'}
  assert not {name.split('.')[0] for name in names} & heavy


def test_importing_the_package_alone_is_quick_and_imports_nothing_else():
  seconds, names = scripts.found("""
import json, sys, time
start = time.process_time()
import promptrl_jax
seconds = time.process_time() - start
print(json.dumps([seconds, list(sys.modules)]))
""")
  assert seconds < 0.2 * slowness()
  assert not {name.split('.')[0] for name in names} & {*HEAVY}
  assert [n for n in names if n.startswith('promptrl')] == ['promptrl_jax']


def test_programs_are_run_without_jax_in_any_process():
  names = scripts.found("""
import json, sys
from promptrl_jax import ExecutionPool, Program
import promptrl_jax.execution.process
code = 'import sys; f = lambda name: name in sys.modules'
program = Program(code, ("assert not f('jax')", "assert f('sys')"))
with ExecutionPool(workers=1) as pool:
  (result,) = pool.run([program])
assert result.status == 'passed', result
print(json.dumps(list(sys.modules)))
""")
  assert not {name.split('.')[0] for name in names} & {*HEAVY}


def test_the_citation_agrees_with_the_package():
  text = (ROOT / 'CITATION.cff').read_text(encoding='utf-8')
  citation = yaml.safe_load(text)
  assert citation['cff-version'] == '1.2.0'
  assert citation.keys() >= {'message', 'title', 'authors'}
  assert citation['version'] == promptrl_jax.__version__
  setup = (ROOT / 'setup.py').read_text(encoding='utf-8')
  assert f"license='{citation['license']}'" in setup


def test_the_notices_have_the_checksums_of_what_is_shipped():
  text = (ROOT / 'third_party' / 'README.md').read_text(encoding='utf-8')
  noted = dict(
    line.split('  ')[::-1]
    for line in re.findall(r'^[0-9a-f]{64}  .*$', text, re.M)
  )
  data = {'.safetensors', '.gz', '.txt'}
  shipped = {p for p in PACKAGE.rglob('*') if p.suffix in data}
  shipped |= set(PACKAGE.rglob('tokenizer.json'))
  assert noted == {
    path.relative_to(ROOT).as_posix(): hashlib.sha256(
      path.read_bytes()
    ).hexdigest()
    for path in shipped
  }


def build(source: pathlib.Path, kind: str, folder: pathlib.Path):
  """Builds an sdist or a wheel of a folder, without isolation or network."""
  script = (
    'import sys; from setuptools import build_meta; '
    'backend = build_meta.__legacy__; '
    f'print(backend.build_{kind}(sys.argv[1]))'
  )
  done = subprocess.run(
    [sys.executable, '-c', script, str(folder)],
    cwd=source,
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert done.returncode == 0, done.stderr[-3000:]
  return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope='module')
def wheel(tmp_path_factory) -> pathlib.Path:
  """A wheel that was built from the sdist of a clean copy of the checkout."""
  # Older ones build no wheel by themselves.
  pytest.importorskip('setuptools', minversion='77.0')
  folder = tmp_path_factory.mktemp('wheel')
  copy = folder / 'checkout'
  copy.mkdir()
  for name in ('promptrl_jax', 'third_party'):
    shutil.copytree(
      ROOT / name, copy / name, ignore=shutil.ignore_patterns('__pycache__')
    )
  for path in ROOT.iterdir():
    if path.is_file() and not path.name.startswith('.'):
      shutil.copy(path, copy)
  with tarfile.open(build(copy, 'sdist', folder)) as archive:
    archive.extractall(folder / 'unpacked', filter='data')
  (source,) = (folder / 'unpacked').iterdir()
  return build(source, 'wheel', folder)


@pytest.mark.slow
def test_a_wheel_has_every_file_of_the_package_and_the_notices(wheel):
  with zipfile.ZipFile(wheel) as archive:
    names = set(archive.namelist())
  package = {
    path.relative_to(ROOT).as_posix()
    for path in PACKAGE.rglob('*')
    if path.is_file() and '__pycache__' not in path.parts
  }
  assert {n for n in names if n.startswith('promptrl_jax/')} == package
  notices = {
    n for n in names if n.endswith(('LICENSE', 'third_party/README.md'))
  }
  assert len(notices) == 2
  assert {n.split('/')[0].split('.')[-1] for n in names} == {
    'promptrl_jax',
    'dist-info',
  }


OUTSIDE = """
import pathlib, sys
import jax, numpy as np
import promptrl_jax
from promptrl_jax import (
  BackendConfig, ExecutionPool, Message, Program, Request, load_backend)

assert pathlib.Path(promptrl_jax.__file__).is_relative_to(sys.prefix)
test = 'assert filter_sum_scale([14, 7, 9, 6, 5, 5]) == 252'
signature = 'def filter_sum_scale(nums):'
prompt = '\\n'.join([
  'Write a function to add up the numbers of a list that are at least 6 and '
  'multiply the sum by 7.', test, '###', signature])
coder = load_backend(
  BackendConfig('jax', 'minicode_coder'),
  jax.sharding.Mesh(np.asarray(jax.devices()), ('data',)))
(answer,) = coder.complete([Request((Message('user', prompt),), max_tokens=64)])
program = Program(signature + answer.text, (test,))
with ExecutionPool(workers=1) as pool:
  (result,) = pool.run([program])
assert result.status == 'passed', (answer, result)
"""


@pytest.mark.slow
def test_an_installed_wheel_samples_and_runs_programs(wheel, tmp_path):
  home = tmp_path / 'venv'
  venv.create(home, with_pip=False)
  python = home / 'bin' / 'python'
  site = run_outside(
    python, 'import sysconfig; print(sysconfig.get_path("purelib"))', tmp_path
  )
  with zipfile.ZipFile(wheel) as archive:
    archive.extractall(site)
  # Dependencies alone: a .pth file of theirs, as that of an editable
  # installation, is not read.
  dependencies = [path for path in sys.path if 'site-packages' in path]
  pathlib.Path(site, 'dependencies.pth').write_text(
    '\n'.join(dependencies), encoding='utf-8'
  )
  run_outside(python, OUTSIDE, tmp_path)
  report = run_outside(
    python, 'from promptrl_jax import __main__ as m; m.main([])', tmp_path
  )
  assert 'minicode_coder' in report


def run_outside(python: pathlib.Path, script: str, folder: pathlib.Path) -> str:
  """What a script prints that sees no variable of this process."""
  done = subprocess.run(
    [python, '-c', script],
    cwd=folder,
    env={'PATH': os.environ['PATH'], 'HOME': str(folder)},
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert done.returncode == 0, done.stderr[-3000:]
  return done.stdout.strip()
