from __future__ import annotations

import numpy as np
import pytest

from promptrl_jax.evaluation.cells import Cell


@pytest.fixture
def make_cell():
  """Returns a function that draws the results of a strategy."""

  def make(
    strategy='ppo',
    budget=4,
    rate=0.5,
    seeds=3,
    problems=30,
    protocol='visible1',
    **changes,
  ):
    rng = np.random.default_rng([budget, seeds, round(100 * rate)])
    shape = seeds, problems
    passed = rng.random(shape) < rate
    fields = {
      'task_ids': tuple(f'mini/{i}' for i in range(problems)),
      'passed': passed,
      'soft': np.where(passed, 1.0, rng.integers(0, 3, shape) / 3),
      'calls': rng.integers(1, max(budget, 1) + 1, shape),
      'attempts': rng.integers(1, max(budget, 1) + 1, shape),
      'prompt_tokens': rng.integers(50, 100, shape),
      'completion_tokens': rng.integers(10, 50, shape),
    }
    return Cell(strategy, budget, protocol, **(fields | changes))

  return make
