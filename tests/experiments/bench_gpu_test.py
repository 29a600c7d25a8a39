"""The floors of a GPU's benchmark, and that it runs on a CPU."""

import dataclasses
import json
import subprocess
import sys

from experiments import rates, rl_comparison
from promptrl_jax.models.config import TransformerConfig

# Products of a layer: 4 of 8 x 8 and 3 of 8 x 16; and 50 x 8 for logits.
CONFIG = TransformerConfig(
  vocab_size=50,
  hidden_size=8,
  num_layers=2,
  num_heads=2,
  num_kv_heads=2,
  head_size=4,
  mlp_size=16,
  max_positions=32,
  tie_embeddings=False,
  eos_token_ids=(),
)
NORMS = 5 * 8  # counted among the parameters


def test_what_reading_prompts_costs():
  found = rl_comparison.forward_operations(CONFIG, rows=3, length=5)
  products = 3 * 5 * (2 * (4 * 64 + 3 * 128) + NORMS) + 3 * 400
  # Scores and values: two products of 8 for each layer and pair of tokens.
  pairs = 3 * (5 + 4 + 3 + 2 + 1)
  assert found == 2 * products + 2 * 2 * 2 * 8 * pairs


def test_what_a_step_reads():
  read = lambda config: rl_comparison.step_bytes(config, 3, 5, 'bfloat16')
  weights = 2 * (4 * 64 + 3 * 128) + 400 + NORMS
  assert read(CONFIG) == 2 * (weights + 3 * 5 * 2 * 2 * 8)
  less = 2 * (4 * 64 - 2 * 32 + 3 * 128) + 400 + NORMS
  shared = dataclasses.replace(CONFIG, num_kv_heads=1)
  assert read(shared) == 2 * (less + 3 * 5 * 2 * 2 * 4)


def test_a_copy_in_the_memory_of_a_device_takes_time():
  assert 0 < rates.device_copy_rate(1, megabytes=1) < 1e15


def bench(*arguments):
  return subprocess.run(
    [sys.executable, '-m', 'experiments.bench_gpu', *arguments],
    capture_output=True, text=True, timeout=300,
  )  # fmt: skip


def test_it_runs_on_this_device():
  done = bench(
    '--size=small', '--batch=2', '--prompt=4', '--new=3', '--prompts=2',
    '--group=2', '--micro_batches=1', '--runs=1',
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  lines = [json.loads(text) for text in done.stdout.splitlines()]
  floors, prefill, decode, grpo = lines
  assert floors['matmul_per_s'] > 0 and floors['copy_bytes_per_s'] > 0
  assert prefill['share_of_matmul'] > 0 and prefill['tokens_per_s'] > 0
  assert decode['program'] == 'decode' and decode['rows'] == 2
  assert grpo['update_share_of_matmul'] > 0
  assert grpo['rollout_tokens_per_s'] > 0


def test_rows_that_do_not_divide_are_refused():
  done = bench('--prompts=2', '--micro_batches=3')
  assert done.returncode
  assert '--prompts=2 must be a multiple of --micro_batches=3' in done.stderr
