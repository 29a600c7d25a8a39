"""Configs: presets, round trips, one default each, and every field is read."""

import ast
import dataclasses
import functools
import importlib
import pathlib
import re

import pytest

from experiments import entrants
from promptrl_jax import registry, settings
from promptrl_jax.models import packaged
from promptrl_jax.strategies import base
from promptrl_jax.training import workdir

ROOT = pathlib.Path(__file__).parents[1]
PRESETS = [
  (stem, arg)
  for stem, args in {
    'mbpp_ppo': (
      *('smoke', 'quickstart', 'minicode2', 'minicode', 'mbpp', 'promis'),
      *('humaneval', 'mbpp_real'),
    ),
    'mbpp_grpo': (
      *('smoke', 'minicode', 'minicode2', 'algorithms', 'mbpp', 'mbpp_real'),
    ),
    'joint': ('smoke', 'minicode'),
    'compare': ('smoke', 'minicode2', 'mbpp_real', 'mbpp', 'humaneval'),
    'rewrite': (
      *('smoke', 'minicode', 'jsonl', 'questions', 'gsm8k', 'mbpp', 'plugin'),
      *('minicode_real', 'mbpp_real'),
    ),
    'prewrite': (
      *('smoke', 'minicode', 'jsonl', 'questions', 'mbpp', 'plugin'),
      *('minicode_real', 'mbpp_real'),
    ),
    'improve': ('minicode2', 'smollm2', 'server'),
    'hybrid': (
      *('smoke', 'simulated', 'drift', 'serve', 'smollm2', 'templated'),
    ),
    'sft_rewriter': ('smoke', 'minicode', 'minicode2'),
    'pretrain_minicode': ('coder', 'rewriter', 'coder_smoke', 'rewriter_smoke'),
  }.items()
  for arg in args
]
JOBS = sorted({stem for stem, _ in PRESETS})


def load(stem, arg):
  return importlib.import_module(f'configs.{stem}').get_config(arg)


def read(stem, config):
  cls = importlib.import_module(f'configs.{stem}').Config
  return settings.from_mapping(cls, config.to_dict())


def sections(config, prefix=''):
  """All dataclasses of a config, with their places."""
  yield prefix, config
  for name in settings.fields(config):
    value = getattr(config, name)
    if dataclasses.is_dataclass(value):
      yield from sections(value, f'{prefix}{name}.')


@pytest.mark.parametrize(('stem', 'arg'), PRESETS)
def test_a_saved_config_is_the_config(stem, arg, tmp_path):
  config = read(stem, load(stem, arg))
  workdir.prepare(tmp_path, stem, config)
  again = importlib.import_module('configs.saved').get_config(str(tmp_path))
  assert read(stem, again) == config
  workdir.prepare(tmp_path, stem, read(stem, again))  # The run may go on.


def test_the_published_controllers_are_those_of_the_preset():
  config = load('mbpp_ppo', 'minicode2')
  config.seeds = 5
  mine = read('mbpp_ppo', config)
  _, saved = workdir.load_config(ROOT / 'docs/results/minicode2')
  published = settings.from_mapping(type(mine), saved)
  differ = {
    name
    for name, value in vars(mine).items()
    if getattr(published, name) != value
  }
  assert differ <= {'cache', 'eval'}


@functools.cache
def names_read():
  """Words that are an attribute, or quoted where a loop checks several."""
  sources = '\n'.join(
    path.read_text(encoding='utf-8')
    for folder in ('experiments', 'promptrl_jax')
    for path in (ROOT / folder).rglob('*.py')
  )
  return {*re.findall(r'\.(\w+)', sources), *re.findall(r'[\'"](\w+)', sources)}


@pytest.mark.parametrize('stem', JOBS)
def test_every_field_is_read_somewhere(stem):
  cls = importlib.import_module(f'configs.{stem}').Config
  for place, section in sections(cls()):
    for name in settings.fields(section):
      assert name in names_read(), f'{stem}: {place}{name} is never read'


@pytest.mark.parametrize('stem', JOBS)
def test_a_section_is_called_as_its_class(stem):
  roles = {'coder', 'rewriter', 'task_model', 'model'}
  for place, section in sections(
    importlib.import_module(f'configs.{stem}').Config()
  ):
    name = place.rstrip('.').split('.')[-1]
    cls = type(section).__name__
    if name and name not in roles and cls.endswith('Config'):
      own = cls.removesuffix('Config').lower()
      assert name.replace('_', '') == own, place


@pytest.mark.parametrize('stem', JOBS)
def test_a_config_file_states_deviations(stem):
  """No value stands in a config file that is the default of its class."""
  module = importlib.import_module(f'configs.{stem}')
  tree = ast.parse((ROOT / 'configs' / f'{stem}.py').read_text())
  for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
    cls = getattr(module, getattr(call.func, 'id', ''), None)
    if not dataclasses.is_dataclass(cls):
      continue
    defaults = {field.name: field.default for field in dataclasses.fields(cls)}
    for keyword in call.keywords:
      if isinstance(keyword.value, ast.Constant):
        assert keyword.value.value != defaults[keyword.arg], (
          f'{stem}: {cls.__name__}.{keyword.arg} is the default'
        )


@pytest.mark.parametrize(
  'stem', ['mbpp_ppo', 'pretrain_minicode', 'sft_rewriter', 'joint']
)
def test_an_unknown_argument_names_the_known_ones(stem):
  with pytest.raises(ValueError, match='smoke'):
    load(stem, 'everything')


def test_an_unknown_field_fails():
  config = load('mbpp_ppo', 'minicode').lock()
  with pytest.raises(AttributeError):
    config.ppo.learning_rate = 1.0


