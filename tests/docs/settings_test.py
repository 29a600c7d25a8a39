"""Settings that the documentation names exist, and a comparison's are named."""

import importlib
import itertools
import pathlib
import re

from configs.compare import Config

ROOT = pathlib.Path(__file__).parents[2]
DOCS = [ROOT / 'README.md', *sorted((ROOT / 'docs').glob('*.md'))]


def settings_of(config, prefix=''):
  """Yields the names of all settings, such as `coder.http.base_url`."""
  for name, value in config.items():
    yield f'{prefix}{name}'
    if hasattr(value, 'items'):
      yield from settings_of(value, f'{prefix}{name}.')


def known():
  """Names of the settings of all jobs, with all arguments of their configs."""
  found = set()
  for path in (ROOT / 'configs').glob('*.py'):
    module = importlib.import_module(f'configs.{path.stem}')
    if path.stem in ('saved', 'job', '__init__'):
      continue  # no jobs of their own
    names = [getattr(module, n, ()) for n in ('_ARGUMENTS', 'ARGUMENTS')]
    found |= set(settings_of(module.get_config()))
    for argument in itertools.chain(*names):
      found |= set(settings_of(module.get_config(argument)))
  return found


def test_flags_of_the_documentation_exist():
  flags = {
    (path.name, name)
    for path in DOCS
    for name in re.findall(r'--config\.([\w.]*\w)', path.read_text())
  }
  assert len(flags) > 50
  exist = known()
  wrong = {(page, name) for page, name in flags if name not in exist}
  assert wrong == {('joint.md', 'arms.NAME')}  # NAME stands for several


def test_settings_of_a_comparison_are_documented():
  text = (ROOT / 'docs' / 'strategies.md').read_text()
  named = set(re.findall(r'`([\w.]+)(?:=[^`]*)?`', text))
  assert {*vars(Config)['__annotations__'], 'eval.without'} <= named
