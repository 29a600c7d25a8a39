"""Throughput of continuous batching beside padding to the longest.

  python -m experiments.bench.engine     prints one JSON line

Prompts arrive in an order that their completions know nothing of. Padding takes
them in batches of as many rows as the engine has slots, each of which runs
until its longest row ends. Both run the same model with the same lengths,
forced through `limit`: no token ends a text.
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
from jax.sharding import Mesh

from promptrl_jax.models import transformer
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling.decode import make_generate_fn
from promptrl_jax.sampling.engine import make_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.sampling.requests import Draw, EngineConfig, Request

_BATCH = flags.DEFINE_integer('batch', 16, 'Rows that decode together.')
_REPEATS = flags.DEFINE_integer('repeats', 3, 'Timed runs; the median counts.')
_PROMPTS = flags.DEFINE_integer('prompts', 256, 'Prompts of a run.')
_PREFILL = flags.DEFINE_integer(
  'prefill_rows', 4, 'Prompts that a device reads at once.'
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
  """Log-normal lengths (sigma 1) with mean 40, the longest of 256 tokens."""
  lengths = np.random.default_rng(seed).lognormal(size=count)
  for _ in range(50):  # the cut at the longest moves the mean
    lengths = np.clip(lengths * _MEAN / lengths.mean(), 1, _NEW)
  lengths = np.round(lengths).astype(int)
  lengths[np.argmax(lengths)] = _NEW
  return lengths


def make_requests(count: int) -> list[Request]:
  """Random prompts of 8 to 64 tokens."""
  rng = np.random.default_rng(1)
  return [
    Request(
      prompt=rng.integers(
        3, _MODEL.vocab_size, rng.integers(8, _PROMPT_LENGTHS[-1] + 1)
      ).tolist(),
      draws=[Draw(int(limit), temperature=0.8, seed=seed)],
    )
    for seed, limit in enumerate(completion_lengths(count))
  ]


def random_params() -> Any:
  """Parameters of the model in bfloat16."""
  tokens, mask = jnp.zeros((1, 2), jnp.int32), jnp.ones((1, 2, 2), bool)
  params = jax.jit(transformer.Transformer(_MODEL).init)(
    jax.random.key(0), tokens, tokens, mask
  )
  return jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)


def make_padded_fn(
  params: Any, mesh: Mesh, batch: int
) -> Callable[[Sequence[Request]], list[np.ndarray]]:
  """A function that completes requests in batches, padded to the longest."""
  generate = make_generate_fn(_MODEL, Sampling(), _NEW, mesh)

  def run(requests: Sequence[Request]) -> list[np.ndarray]:
    found = []
    for start in range(0, len(requests), batch):
      some = requests[start : start + batch]
      longest = max(len(r.prompt) for r in some)
      length = next(p for p in _PROMPT_LENGTHS if p >= longest)
      tokens = np.zeros((batch, length), np.int32)
      mask = np.zeros((batch, length), bool)
      for row, request in enumerate(some):
        tokens[row, length - len(request.prompt) :] = request.prompt
        mask[row, length - len(request.prompt) :] = True
      column = lambda values, dtype, missing=batch - len(some): np.asarray(
        [*values, *[0] * missing], dtype
      )
      out = jax.device_get(
        generate(
          params,
          tokens,
          mask,
          column([r.draws[0].temperature for r in some], np.float32),
          column([r.draws[0].seed for r in some], np.uint32),
          column([r.draws[0].limit for r in some], np.int32),
        )
      )
      found += [out.tokens[i][out.mask[i]] for i in range(len(some))]
    return found

  return run


def bench(
  batch: int, repeats: int, prompts: int, prefill_rows: int
) -> dict[str, float]:
  """Tokens per second of both, in turn: machines are noisy, ratios less so."""
  mesh = mesh_lib.make_data_mesh()
  params = prepare(random_params(), mesh)
  requests = make_requests(prompts)
  padded_fn = make_padded_fn(params, mesh, batch)
  engine = make_engine(
    _MODEL,
    Sampling(),
    params,
    mesh,
    EngineConfig(batch, _PROMPT_LENGTHS, _NEW, prefill_rows=prefill_rows),
  )
  padded, samples = padded_fn(requests), engine.run(requests)
  same = [
    np.array_equal(tokens, sample.tokens)
    for tokens, (sample,) in zip(padded, samples, strict=True)
  ]
  times = {padded_fn: [], engine.run: []}
  for _ in range(repeats):
    for fn, taken in times.items():
      start = time.perf_counter(), time.process_time()
      fn(requests)
      end = time.perf_counter(), time.process_time()
      taken.append(np.subtract(end, start))
  (pad_s, pad_cpu_s), (engine_s, engine_cpu_s) = (
    np.median(taken, axis=0).tolist() for taken in times.values()
  )
  limits = [request.draws[0].limit for request in requests]
  tokens = sum(limits)
  pad_steps = sum(
    max(limits[i : i + batch]) for i in range(0, len(limits), batch)
  )
  return {
    'devices': mesh.size,
    'batch': batch,
    'prefill_rows': prefill_rows,
    'tokens': tokens,
    'mean_length': float(np.mean(limits)),
    'max_length': max(limits),
    'padded_tokens_per_s': tokens / pad_s,
    'engine_tokens_per_s': tokens / engine_s,
    'speedup': pad_s / engine_s,
    # Of the time that processors worked: what other programs take is left out.
    'cpu_speedup': pad_cpu_s / engine_cpu_s,
    # If every step of padding had drawn a token for every row.
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
