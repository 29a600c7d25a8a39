"""The least time of generating tokens, on a machine with known rates."""

import dataclasses

import pytest

from experiments.bench.floor import floor_s, step_bytes
from tests.experiments.bench.models import NORMS, TWO_LAYERS

WEIGHTS = 2 * (4 * 64 + 3 * 128) + 400 + NORMS
CACHED = 2 * 2 * 8  # numbers of a position: keys and values of two layers


@pytest.fixture
def rates(monkeypatch):
  """A machine of 1 Gop/s and 1 GB/s."""
  monkeypatch.setattr('experiments.bench.floor._product_rate', lambda _: 1e9)
  monkeypatch.setattr('experiments.bench.floor._copy_rate', lambda: 1e9)


def test_a_step_reads_weights_in_their_type_and_the_cache():
  cache = 3 * 5 * CACHED * 2
  assert step_bytes(TWO_LAYERS, 3, 5, 'bfloat16') == 2 * WEIGHTS + cache
  assert step_bytes(TWO_LAYERS, 3, 5, 'gguf') == 5 / 8 * WEIGHTS + cache
  less = WEIGHTS - 2 * 2 * 32
  shared = dataclasses.replace(TWO_LAYERS, num_kv_heads=1)
  assert step_bytes(shared, 3, 5, 'bfloat16') == 2 * less + cache / 2


def test_many_rows_take_their_products(rates):
  assert floor_s(TWO_LAYERS, 'bfloat16', 64, 10, 640) == pytest.approx(
    2 * WEIGHTS * 650 / 1e9
  )


def test_a_row_alone_reads_all_weights_for_each_token(rates):
  assert floor_s(TWO_LAYERS, 'float32', 1, 0, 10) == pytest.approx(
    4 * WEIGHTS * 10 / 1e9
  )
  # And its cache, where that is counted.
  assert floor_s(TWO_LAYERS, 'float32', 1, 0, 10, length=7) == pytest.approx(
    (4 * WEIGHTS + 7 * CACHED * 2) * 10 / 1e9
  )
