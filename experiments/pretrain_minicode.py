"""Trains one of the two embedded language models from scratch.

  python -m experiments.pretrain_minicode \
    --config=configs/pretrain_minicode.py:coder --workdir=runs/coder

The model folder (safetensors, tokenizer.json, config.json) appears at
WORKDIR/model. A run that was interrupted goes on from its last checkpoint.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import random
import time

import jax
import tqdm
from absl import app, flags
from ml_collections import config_flags

from promptrl_jax.execution import ExecutionPool
from promptrl_jax.models import pretrained, tokenizer
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.parallel import compilation
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.tasks.minicode import suite
from promptrl_jax.training import checkpoint, metrics
from promptrl_jax.training.supervised import corpus
from promptrl_jax.training.supervised import learner as supervised

_CONFIG = config_flags.DEFINE_config_file('config', lock_config=True)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where results go.')
flags.mark_flags_as_required(['config', 'workdir'])

# Each tokenizer is trained on pairs of both roles: they read the same texts.
_TOKENIZER_PAIRS = 4000


def _pairs(items, draw, config, seed):
  """An endless stream of pairs, the same for the same seed."""
  rng = random.Random(seed)
  return (draw(rng.choice(items), config, rng) for _ in itertools.count())


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  config = _CONFIG.value
  workdir = pathlib.Path(_WORKDIR.value)
  workdir.mkdir(parents=True, exist_ok=True)
  mesh_lib.use_cpu_cores()
  compilation.use_cache()
  started = time.perf_counter()

  # --- Data: train split only -------------------------------------------------
  settings = config.corpus.to_dict()
  corpus_config = corpus.CorpusConfig(**settings)
  items = corpus.train_problems(suite.rows())
  with ExecutionPool() as pool:
    items = corpus.with_attempts(
      items, corpus_config.attempts, pool, random.Random(config.seed)
    )
  texts = [
    text
    for draw in corpus.PAIR_FNS.values()
    for pair in itertools.islice(
      _pairs(items, draw, corpus_config, 'tokenizer'), _TOKENIZER_PAIRS
    )
    for text in pair
  ]
  encoder = tokenizer.train(texts, config.model.vocab_size)

  # --- Model and state --------------------------------------------------------
  model_config = TransformerConfig(
    **{**config.model, 'vocab_size': encoder.vocab_size},
    bos_token_id=encoder.bos_id,
    eos_token_ids=(encoder.eos_id,),
    pad_token_id=encoder.pad_id,
  )
  training = supervised.SupervisedConfig(**config.training)
  mesh = mesh_lib.make_data_mesh()
  step_fn = supervised.make_train_step(model_config, training, mesh)
  init = supervised.make_init(model_config, training, mesh)
  state = init(jax.random.key(config.seed))

  # --- Training ---------------------------------------------------------------
  draw = corpus.PAIR_FNS[config.role]
  with checkpoint.open_checkpoints(workdir / 'checkpoints') as checkpoints:
    if checkpoints.latest_step() is not None:
      state, _ = checkpoint.restore_checkpoint(checkpoints, state)
    start = int(state.step)
    with metrics.MetricWriter(workdir, resume_step=start) as writer:
      progress = tqdm.trange(
        start, training.steps, initial=start, total=training.steps
      )
      for step in progress:
        pairs = _pairs(items, draw, corpus_config, f'{config.seed}/{step}')
        batch = supervised.pack(pairs, encoder, training)
        state, scalars = step_fn(state, batch)
        scalars = {name: float(value) for name, value in scalars.items()}
        writer.write_scalars(step, scalars)
        progress.set_postfix(loss=f'{scalars["train/completion_loss"]:.4f}')
        if (step + 1) % config.checkpoint_every == 0:
          checkpoint.save_checkpoint(checkpoints, state, {})

  # --- Result -----------------------------------------------------------------
  pretrained.save_pretrained(
    workdir / 'model', model_config, state.params, encoder, 'bfloat16'
  )
  recipe = {
    'config': json.loads(config.to_json()),
    'suite': suite.digest(),
    'model': pretrained.digest(workdir / 'model'),
    'parameters': model_config.num_params,
    'hardware': f'{len(jax.devices())} {jax.devices()[0].device_kind} devices',
    'minutes': round((time.perf_counter() - started) / 60, 1),
  }
  (workdir / 'recipe.json').write_text(json.dumps(recipe, indent=2) + '\n')
  print(f'model: {workdir / "model"} ({recipe["model"]})')


if __name__ == '__main__':
  app.run(main)
