"""Trains one of the two embedded language models from scratch.

  python -m experiments.pretrain_minicode \
    --config=configs/pretrain_minicode.py:coder --workdir=runs/coder

The model folder (safetensors, tokenizer.json, config.json) appears at
WORKDIR/model. A run that was interrupted goes on from its last checkpoint.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
import random
import time

import jax
from absl import app, flags
from ml_collections import config_flags

from configs.pretrain_minicode import Config
from promptrl_jax import settings
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.models import pretrained, tokenizer
from promptrl_jax.parallel import compilation
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.tasks.minicode2 import generate
from promptrl_jax.tasks.minicode2.suite import SUITE
from promptrl_jax.tools import command
from promptrl_jax.training import run as run_lib
from promptrl_jax.training import workdir as workdir_lib
from promptrl_jax.training.supervised import corpus
from promptrl_jax.training.supervised import learner as supervised
from promptrl_jax.training.supervised.packing import pack

_CONFIG = config_flags.DEFINE_config_file('config', lock_config=True)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where results go.')
flags.mark_flags_as_required(['config', 'workdir'])

# Each tokenizer is trained on pairs of both roles: they read the same texts.
_TOKENIZER_PAIRS = 4000


def _pairs(source, draw, seed):
  """An endless stream of pairs, the same for the same seed."""
  rng = random.Random(seed)
  return (draw(source, rng) for _ in itertools.count())


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line():
    run(_CONFIG.value, pathlib.Path(_WORKDIR.value))


def run(config, workdir):
  config = settings.from_mapping(Config, config.to_dict())
  workdir_lib.prepare(workdir, 'pretrain_minicode', config)
  mesh_lib.use_cpu_cores()
  compilation.use_cache()
  started = time.perf_counter()

  # --- Data: templates of the pretrain split only -----------------------------
  known = generate.templates()['pretrain']
  with ExecutionPool() as pool:
    attempts = corpus.draw_attempts(
      known, config.corpus, pool, random.Random(config.seed)
    )
  source = corpus.Source(known, attempts, config.corpus)
  encoder = train_tokenizer(source, config)
  draw = corpus.PAIR_FNS[config.role]
  pairs_of = lambda step: _pairs(source, draw, f'{config.seed}/{step}')

  # --- Training ---------------------------------------------------------------
  model_config = dataclasses.replace(
    config.transformer,
    vocab_size=encoder.vocab_size,
    bos_token_id=encoder.bos_id,
    eos_token_ids=(encoder.eos_id,),
    pad_token_id=encoder.pad_id,
  )
  params = train(config, model_config, encoder, pairs_of, workdir)

  # --- Result -----------------------------------------------------------------
  pretrained.save_pretrained(
    workdir / 'model', model_config, params, encoder, 'bfloat16'
  )
  recipe = {
    'config': settings.to_mapping(config),
    'suite': SUITE.digest,
    'model': pretrained.digest(workdir / 'model'),
    'parameters': model_config.num_params,
    'hardware': f'{len(jax.devices())} {jax.devices()[0].device_kind} devices',
    'minutes': round((time.perf_counter() - started) / 60, 1),
  }
  (workdir / 'recipe.json').write_text(json.dumps(recipe, indent=2) + '\n')
  print(f'model: {workdir / "model"} ({recipe["model"]})')


# --- Stages -------------------------------------------------------------------


def train_tokenizer(source, config):
  """A tokenizer of the pairs of both roles."""
  texts = [
    text
    for draw in corpus.PAIR_FNS.values()
    for pair in itertools.islice(
      _pairs(source, draw, 'tokenizer'), _TOKENIZER_PAIRS
    )
    for text in pair
  ]
  return tokenizer.train(texts, config.transformer.vocab_size)


def train(config, model_config, encoder, pairs_of, workdir):
  """Trains from the last checkpoint if any; the parameters at the end."""
  learner = supervised.make_learner(
    model_config, config.supervised, mesh_lib.make_data_mesh()
  )
  steps = config.supervised.steps
  with run_lib.Run(
    workdir,
    learner.init(jax.random.key(config.seed)),
    run_lib.RunConfig(steps, steps, config.checkpoint_every),
    name=config.role,
    unit='step',
    shown={'loss': 'train/completion_loss'},
  ) as training:
    for step in training.steps():
      rows = pack(pairs_of(step), encoder, config.supervised)
      training.log(*learner.update(training.state, rows))
  return training.state.params


if __name__ == '__main__':
  app.run(main)
