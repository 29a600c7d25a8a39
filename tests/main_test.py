"""The report of an installation, `python -m promptrl_jax`."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import jax
import pytest

import promptrl_jax
from promptrl_jax import __main__ as main
from promptrl_jax.execution import Layers, process
from promptrl_jax.llm import load
from promptrl_jax.models import presets
from promptrl_jax.tasks.minicode.suite import SUITE
from promptrl_jax.tasks.minicode2.suite import SUITE as SUITE_2

ROOT = pathlib.Path(__file__).parents[1]
TITLES = ['versions', 'devices', 'backends', 'extras', 'models', 'sandbox']


@pytest.fixture(scope='module')
def sections():
  return main.report()


def test_the_command_prints_the_report_as_json():
  done = subprocess.run(
    [sys.executable, '-m', 'promptrl_jax', '--json'],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=60,
    check=True,
  )
  printed = json.loads(done.stdout)
  assert list(printed) == TITLES
  assert not any('error' in section for section in printed.values())


def test_text_and_json_say_the_same(sections, capsys, monkeypatch):
  monkeypatch.setattr(main, 'report', lambda: sections)
  assert main.main(['--json']) == 0
  printed = json.loads(capsys.readouterr().out)
  assert main.main([]) == 0
  text = capsys.readouterr().out
  assert [line for line in text.splitlines() if line[0] != ' '] == TITLES
  for section in printed.values():
    for name, value in section.items():
      shown = 'yes' if value is True else str(value)
      if isinstance(value, list):
        shown = ', '.join(value) or 'none'
      assert f'{name} {shown}' in ' '.join(text.split())


def test_values_are_aligned_and_wrapped():
  text = main.to_text(
    {'a': {'x': True, 'long': ['word'] * 20}, 'b': {'empty': [], 'no': False}}
  )
  assert text == (
    'a\n'
    '  x      yes\n'
    f'  long   {", ".join(["word"] * 12)},\n'
    f'         {", ".join(["word"] * 8)}\n'
    'b\n'
    '  empty  none\n'
    '  no     no'
  )


def test_versions_and_devices_are_those_of_this_process(sections):
  assert sections['versions']['promptrl_jax'] == promptrl_jax.__version__
  assert sections['versions']['jax'] == jax.__version__
  assert sections['devices']['platform'] == jax.default_backend()
  assert len(sections['devices']['devices']) == len(jax.devices())


def test_models_name_each_embedded_one_and_the_suite(sections):
  models = sections['models']
  embedded = {folder.name for folder in load.ASSETS.iterdir()}
  assert models.keys() == embedded | {'presets', 'minicode', 'minicode2'}
  assert models['presets'].startswith(f'{len(presets.PRESETS)}: ')
  assert SUITE.digest in models['minicode']
  assert SUITE_2.digest in models['minicode2']
  assert '1,869,504 parameters' in models['minicode_coder']
  assert '67fc99f70786d5e1' in models['minicode_coder']


def test_every_kind_of_backend_is_reported(sections):
  kinds = {'jax', 'http', 'ollama', 'replay', 'templated'}
  assert set(sections['backends']) == set(load.BACKENDS) == kinds


def test_an_extra_lacks_what_its_requirements_extras_lack(monkeypatch):
  requirements = {
    'promptrl_jax': [
      'jax>=0.8',
      'jax[cuda]>=0.8; extra == "gpu"',
      'pytest; extra == "dev"',
      'absent-two; extra == "dev"',
      'absent-three; extra == "dev" and python_version < "3"',
    ],
    'jax': ['absent-base', 'absent-plugin; extra == "cuda"'],
  }
  monkeypatch.setattr(main.metadata, 'requires', requirements.get)
  assert list(main._missing('promptrl_jax', 'gpu')) == ['absent-plugin']
  assert list(main._missing('promptrl_jax', 'dev')) == ['absent-two']


def test_a_part_that_fails_leaves_the_others(sections, monkeypatch):
  def fail():
    raise RuntimeError('no interpreter')

  monkeypatch.setattr(process, 'probe', fail)
  report = main.report()
  assert report['sandbox'] == {'error': 'RuntimeError: no interpreter'}
  assert report['versions'] == sections['versions']


def test_a_sandbox_that_is_not_enough_says_what_it_lacks(monkeypatch):
  monkeypatch.setattr(process, 'probe', Layers)
  sandbox = main.report()['sandbox']
  assert sandbox['enough'].startswith('no: without seccomp')
  assert sandbox['user'] == 'own'
