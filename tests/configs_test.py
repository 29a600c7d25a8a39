"""Configs: presets, round trip, and no field that nobody reads."""

import functools
import importlib
import json
import pathlib
import re

import ml_collections
import pytest

ROOT = pathlib.Path(__file__).parents[1]
PRESETS = (
  [('mbpp_ppo', arg) for arg in ('smoke', 'minicode', 'mbpp', 'promis')]
  + [('rewrite', arg) for arg in ('smoke', 'minicode', 'jsonl', 'gsm8k')]
  + [
    ('pretrain_minicode', arg)
    for arg in ('coder', 'rewriter', 'coder_smoke', 'rewriter_smoke')
  ]
  + [('mbpp_grpo', arg) for arg in ('smoke', 'minicode', 'algorithms', 'mbpp')]
  + [('prewrite', arg) for arg in ('smoke', 'jsonl', 'questions', 'plugin')]
  + [('joint', arg) for arg in ('smoke', 'minicode')]
  + [('sft_rewriter', arg) for arg in ('smoke', 'minicode')]
)


def load(stem, arg):
  return importlib.import_module(f'configs.{stem}').get_config(arg)


def leaves(config, prefix=''):
  for name, value in config.items():
    if isinstance(value, ml_collections.ConfigDict):
      yield from leaves(value, f'{prefix}{name}.')
    else:
      yield prefix + name


@pytest.mark.parametrize(('stem', 'arg'), PRESETS)
def test_a_config_goes_through_json_and_back(stem, arg):
  config = load(stem, arg)
  again = ml_collections.ConfigDict(json.loads(config.to_json()))
  assert json.loads(again.to_json()) == json.loads(config.to_json())


@functools.cache
def names_read():
  """Words that are an attribute, stand before a colon, or are quoted."""
  sources = '\n'.join(
    path.read_text(encoding='utf-8')
    for folder in ('experiments', 'promptrl_jax')
    for path in (ROOT / folder).rglob('*.py')
  )
  uses = (r'\.(\w+)', r'\b(\w+):', r'[\'"](\w+)(?=[\'"])')
  return {name for use in uses for name in re.findall(use, sources)}


@pytest.mark.parametrize(('stem', 'arg'), PRESETS)
def test_every_field_is_read_somewhere(stem, arg):
  for field in leaves(load(stem, arg)):
    name = field.split('.')[-1]
    if field == 'preset' or field.startswith('corpus.registers.'):
      continue  # a label, and weights read by register name
    assert name in names_read(), f'{stem}:{arg} {field} is never read'


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
  assert c.env.max_steps == 10
  assert c.controller.iterations * c.controller.episodes == 1000
  assert c.seed == 42
  assert c.env.actions == ('keep', 'semantic', 'lexical')
  assert (c.env.sample_temperature, c.env.top_p) == (0.7, 0.9)
  assert (c.reward.kind, c.reward.success, c.reward.penalty) == (
    'legacy',
    1.0,
    -0.1,
  )


def test_sweep_rows_name_fields_that_exist():
  module = importlib.import_module('configs.mbpp_ppo')
  for row in module.get_hyper():
    config = module.get_config('minicode').lock()
    config.update_from_flattened_dict(row)
