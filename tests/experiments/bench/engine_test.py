"""What the benchmark of the engine asks for."""

import numpy as np
import pytest

from experiments.bench import engine as bench_engine


@pytest.mark.parametrize('seed', range(3))
def test_lengths_are_long_tailed(seed):
  lengths = bench_engine.completion_lengths(256, seed)
  assert lengths.mean() == pytest.approx(40, abs=1)
  assert lengths.max() == 256 and lengths.min() >= 1
  assert np.median(lengths) < 30


def test_requests_fit_the_model():
  for request in bench_engine.make_requests(64):
    assert 8 <= len(request.prompt) <= 64
    assert max(request.prompt) < 4096