def test_promis_preset_has_the_documented_values():
  c = load('mbpp_ppo', 'promis')
  assert c.ppo.lr == 3e-4
  assert c.ppo.gamma == 0.99
  assert c.ppo.clip == 0.2
  assert c.ppo.epochs == 4
  assert c.ppo.value_coef == 0.5
  assert c.ppo.entropy_coef == 0.01
  assert c.ppo.max_grad_norm == 0.5
  assert c.ppo.gae_lambda == 1.0
  assert c.editing.max_steps == 10
  assert c.controller.iterations * c.controller.episodes == 1000
  assert c.seed == 42
  assert c.editing.actions == ('keep', 'semantic', 'lexical')
  assert (c.ask.sample_temperature, c.ask.top_p) == (0.7, 0.9)
  reward = c.editing.step_reward
  assert (reward.kind, reward.success, reward.penalty) == ('legacy', 1.0, -0.1)


SWEEPS = [
  (stem, arg)
  for stem, arg in PRESETS
  if hasattr(importlib.import_module(f'configs.{stem}'), 'get_hyper')
  # It needs models that follow instructions, and the others need a server.
  and (stem != 'compare' or arg == 'mbpp_real')
]


@pytest.mark.parametrize(('stem', 'arg'), SWEEPS)
def test_every_row_of_a_sweep_is_another_valid_config(stem, arg):
  module = importlib.import_module(f'configs.{stem}')
  rows = module.get_hyper(arg)
  assert rows
  for row in rows:
    config = module.get_config(arg).lock()  # An unknown field is refused.
    config.update_from_flattened_dict(row)
    registry.import_plugins(config.plugins)  # Rows may name what they add.
    read(stem, config)


@pytest.mark.parametrize(
  'arg', [arg for stem, arg in PRESETS if stem == 'mbpp_ppo']
)
def test_every_ablation_of_the_controller_changes_something(arg):
  module = importlib.import_module('configs.mbpp_ppo')
  base = read('mbpp_ppo', load('mbpp_ppo', arg))
  seen = [base]
  for row in module.get_hyper(arg):
    config = module.get_config(arg)
    config.update_from_flattened_dict(row)
    made = read('mbpp_ppo', config)
    assert made not in seen, row
    seen.append(made)


def test_the_ablations_are_those_that_were_planned():
  rows = importlib.import_module('configs.mbpp_ppo').get_hyper('minicode2')
  varied = {key for row in rows for key in row}
  assert varied == {
    'coder.certainty',
    'controller.budgets',
    'controller.token_prices',
    'editing.accumulate',
    'editing.actions',
    'editing.observation',
    'editing.sees_agreement',
    'editing.sees_certainty',
    'editing.sees_price',
    'editing.step_reward.call_cost',
    'editing.step_reward.kind',
    'editing.step_reward.potential',
    'editing.step_reward.share_weight',
    'eval.token_prices',
  }
  actions = [set(row.get('editing.actions', ())) for row in rows]
  assert any(a and 'lexical' not in a for a in actions)  # mutation off


def test_parts_of_rivals_are_left_out_by_one_sweep():
  compare = importlib.import_module('configs.compare')
  rows = compare.get_hyper('mbpp')
  names = [row['subject'] for row in rows]
  assert len(set(names)) == len(names)
  assert {'reflexion', 'reflexion_memory_0', 'epic_fixed_without_mutation'} <= {
    *names
  }
  for row in rows:
    config = compare.get_config('mbpp')
    config.ask.template = 'chat'
    config.update_from_flattened_dict(row)
    made = read('compare', config)
    registry.import_plugins(made.plugins)
    assert made.subject in entrants.compared_costs(made, None)
    assert base.STRATEGIES[made.subject].instructed
  with pytest.raises(ValueError, match='minicode2 follow no instructions'):
    compare.get_hyper('minicode2')


@pytest.mark.parametrize(
  ('setting', 'value', 'message'),
  [
    ('editing.sees_certainty', True, 'expected coder.certainty=True'),
    ('controller.token_prices', (0.1, 1.0), 'expected editing.sees_price'),
    ('eval.token_prices', (0.1,), 'expected editing.sees_price'),
    ('eval.token_prices', (-1.0,), r'has \[-1.0\]: expected 0 or more'),
  ],
)
def test_what_the_controller_would_not_see_is_refused(setting, value, message):
  config = load('mbpp_ppo', 'smoke')
  config.update_from_flattened_dict({setting: value})
  with pytest.raises(ValueError, match=message):
    read('mbpp_ppo', config)


@pytest.mark.parametrize(
  ('name', 'message'),
  [('nobody', 'expected one of.*codet'), ('codet', "'plain'.*'mbr_exec'")],
)
def test_a_strategy_that_cannot_be_played_is_refused_at_once(name, message):
  config = load('mbpp_ppo', 'smoke')
  config.eval.strategies = (name,)
  with pytest.raises(ValueError, match=message):
    read('mbpp_ppo', config)


def test_a_person_is_answered_by_a_language_model_where_it_is_installed(
  monkeypatch,
):
  missing = packaged.Package('no_such_module', 'no-such-module==1.0')
  for package, backend in (
    (missing, 'templated'),
    (packaged.Package('numpy', 'numpy'), 'jax'),
  ):
    monkeypatch.setattr(packaged, 'SMOLLM2', package)
    assert load('hybrid', 'serve').model.backend == backend
    assert load('hybrid', 'templated').model.backend == 'templated'
    assert load('hybrid', 'smollm2').model.backend == 'jax'
    # Nobody waits for it where people are simulated.
    assert load('hybrid', 'simulated').model.backend == 'templated'
