"""Trains a sentence encoder on generated paraphrases, and checks it.

  python -m experiments.train_encoder --config=configs/train_encoder.py \
    --workdir=runs/encoder

The folder appears at WORKDIR/model, for `sentence_encoder.load`; the retrieval
check, of it and of word counts beside it, in retrieval.json and retrieval.md. A
run that was interrupted goes on from its last checkpoint.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import random
import time

import jax
from absl import app, flags
from ml_collections import config_flags

from configs.train_encoder import Config
from promptrl_jax import settings
from promptrl_jax.evaluation import retrieval
from promptrl_jax.files import write_atomically
from promptrl_jax.models import pretrained, sentence_encoder
from promptrl_jax.parallel import compilation
from promptrl_jax.tools import command
from promptrl_jax.training import run as run_lib
from promptrl_jax.training import workdir as workdir_lib
from promptrl_jax.training.encoder import learner as encoder

_CONFIG = config_flags.DEFINE_config_file(
  'config', 'configs/train_encoder.py', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where results go.')
flags.mark_flag_as_required('workdir')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line():
    run(_CONFIG.value, pathlib.Path(_WORKDIR.value))


def run(config, workdir):
  config = settings.from_mapping(Config, config.to_dict())
  workdir_lib.prepare(workdir, 'train_encoder', config)
  compilation.use_cache()
  started = time.perf_counter()

  # --- The check, first: it names a file that is not there --------------------
  checks = retrieval.make_checks(config.check.size, config.check.mbpp_path)
  rivals = {name: sentence_encoder.load(name) for name in config.check.rivals}

  # --- Training ---------------------------------------------------------------
  params = train(config, workdir)
  folder = workdir / 'model'
  sentence_encoder.save_table(folder, config.table, encoder.to_table(params))
  values = settings.to_mapping(config)
  recipe = {
    'config': {name: values[name] for name in ('seed', 'table', 'train')},
    'model': pretrained.digest(folder),
    'parameters': config.table.rows * config.table.size,
    'hardware': jax.devices()[0].device_kind,
    'minutes': round((time.perf_counter() - started) / 60, 1),
  }
  text = json.dumps(recipe, indent=2) + '\n'
  write_atomically(folder / 'recipe.json', text.encode())

  # --- Check ------------------------------------------------------------------
  encoders = {'trained': sentence_encoder.load(str(folder)), **rivals}
  scores = {'words': [retrieval.score_words(check) for check in checks]}
  for name, embed_fn in encoders.items():
    scores[name] = [retrieval.score(embed_fn, check) for check in checks]
  write_scores(workdir, checks, scores)
  print(f'model        {folder} ({recipe["model"]})')


# --- Stages -------------------------------------------------------------------


def train(config, workdir):
  """Trains from the last checkpoint if any; the parameters at the end."""
  learner = encoder.make_learner(config.table, config.train)
  draw = functools.partial(encoder.draw_batch, config.train, config.table)
  steps = config.train.steps
  with run_lib.Run(
    workdir,
    learner.init(jax.random.key(config.seed)),
    # Nothing is chosen by a score: the check is of the last state.
    run_lib.RunConfig(steps, steps, config.checkpoint_every),
    name='encoder',
    unit='step',
    shown={'loss': 'train/loss', 'accuracy': 'train/accuracy'},
  ) as training:
    for step in training.steps():
      batch = draw(random.Random(f'{config.seed}/{step}'))
      training.log(*learner.update(training.state, batch))
  return training.state.params


def write_scores(workdir, checks, scores):
  """Writes and prints the table: recall at 1 and mean reciprocal rank."""
  values = {
    name: {
      check.name: dataclasses.asdict(score)
      for check, score in zip(checks, row, strict=True)
    }
    for name, row in scores.items()
  }
  table = retrieval.to_markdown(checks, scores)
  text = json.dumps(values, indent=2) + '\n'
  write_atomically(workdir / 'retrieval.json', text.encode())
  write_atomically(workdir / 'retrieval.md', table.encode())
  print(table)


if __name__ == '__main__':
  app.run(main)
