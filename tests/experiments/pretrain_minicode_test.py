"""The recipe of the embedded models walks from the suite to a model folder."""

import json

import pytest

from promptrl_jax.llm.load import ASSETS
from promptrl_jax.models import pretrained
from promptrl_jax.tasks.minicode.suite import SUITE as MINICODE
from promptrl_jax.tasks.minicode2.suite import SUITE as MINICODE_2
from tests.experiments import commands


@pytest.mark.slow
@pytest.mark.parametrize(('role', 'attempts'), [('coder', 0), ('rewriter', 1)])
def test_three_steps_make_a_model_that_loads(tmp_path, role, attempts):
  result = commands.run(
    'experiments.pretrain_minicode',
    f'--config=configs/pretrain_minicode.py:{role}_smoke',
    f'--workdir={tmp_path}',
    '--config.supervised.steps=3',
    '--config.supervised.rows=4',
    f'--config.corpus.attempts={attempts}',
    '--config.supervised.warmup=1',
  )
  assert result.returncode == 0, result.stderr[-3000:]
  config, _, tokenizer = pretrained.load_pretrained(tmp_path / 'model')
  assert tokenizer.vocab_size == config.vocab_size
  rows = (tmp_path / 'metrics.jsonl').read_text().splitlines()
  assert len(rows) == 3
  recipe = json.loads((tmp_path / 'recipe.json').read_text())
  assert recipe['suite'] == MINICODE_2.digest


@pytest.mark.parametrize('role', ['coder', 'rewriter'])
@pytest.mark.parametrize(
  ('name', 'suite'), [('minicode', MINICODE), ('minicode2', MINICODE_2)]
)
def test_shipped_models_are_of_the_shipped_suite(role, name, suite):
  folder = ASSETS / f'{name}_{role}'
  recipe = json.loads((folder / 'recipe.json').read_text())
  assert recipe['suite'] == suite.digest
  assert recipe['model'] == pretrained.digest(folder)


def test_shipped_models_are_small():
  files = [p for p in ASSETS.rglob('*') if p.suffix != '.png']
  assert sum(p.stat().st_size for p in files if p.is_file()) < 40e6
