"""Imports run one way, as the list below says."""

import ast
import importlib
import pathlib
import types

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / 'promptrl_jax'

# A room may import itself and the rooms before it.
ROOMS = (
  'files',
  'extras',
  'settings',
  'registry',
  'types',
  'feedback',
  'execution',
  'prompts',
  'tasks',
  'parallel',
  'models',
  'sampling',
  'rl',
  'rewards',
  'llm',
  'operators',
  'evolution',
  'envs',
  'strategies',
  'training',
  'evaluation',
  'testing',
  'tools',
  '__init__',  # the public names of all rooms
  '__main__',
)
RANK = {room: i for i, room in enumerate(ROOMS)}
# Arrows that still run back up.
KNOWN = set()
HOST_ONLY = {
  'tasks',
  'prompts',
  'feedback',
  'execution',
  'types',
  'files',
  'registry',
}
SOURCES = sorted(PACKAGE.rglob('*.py'))


def imported(path):
  """Dotted names of everything that a module imports."""
  for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, f'{path}: relative import'
      yield node.module
      yield from (f'{node.module}.{alias.name}' for alias in node.names)


def room_of(path):
  return path.relative_to(PACKAGE).parts[0].removesuffix('.py')


@pytest.mark.parametrize('path', SOURCES, ids=lambda p: str(p.name))
def test_a_room_imports_only_rooms_below_it(path):
  room = room_of(path)
  for name in imported(path):
    if name.startswith('promptrl_jax.'):
      other = name.split('.')[1]
      if (room, other) not in KNOWN:
        assert RANK[other] <= RANK[room], f'{path}: {room} imports {other}'


@pytest.mark.parametrize('path', SOURCES, ids=lambda p: str(p.name))
def test_host_rooms_do_not_import_jax(path):
  if room_of(path) in HOST_ONLY:
    heavy = {'jax', 'flax', 'optax', 'chex', 'orbax'}
    assert not {name.split('.')[0] for name in imported(path)} & heavy


def test_rl_imports_jax_and_chex_only():
  standard = {'__future__', 'collections', 'functools', 'inspect', 'typing'}
  allowed = {*standard, 'jax', 'chex'}
  for path in (PACKAGE / 'rl').glob('*.py'):
    for name in imported(path):
      inside = name.startswith('promptrl_jax.rl')
      assert inside or name.split('.')[0] in allowed, f'{path}: {name}'


def test_every_room_is_known():
  rooms = {room_of(path) for path in SOURCES}
  assert rooms <= RANK.keys()


def test_libraries_do_not_see_config_dicts():
  for path in SOURCES:
    seen = any(n.startswith('ml_collections') for n in imported(path))
    assert seen == (path.name == 'settings.py'), path


JOBS = sorted(
  p for d in ('experiments', 'configs') for p in (ROOT / d).rglob('*.py')
)


@pytest.mark.parametrize('path', JOBS, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_a_job_takes_from_a_module_is_there(path):
  """Jobs take hours to come to a line; no type checker reads them."""
  tree = ast.parse(path.read_text(encoding='utf-8'))
  modules = {}
  for node in ast.walk(tree):
    if isinstance(node, ast.ImportFrom) and is_ours(node.module):
      parent = importlib.import_module(node.module)
      for alias in node.names:
        name = f'{node.module}.{alias.name}'
        if not hasattr(parent, alias.name):
          importlib.import_module(name)
        value = getattr(parent, alias.name)
        if isinstance(value, types.ModuleType):
          modules[alias.asname or alias.name] = value
  for node in ast.walk(tree):
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
      module = modules.get(node.value.id)
      if module is not None:
        assert hasattr(module, node.attr), f'{node.value.id}.{node.attr}'


def is_ours(module):
  """Whether it can be imported here: jobs define the same flags."""
  return module.split('.')[0] == PACKAGE.name
