"""NSGA-II's order and the hypervolume, by hand and by counting."""

import itertools
import math

import numpy as np
import pytest

from promptrl_jax.evolution import pareto

# Two on the first front's corners, one between them; two more fronts.
POINTS = np.array([[0, 4], [1, 1], [4, 0], [3, 2], [1, 2], [0, 0]], float)


def test_fronts_by_hand():
  assert pareto.fronts(POINTS).tolist() == [0, 2, 0, 0, 1, 3]
  assert pareto.fronts(np.ones((3, 2))).tolist() == [0, 0, 0]  # None is better.
  assert pareto.fronts(np.array([[1.0], [3.0], [2.0]])).tolist() == [2, 0, 1]
  assert pareto.fronts(np.zeros((0, 2))).tolist() == []


def test_fronts_equal_their_definition():
  rng = np.random.default_rng(0)
  for _ in range(30):
    values = rng.integers(0, 4, (rng.integers(1, 12), rng.integers(1, 4)))
    ranks, left = pareto.fronts(values), list(range(len(values)))
    for rank in itertools.count():
      if not left:
        break
      front = [
        i
        for i in left
        if not any(
          all(values[j] >= values[i]) and any(values[j] > values[i])
          for j in left
        )
      ]
      assert {i for i in left if ranks[i] == rank} == set(front)
      left = [i for i in left if i not in front]


def test_crowding_by_hand():
  # Sorted by the first: 0, 1, 4, by the second 9, 6, 0.
  values = np.array([[1, 6], [4, 0], [0, 9]], float)
  assert pareto.crowding(values).tolist() == [4 / 4 + 9 / 9, np.inf, np.inf]
  # All are equal in an objective: it tells nobody apart.
  flat = np.array([[1, 5], [2, 5], [4, 5]], float)
  assert pareto.crowding(flat).tolist() == [np.inf, 1.0, np.inf]
  assert pareto.crowding(np.ones((3, 2))).tolist() == [0, 0, 0]
  assert pareto.crowding(np.zeros((0, 2))).tolist() == []


def test_the_order_is_by_front_and_then_by_loneliness():
  values = np.array([[2, 2], [0, 5], [2.1, 1.9], [5, 0], [0, 0]], float)
  # The ends are first, of those between them the one with more room.
  gap = pareto.crowding(values[:4])
  assert gap[0] > gap[2]
  assert pareto.nsga2_order(values).tolist() == [1, 3, 0, 2, 4]
  assert pareto.nsga2_order(np.zeros((0, 2))).tolist() == []


def test_a_volume_by_hand():
  assert pareto.hypervolume(np.array([[3.0], [5.0]]), [1.0]) == 4.0
  # 1 x 3, 1 x 2 and 1 x 1 side by side; the dominated one adds nothing.
  stairs = np.array([[1, 3], [2, 2], [3, 1], [1, 1]], float)
  assert pareto.hypervolume(stairs, [0, 0]) == 6.0
  assert pareto.hypervolume(stairs, [1, 1]) == 1.0
  assert pareto.hypervolume(stairs, [9, 9]) == 0.0
  assert pareto.hypervolume(np.zeros((0, 2)), [0, 0]) == 0.0
  cubes = np.array([[2, 1, 1], [1, 2, 1], [1, 1, 2]], float)
  assert pareto.hypervolume(cubes, [0, 0, 0]) == 4.0  # 1 + 3 x 1


@pytest.mark.parametrize('count', [1, 2, 3, 4])
def test_a_volume_equals_the_number_of_cells(count):
  rng = np.random.default_rng(count)
  cells = np.stack(
    np.meshgrid(*[np.arange(6) + 0.5] * count, indexing='ij'), axis=-1
  ).reshape(-1, count)
  for _ in range(20):
    points = rng.integers(0, 7, (8, count)).astype(float)
    inside = (cells[:, None] <= points[None]).all(axis=2).any(axis=1)
    found = pareto.hypervolume(points, np.zeros(count))
    assert math.isclose(found, inside.sum())


@pytest.mark.parametrize(
  ('function', 'message'),
  [
    (lambda: pareto.fronts([1.0]), r'shape \(1,\): expected finite'),
    (lambda: pareto.fronts([[np.nan]]), 'expected finite'),
    (lambda: pareto.fronts(np.zeros((2, 0))), 'expected finite'),
    (lambda: pareto.hypervolume(POINTS, [0.0]), 'expected 2 finite numbers'),
  ],
)
def test_objectives_that_cannot_be_compared_are_refused(function, message):
  with pytest.raises(ValueError, match=message):
    function()
