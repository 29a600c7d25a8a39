"""Compares int8 weights and cache by log-probs, answers, speed and bytes.

  python -m experiments.bench.int8                            prints JSON lines
  python -m experiments.bench.int8 --model=FOLDER --prompts=prompts.txt

Each line is one way to store the kernels and the cache. Answers are sampled at
temperature 1, and their log-probs are compared with those of the float32 model.
Greedy answers are compared with those of float32 kernels and a plain cache. All
are measured in one run on this machine's devices.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib

import jax
import numpy as np
from absl import app, flags

from experiments.bench.floor import floor_s
from experiments.bench.rates import seconds
from promptrl_jax.llm.load import ASSETS
from promptrl_jax.models import pretrained
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling.batch_scorer import BatchScorer
from promptrl_jax.sampling.engine import make_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.sampling.requests import (
  EngineConfig,
  EngineRequest,
  SamplingParams,
)
from promptrl_jax.tasks.minicode.suite import SUITE

_MODEL = flags.DEFINE_string(
  'model', str(ASSETS / 'minicode_coder'), 'Folder or hub id of a causal model.'
)
_PROMPTS = flags.DEFINE_string(
  'prompts', '', 'File with a prompt per line; empty takes minicode validation.'
)
_ROWS = flags.DEFINE_integer('rows', 64, 'Number of prompts.')
_NEW = flags.DEFINE_integer('new_tokens', 64, 'Maximal tokens of an answer.')

_WAYS = (
  ('float32', 'plain'),
  ('bfloat16', 'plain'),
  ('int8', 'plain'),
  ('float32', 'int8'),
  ('int8', 'int8'),
)


def read_prompts() -> list[str]:
  """Returns the prompts that the flags ask for."""
  if _PROMPTS.value:
    text = pathlib.Path(_PROMPTS.value).read_text(encoding='utf-8')
    return text.splitlines()[: _ROWS.value]
  return [task.statement for task in SUITE.load('validation')[: _ROWS.value]]


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  mesh_lib.use_cpu_cores()
  mesh = mesh_lib.make_data_mesh()
  config, params, tokenizer = pretrained.load_pretrained(_MODEL.value)
  rows = [tokenizer.render([('user', text)]) for text in read_prompts()]
  shapes = EngineConfig(
    len(rows), (max(map(len, rows)),), _NEW.value, prefill_rows=len(rows)
  )
  scorer = BatchScorer(config, prepare(params, mesh), mesh, shapes)
  ask = lambda temperature: [
    EngineRequest(row, [SamplingParams(_NEW.value, temperature, seed=i)])
    for i, row in enumerate(rows)
  ]
  plain = None
  for weights, cache in _WAYS:
    stored = jax.tree.map(
      lambda x, d=weights: x.astype(
        'float32' if d == 'float32' else 'bfloat16'
      ),
      params,
    )
    stored = prepare(stored, mesh, bits=8 if weights == 'int8' else None)
    engine = make_engine(
      dataclasses.replace(config, kv_cache=cache),
      Sampling(),
      stored,
      mesh,
      shapes,
    )
    drawn = [sample for (sample,) in engine.run(ask(1.0))]
    exact = scorer.run(rows, [sample.tokens.tolist() for sample in drawn])
    off = np.abs(
      np.concatenate(exact) - np.concatenate([s.logps for s in drawn])
    )
    answers = [s.tokens.tolist() for (s,) in engine.run(ask(0.0))]
    plain = answers if plain is None else plain
    same = [one == other for one, other in zip(answers, plain, strict=True)]
    taken = seconds(engine.run, ask(1.0), repeats=3)
    tokens = sum(len(sample.tokens) for sample in drawn)
    read = sum(map(len, rows))
    least = floor_s(config, weights, len(rows), read, tokens)
    line = {
      'weights': weights,
      'cache': cache,
      'mean_logp_change': float(f'{off.mean():.2g}'),
      'p99_logp_change': float(f'{np.quantile(off, 0.99):.2g}'),
      'same_greedy_answers': round(float(np.mean(same)), 3),
      'tokens_per_s': round(tokens / taken),
      'share_of_floor': round(least / taken, 3),
      'weight_bytes': sum(x.nbytes for x in jax.tree.leaves(stored)),
    }
    print(json.dumps(line), flush=True)


if __name__ == '__main__':
  app.run(main)
