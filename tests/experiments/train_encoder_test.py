"""The recipe of the shipped encoder reruns; what is shipped is what it says."""

import json

import numpy as np
import pytest

from configs.train_encoder import Config
from promptrl_jax import settings
from promptrl_jax.models import pretrained, sentence_encoder
from tests.experiments import commands


@pytest.mark.slow
def test_the_smoke_run_leaves_an_encoder_and_its_scores(tmp_path):
  result = commands.run(
    'experiments.train_encoder',
    '--config=configs/train_encoder.py:smoke',
    f'--workdir={tmp_path}',
  )
  assert result.returncode == 0, result.stderr[-3000:]
  vectors = sentence_encoder.embed(['a', 'b'], str(tmp_path / 'model'))
  np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
  scores = json.loads((tmp_path / 'retrieval.json').read_text())
  assert scores.keys() == {'words', 'trained'}
  assert scores['trained']['minicode2']['recall'] > 0.2
  rows = (tmp_path / 'metrics.jsonl').read_text().splitlines()
  assert len(rows) == 20
  assert 'trained' in (tmp_path / 'retrieval.md').read_text()


def test_what_is_shipped_is_small_and_of_the_recipe():
  folder = sentence_encoder.FOLDER
  assert sum(p.stat().st_size for p in folder.iterdir()) <= 4e6
  recipe = json.loads((folder / 'recipe.json').read_text())
  assert recipe['model'] == pretrained.digest(folder)
  values = json.loads(json.dumps(settings.to_mapping(Config())))
  assert recipe['config'] == {n: values[n] for n in ('seed', 'table', 'train')}


@pytest.mark.parametrize(
  ('option', 'message'),
  [
    ('--config.train.pairs=1', 'pairs=1: expected at least 2'),
    ("--config.check.mbpp_path='no.jsonl'", 'no.jsonl'),
  ],
)
def test_bad_settings_end_in_one_line(tmp_path, option, message):
  result = commands.run(
    'experiments.train_encoder',
    '--config=configs/train_encoder.py:smoke',
    f'--workdir={tmp_path}',
    option,
  )
  assert result.returncode != 0
  assert message in result.stderr
  assert 'Traceback' not in result.stderr
