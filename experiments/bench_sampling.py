"""Tokens per second of sampling, beside transformers and the machine's floor.

  python -m experiments.bench_sampling                   prints JSON lines
  python -m experiments.bench_sampling --sizes=small --peers=

Two Qwen2-shaped models with random weights, prompts of 64 tokens, 128 new ones.
Each of our lines is one way to run (devices, dtype of the parameters); the best
of them counts, as the best of the peer's does. The floor of a step is the
larger of its operations at the rate of a large product and its bytes (weights
in the dtype of the line and a float32 cache) at the rate of a copy in memory,
both measured in the same run; what stays in the processor's cache is faster.
transformers runs in a process of its own, where torch is installed.
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from experiments.bench import matmul_rate, seconds
from promptrl_jax.models import transformer
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling.decode import make_generate_fn
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.prepare import prepare

_SIZES = flags.DEFINE_list('sizes', ['small', 'large'], 'Models to sample.')
_BATCHES = flags.DEFINE_list('batches', ['1', '8', '32'], 'Rows of a batch.')
_DTYPES = flags.DEFINE_list('dtypes', ['bfloat16', 'float32'], 'Of parameters.')
_RUNS = flags.DEFINE_integer('runs', 3, 'Timed runs; the median counts.')
_PEERS = flags.DEFINE_list('peers', ['transformers'], 'Peers to time.')
_ONLY = flags.DEFINE_string('only', '', 'One of ours or a peer; no others.')

_PROMPT, _NEW = 64, 128
_COMMON = {
  'family': 'qwen2',
  'head_size': 64,
  'max_positions': 2048,
  'norm_eps': 1e-6,
  'qkv_bias': True,
  'tie_embeddings': False,
  'eos_token_ids': (),
}
SIZES = {
  'small': TransformerConfig(
    vocab_size=4096,
    hidden_size=256,
    num_layers=4,
    num_heads=4,
    num_kv_heads=4,
    mlp_size=704,
    **_COMMON,
  ),
  'large': TransformerConfig(
    vocab_size=32000,
    hidden_size=768,
    num_layers=12,
    num_heads=12,
    num_kv_heads=12,
    mlp_size=2048,
    **_COMMON,
  ),
}


def copy_rate(runs: int, megabytes: int = 256) -> float:
  """Bytes per second read and written by one copying thread per core."""
  cores = len(os.sched_getaffinity(0))
  pairs = [np.ones((2, megabytes * 2**17)) for _ in range(cores)]
  taken = []
  with concurrent.futures.ThreadPoolExecutor(cores) as threads:
    for _ in range(1 + runs):
      start = time.perf_counter()
      list(threads.map(lambda pair: np.copyto(pair[0], pair[1]), pairs))
      taken.append(time.perf_counter() - start)
  return cores * pairs[0].nbytes / float(np.median(taken[1:]))


def random_params(config: TransformerConfig, dtype: str):
  """Normal weights of scale 0.02."""

  def make(key):
    leaves, tree = jax.tree.flatten(transformer.shapes(config))
    keys = jax.random.split(key, len(leaves))
    return tree.unflatten(
      [
        (0.02 * jax.random.normal(k, leaf.shape)).astype(dtype)
        for k, leaf in zip(keys, leaves, strict=True)
      ]
    )

  return jax.jit(make)(jax.random.key(0))


def floor_s(
  config: TransformerConfig, batch: int, dtype: str, rate: float, copy: float
) -> float:
  """Least seconds for `_NEW` steps of a batch, the prompt left out."""
  operations = 2 * config.num_matmul_params * batch
  weights = config.num_matmul_params * jnp.dtype(dtype).itemsize
  each = 2 * config.num_layers * config.num_kv_heads * config.head_size * 4
  cache = batch * each * (_PROMPT + _NEW / 2)
  return _NEW * max(operations / rate, (weights + cache) / copy)


def ours(size: str) -> None:
  """Prints one line for each batch size, dtype and number of devices."""
  mesh_lib.use_cpu_cores()
  config, runs = SIZES[size], _RUNS.value
  rate, copy = matmul_rate(runs), copy_rate(runs)
  counts = sorted({1, jax.device_count()})
  for dtype, count in itertools.product(_DTYPES.value, counts):
    mesh = mesh_lib.make_data_mesh(count)
    params = prepare(random_params(config, dtype), mesh)
    generate = make_generate_fn(config, Sampling(), _NEW, mesh)
    for batch in map(int, _BATCHES.value):
      if batch % count:
        continue
      rng = np.random.default_rng(0)
      shape = (batch, _PROMPT)
      tokens = rng.integers(3, config.vocab_size, shape, np.int32)
      args = (
        params,
        tokens,
        np.ones(shape, bool),
        np.ones(batch, np.float32),
        np.arange(batch, dtype=np.uint32),
        np.full(batch, _NEW, np.int32),
      )
      start = time.perf_counter()
      jax.block_until_ready(generate(*args))
      first = time.perf_counter() - start
      taken = seconds(generate, *args, repeats=runs)
      least = floor_s(config, batch, dtype, rate, copy)
      print(
        json.dumps(
          {
            'size': size,
            'sampler': 'promptrl_jax',
            'dtype': dtype,
            'devices': count,
            'batch': batch,
            'tokens_per_s': round(batch * _NEW / taken, 1),
            'floor_tokens_per_s': round(batch * _NEW / least, 1),
            'share_of_floor': round(least / taken, 3),
            'first_call_s': round(first, 2),
          }
        ),
        flush=True,
      )


def transformers(size: str) -> None:
  """`generate` of transformers, the same shapes; needs torch."""
  import torch
  from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

  c = SIZES[size]
  torch.manual_seed(0)
  model = Qwen2ForCausalLM(
    Qwen2Config(
      vocab_size=c.vocab_size,
      hidden_size=c.hidden_size,
      num_hidden_layers=c.num_layers,
      num_attention_heads=c.num_heads,
      num_key_value_heads=c.num_kv_heads,
      intermediate_size=c.mlp_size,
      max_position_embeddings=c.max_positions,
      tie_word_embeddings=False,
    )
  ).eval()
  for dtype, static in itertools.product(_DTYPES.value, (False, True)):
    model = model.to(getattr(torch, dtype))
    settings = GenerationConfig(
      max_new_tokens=_NEW,
      do_sample=True,
      top_k=0,
      pad_token_id=0,
      eos_token_id=None,
      cache_implementation='static' if static else None,
    )
    for batch in map(int, _BATCHES.value):
      tokens = torch.randint(3, c.vocab_size, (batch, _PROMPT))
      mask = torch.ones_like(tokens)
      taken = []
      for _ in range(1 + _RUNS.value):
        start = time.perf_counter()
        with torch.inference_mode():
          model.generate(
            tokens, attention_mask=mask, generation_config=settings
          )
        taken.append(time.perf_counter() - start)
      print(
        json.dumps(
          {
            'size': size,
            'sampler': 'transformers',
            'dtype': dtype,
            'cache': 'static' if static else 'dynamic',
            'batch': batch,
            'tokens_per_s': round(batch * _NEW / np.median(taken[1:]), 1),
          }
        ),
        flush=True,
      )


def _run_apart(name: str, size: str) -> list[dict]:
  """Lines of one sampler, measured in a process of its own."""
  command = [sys.executable, '-m', 'experiments.bench_sampling']
  command += [f'--only={name}', f'--sizes={size}', f'--runs={_RUNS.value}']
  command += [f'--batches={",".join(_BATCHES.value)}']
  command += [f'--dtypes={",".join(_DTYPES.value)}']
  lines = []
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
    assert process.stdout is not None
    for line in process.stdout:
      if line.startswith('{'):
        print(line, end='', flush=True)
        lines.append(json.loads(line))
  if process.returncode:
    raise RuntimeError(f'{" ".join(command)} failed')
  return lines


def best(lines: list[dict]) -> dict[int, float]:
  """Tokens per second by batch, of the best way to run."""
  found: dict[int, float] = {}
  for line in lines:
    batch = line['batch']
    found[batch] = max(found.get(batch, 0.0), line['tokens_per_s'])
  return found


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  if _ONLY.value:
    run = {'promptrl_jax': ours, 'transformers': transformers}[_ONLY.value]
    for size in _SIZES.value:
      run(size)
    return
  peers = list(_PEERS.value)
  if 'transformers' in peers and importlib.util.find_spec('torch') is None:
    print('torch is not installed: transformers is skipped', file=sys.stderr)
    peers.remove('transformers')
  for size in _SIZES.value:
    mine = best(_run_apart('promptrl_jax', size))
    for peer in peers:
      theirs = best(_run_apart(peer, size))
      for batch, rate in mine.items():
        ratio = round(rate / theirs[batch], 2)
        line = {'size': size, 'batch': batch, f'over_{peer}': ratio}
        print(json.dumps(line), flush=True)


if __name__ == '__main__':
  app.run(main)
