"""Measures continuous batching against batches padded to their longest row.

  python -m experiments.bench.engine     prints one JSON line

The order of prompts is independent of the length of their completions. Padded
batches have as many prompts as the engine has slots, and each batch runs until
its longest row ends. Both run the same programs with the same completion
lengths, which `max_tokens` sets, as no token is a stop token.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from experiments.bench.floor import floor_s
from promptrl_jax.models import transformer
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling.engine import Engine, make_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.sampling.requests import (
  EngineConfig,
  EngineRequest,
  Sample,
  SamplingParams,
)

_BATCH = flags.DEFINE_integer('batch', 16, 'Rows of a decoding batch.')
_REPEATS = flags.DEFINE_integer(
  'repeats', 3, 'Timed runs, of which the median is taken.'
)
_PROMPTS = flags.DEFINE_integer('prompts', 256, 'Prompts of a run.')
_PREFILL = flags.DEFINE_integer(
  'prefill_rows', 4, 'Prompts that a device prefills at once.'
)

_MODEL = TransformerConfig(
  vocab_size=4096,
  hidden_size=256,
  num_layers=4,
  num_heads=4,
  num_kv_heads=4,
  head_size=64,
  mlp_size=704,
  max_positions=512,
  family='qwen2',
  qkv_bias=True,
  eos_token_ids=(),
)
_PROMPT_LENGTHS = (32, 64)
_MEAN, _NEW = 40, 256


def completion_lengths(count: int, seed: int = 0) -> np.ndarray:
  """Draws log-normal lengths (sigma 1) of mean 40 and maximum 256."""
  lengths = np.random.default_rng(seed).lognormal(size=count)
  for _ in range(50):  # clipping changes the mean
    lengths = np.clip(lengths * _MEAN / lengths.mean(), 1, _NEW)
  lengths = np.round(lengths).astype(int)
  lengths[np.argmax(lengths)] = _NEW
  return lengths


def make_requests(count: int) -> list[EngineRequest]:
  """Returns requests with random prompts of 8 to 64 tokens."""
  rng = np.random.default_rng(1)
  return [
    EngineRequest(
      prompt=rng.integers(
        3, _MODEL.vocab_size, rng.integers(8, _PROMPT_LENGTHS[-1] + 1)
      ).tolist(),
      samples=[SamplingParams(int(limit), temperature=0.8, seed=seed)],
    )
    for seed, limit in enumerate(completion_lengths(count))
  ]


def random_params() -> Any:
  """Returns random parameters of the model in bfloat16."""
  tokens, mask = jnp.zeros((1, 2), jnp.int32), jnp.ones((1, 2, 2), bool)
  params = jax.jit(transformer.Transformer(_MODEL).init)(
    jax.random.key(0), tokens, tokens, mask
  )
  return jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)


def make_padded_fn(
  engine: Engine, batch: int
) -> Callable[[Sequence[EngineRequest]], list[tuple[Sample, ...]]]:
  """Returns a function that completes one batch after the other."""

  def run(requests: Sequence[EngineRequest]) -> list[tuple[Sample, ...]]:
    samples = []
    for start in range(0, len(requests), batch):
      samples += engine.run(requests[start : start + batch])
    return samples

  return run


def bench(
  batch: int, repeats: int, prompts: int, prefill_rows: int
) -> dict[str, float]:
  """Measures both in turn, as ratios are less noisy than rates."""
  mesh = mesh_lib.make_data_mesh()
  params = prepare(random_params(), mesh)
  requests = make_requests(prompts)
  engine = make_engine(
    _MODEL,
    Sampling(),
    params,
    mesh,
    EngineConfig(batch, _PROMPT_LENGTHS, _NEW, prefill_rows=prefill_rows),
  )
  padded_fn = make_padded_fn(engine, batch)
  padded, samples = padded_fn(requests), engine.run(requests)
  same = [
    np.array_equal(one.tokens, sample.tokens)
    for (one,), (sample,) in zip(padded, samples, strict=True)
  ]
  times = {padded_fn: [], engine.run: []}
  for _ in range(repeats):
    for fn, taken in times.items():
      start = time.perf_counter(), time.process_time()
      fn(requests)
      end = time.perf_counter(), time.process_time()
      taken.append(np.subtract(end, start))
  prompt_tokens = sum(len(request.prompt) for request in requests)
  (pad_s, pad_cpu_s), (engine_s, engine_cpu_s) = (
    np.median(taken, axis=0).tolist() for taken in times.values()
  )
  limits = [request.samples[0].max_tokens for request in requests]
  tokens = sum(limits)
  pad_steps = sum(
    max(limits[i : i + batch]) for i in range(0, len(limits), batch)
  )
  least = floor_s(_MODEL, 'bfloat16', batch, prompt_tokens, tokens)
  return {
    'devices': mesh.size,
    'batch': batch,
    'prefill_rows': prefill_rows,
    'tokens': tokens,
    'mean_length': float(np.mean(limits)),
    'max_length': max(limits),
    'padded_tokens_per_s': tokens / pad_s,
    'engine_tokens_per_s': tokens / engine_s,
    'share_of_floor': least / engine_s,
    'speedup': pad_s / engine_s,
    # Ratio of CPU seconds, which excludes the time that other programs take.
    'cpu_speedup': pad_cpu_s / engine_cpu_s,
    # The speedup if no step of the engine had an idle slot.
    'most_speedup': pad_steps * batch / tokens,
    'identical_rows': float(np.mean(same)),
    'programs': engine.compiled_programs(),
  }


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  mesh_lib.use_cpu_cores()
  figures = bench(_BATCH.value, _REPEATS.value, _PROMPTS.value, _PREFILL.value)
  print(json.dumps(figures))


if __name__ == '__main__':
  app.run(main)
