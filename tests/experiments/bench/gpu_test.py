"""The benchmark of a GPU runs on a CPU."""

import json

import pytest

from experiments.bench import rates
from tests.experiments import commands


def test_a_copy_in_the_memory_of_a_device_takes_time():
  assert 0 < rates.device_copy_rate(1, megabytes=1) < 1e15


def test_an_accelerator_has_rates_of_its_own_and_no_kernels_of_a_cpu(
  monkeypatch,
):
  monkeypatch.setattr(rates.jax, 'default_backend', lambda: 'gpu')
  monkeypatch.setattr(rates, 'device_copy_rate', lambda runs, megabytes: 7.0)
  monkeypatch.setattr(rates, '_LARGE', 8)
  assert rates.memory_rate(1) == 7.0
  assert rates.packed_rate(4, 1) == 0.0
  monkeypatch.setattr(rates.few_rows, 'pack', None)  # It would be called.
  assert rates.product_rate('bfloat16', 1) > 0


def bench(*arguments):
  return commands.run('experiments.bench.gpu', *arguments)


@pytest.mark.slow
def test_it_runs_on_this_device():
  done = bench(
    '--size=small',
    '--batch=2',
    '--prompt=4',
    '--new=3',
    '--prompts=2',
    '--group=2',
    '--micro_batches=1',
    '--runs=1',
  )
  assert done.returncode == 0, done.stderr
  lines = [json.loads(text) for text in done.stdout.splitlines()]
  floors, prefill, decode, grpo = lines
  assert floors['matmul_per_s'] > 0 and floors['copy_bytes_per_s'] > 0
  assert prefill['share_of_matmul'] > 0 and prefill['tokens_per_s'] > 0
  assert decode['program'] == 'decode' and decode['rows'] == 2
  assert grpo['update_share_of_matmul'] > 0
  assert grpo['rollout_tokens_per_s'] > 0


@pytest.mark.slow
def test_rows_that_do_not_divide_are_refused():
  done = bench('--prompts=2', '--micro_batches=3')
  assert done.returncode
  assert '--prompts=2 must be a multiple of --micro_batches=3' in done.stderr
