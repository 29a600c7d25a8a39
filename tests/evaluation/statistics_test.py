from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from promptrl_jax.evaluation import statistics


def _runs(seeds: int, problems: int, rate: float, seed: int = 0) -> np.ndarray:
  return np.random.default_rng(seed).random((seeds, problems)) < rate


@pytest.mark.parametrize(
  ('n', 'c', 'k', 'expected'),
  [(10, 3, 1, 0.3), (10, 3, 5, 11 / 12), (10, 0, 5, 0.0), (10, 6, 5, 1.0)],
)
def test_pass_at_k_golden_values(n, c, k, expected):
  assert statistics.pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_equals_share_of_all_draws_that_hit():
  samples = [True] * 3 + [False] * 4
  draws = list(itertools.combinations(samples, 3))
  assert statistics.pass_at_k(7, 3, 3) == pytest.approx(
    np.mean([any(draw) for draw in draws])
  )


@pytest.mark.parametrize(('n', 'c', 'k'), [(3, 4, 1), (3, 1, 4), (3, 1, 0)])
def test_pass_at_k_refuses_impossible_counts(n, c, k):
  with pytest.raises(ValueError, match='must lie in'):
    statistics.pass_at_k(n, c, k)


def test_wilson_interval_golden_value():
  low, high = statistics.wilson_interval(202, 482)
  assert (low, high) == pytest.approx((0.376, 0.464), abs=5e-4)
  reference = scipy.stats.binomtest(202, 482).proportion_ci(method='wilson')
  assert (low, high) == pytest.approx((reference.low, reference.high))


def test_wilson_interval_has_width_at_the_ends_and_mirrors():
  low, high = statistics.wilson_interval(0, 20)
  assert low == 0.0
  assert 0.1 < high < 0.2
  assert statistics.wilson_interval(20, 20) == pytest.approx((1 - high, 1.0))


def _table(both: int, b: int, c: int, neither: int):
  first = [True] * (both + b) + [False] * (c + neither)
  second = [True] * both + [False] * b + [True] * c + [False] * neither
  return np.array(first), np.array(second)


def test_mcnemar_golden_table():
  result = statistics.mcnemar_exact(*_table(30, 10, 2, 58))
  # 2 (C(12,0) + C(12,1) + C(12,2)) / 2^12 = 158 / 4096.
  assert (result.b, result.c) == (10, 2)
  assert result.p == pytest.approx(158 / 4096)
  assert result.p == pytest.approx(scipy.stats.binomtest(2, 12).pvalue)


def test_mcnemar_ignores_agreement_and_order():
  first, second = _table(1, 9, 3, 0)
  more = _table(200, 9, 3, 500)
  assert statistics.mcnemar_exact(first, second).p == pytest.approx(
    statistics.mcnemar_exact(*more).p
  )
  swapped = statistics.mcnemar_exact(second, first)
  assert swapped == (3, 9, statistics.mcnemar_exact(first, second).p)


def test_mcnemar_of_equal_runs_is_one():
  run = _runs(1, 50, 0.5)[0]
  assert statistics.mcnemar_exact(run, run) == (0, 0, 1.0)


def test_mcnemar_refuses_scores_that_are_not_bool():
  with pytest.raises(ValueError, match='bool'):
    statistics.mcnemar_exact(np.array([0.5, 1.0]), np.array([1.0, 1.0]))


def test_mcnemar_by_seed_repeats_a_deterministic_run():
  first, second = _runs(3, 40, 0.6), _runs(1, 40, 0.4, seed=1)
  results = statistics.mcnemar_by_seed(first, second)
  expected = [statistics.mcnemar_exact(row, second[0]) for row in first]
  assert results == expected


def test_permutation_p_of_identical_arrays_is_one():
  values = _runs(3, 60, 0.5)
  assert statistics.permutation_test(values, values) == 1.0


def test_permutation_p_is_exact_for_few_problems():
  # All five differences positive: 2 of the 32 sign patterns reach the sum.
  first, second = np.full((1, 5), 1.0), np.zeros((1, 5))
  assert statistics.permutation_test(first, second) == pytest.approx(2 / 32)


def test_drawn_permutations_agree_with_enumeration():
  rng = np.random.default_rng(3)
  first, second = rng.random((2, 12)) + 0.12, rng.random((2, 12))
  exact = statistics.permutation_test(first, second, permutations=4096)
  drawn = statistics.permutation_test(first, second, permutations=4095)
  assert exact * 4096 == pytest.approx(round(exact * 4096))
  assert 0.01 < exact < 0.9
  assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact / 4095))


def test_permutation_p_of_one_run_nears_mcnemar():
  first, second = _table(30, 25, 12, 33)
  exact = statistics.mcnemar_exact(first, second).p
  p = statistics.permutation_test(first[None], second[None])
  assert p == pytest.approx(exact, abs=0.01)


def test_permutation_test_is_seeded_symmetric_and_never_zero():
  first, second = _runs(2, 100, 0.9), _runs(2, 100, 0.1, seed=1)
  p = statistics.permutation_test(first, second, permutations=500)
  assert p == pytest.approx(1 / 501)
  close = _runs(2, 100, 0.8, seed=2)
  p = statistics.permutation_test(first, close, seed=5)
  assert p == statistics.permutation_test(first, close, seed=5)
  assert p == statistics.permutation_test(close, first, seed=5)


def test_seeds_do_not_count_as_problems():
  # Copies of one run hold no further evidence.
  first, second = _runs(1, 80, 0.6), _runs(1, 80, 0.5, seed=1)
  once = statistics.permutation_test(first, second)
  copies = np.repeat(first, 5, axis=0), np.repeat(second, 5, axis=0)
  assert statistics.permutation_test(*copies) == once


def test_bootstrap_interval_covers_the_true_mean():
  covered = 0
  for seed in range(100):
    values = _runs(3, 60, 0.4, seed=seed)
    low, high = statistics.bootstrap_interval(values, resamples=300)
    covered += low <= 0.4 <= high
  # Crossed resampling errs to the wide side; 90 would be 2.3 sd under 95 %.
  assert covered >= 90


def test_bootstrap_interval_widens_with_the_spread_of_seeds():
  calm = np.tile(_runs(1, 200, 0.5), (5, 1)).astype(float)
  rates = np.array([0.1, 0.3, 0.5, 0.7, 0.9])[:, None]
  torn = np.random.default_rng(0).random((5, 200)) < rates
  width = [np.diff(statistics.bootstrap_interval(x))[0] for x in (calm, torn)]
  assert width[1] > 2 * width[0]


def test_bootstrap_of_one_run_matches_the_normal_interval():
  values = _runs(1, 400, 0.3).astype(float)
  low, high = statistics.bootstrap_interval(values)
  half = 1.96 * values.std() / math.sqrt(400)
  assert (low, high) == pytest.approx(
    (values.mean() - half, values.mean() + half), abs=0.005
  )


def test_bootstrap_is_seeded_and_blocks_do_not_show(monkeypatch):
  values = _runs(4, 50, 0.5)
  first = statistics.bootstrap_interval(values, seed=7)
  assert first == statistics.bootstrap_interval(values, seed=7)
  assert first != statistics.bootstrap_interval(values, seed=8)
  monkeypatch.setattr(statistics, '_BLOCK_ELEMENTS', 5_000)
  small = statistics.bootstrap_interval(values, seed=7)
  assert small == pytest.approx(first, abs=0.01)


def test_difference_of_a_deterministic_array_with_itself_is_zero():
  values = _runs(1, 70, 0.5)
  assert statistics.bootstrap_difference(values, values) == (0.0, 0.0)


def test_difference_is_paired_by_problem():
  # Problems differ much, strategies by a constant: pairing removes the spread.
  second = np.tile(np.linspace(0.0, 0.9, 50), (3, 1))
  low, high = statistics.bootstrap_difference(second + 0.1, second)
  assert (low, high) == pytest.approx((0.1, 0.1))


def test_difference_takes_one_row_and_changes_sign_with_order():
  first, second = _runs(5, 90, 0.7), _runs(1, 90, 0.4, seed=1)
  low, high = statistics.bootstrap_difference(first, second)
  assert low < first.mean() - second.mean() < high
  low_back, high_back = statistics.bootstrap_difference(second, first)
  assert (-high_back, -low_back) == pytest.approx((low, high), abs=0.02)


@pytest.mark.parametrize(
  ('shapes', 'message'),
  [
    (((2, 5), (2, 6)), 'same problems, got 5 and 6'),
    (((2, 5), (3, 5)), 'equally many seeds'),
    (((5,), (5,)), r'shape \[seeds, problems\]'),
  ],
)
def test_arrays_that_cannot_be_paired_are_refused(shapes, message):
  first, second = (np.zeros(shape) for shape in shapes)
  for compare in (
    statistics.bootstrap_difference,
    statistics.permutation_test,
  ):
    with pytest.raises(ValueError, match=message):
      compare(first, second)


def test_results_that_the_system_lost_are_refused():
  with pytest.raises(ValueError, match='not finite'):
    statistics.bootstrap_interval(np.array([[0.5, np.nan]]))


def test_holm_golden_values_keep_the_given_order():
  adjusted = statistics.holm([0.01, 0.04, 0.03, 0.005])
  assert adjusted == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_is_monotone_and_between_raw_and_bonferroni():
  p = np.random.default_rng(0).random(20) ** 3
  adjusted = statistics.holm(p)
  assert (np.diff(adjusted[np.argsort(p)]) >= 0).all()
  assert (adjusted >= p).all()
  assert (adjusted <= np.minimum(1.0, 20 * p)).all()
  assert statistics.holm([0.3]) == pytest.approx([0.3])


def test_holm_refuses_what_is_no_p_value():
  with pytest.raises(ValueError, match=r'0\.\.1'):
    statistics.holm([0.1, np.nan])


def test_minimum_detectable_difference_solves_its_equation():
  d = statistics.minimum_detectable_difference(500, 0.2)
  z_a, z_b = scipy.stats.norm.ppf([0.975, 0.8])
  n = (z_a * math.sqrt(0.2) + z_b * math.sqrt(0.2 - d * d)) ** 2 / d**2
  assert n == pytest.approx(500)
  assert d == pytest.approx(0.0559, abs=5e-5)


def test_minimum_detectable_difference_is_seen_about_as_often_as_asked():
  d = statistics.minimum_detectable_difference(300, 0.3)
  rng = np.random.default_rng(0)
  shares = [(0.3 + d) / 2, (0.3 - d) / 2, 0.7]
  seen = [
    scipy.stats.binomtest(int(b), int(b + c)).pvalue < 0.05
    for b, c, _ in rng.multinomial(300, shares, size=400)
  ]
  # The exact test is a little conservative.
  assert 0.68 < np.mean(seen) < 0.86


def test_minimum_detectable_difference_shrinks_with_problems():
  few, many = (
    statistics.minimum_detectable_difference(n, 0.2) for n in (100, 400)
  )
  assert many < few
  assert statistics.minimum_detectable_difference(10, 0.1) == math.inf


def test_problems_of_one_family_do_not_count_as_independent_ones():
  rng = np.random.default_rng(0)
  families = rng.random((1, 40)) < 0.5
  values = np.repeat(families, 5, axis=1).astype(float)
  names = [str(i) for i in range(40) for _ in range(5)]
  for function, arguments in (
    (statistics.bootstrap_interval, (values,)),
    (statistics.bootstrap_difference, (values, np.zeros_like(values))),
  ):
    alone = np.diff(function(*arguments))[0]
    together = np.diff(function(*arguments, groups=names))[0]
    assert together == pytest.approx(alone * 5**0.5, rel=0.1)
    once = function(*(x[:, ::5] for x in arguments))
    assert function(*arguments, groups=names) == pytest.approx(once)


def test_signs_of_one_family_flip_together():
  first = np.repeat([[1.0, 1.0, 1.0, 0.0]], 3, axis=1)
  second = np.zeros_like(first)
  names = [name for name in 'abcd' for _ in range(3)]
  p = statistics.permutation_test(first, second, groups=names)
  assert p == pytest.approx(2 / 2**3)
  assert statistics.permutation_test(first, second) == pytest.approx(2 / 2**9)


def test_without_families_each_problem_stands_for_itself():
  values = np.random.default_rng(0).random((3, 20))
  plain = statistics.bootstrap_interval(values)
  for groups in ([''] * 20, [str(i) for i in range(20)]):
    assert statistics.bootstrap_interval(
      values, groups=groups
    ) == pytest.approx(plain)
  with pytest.raises(ValueError, match='each of 20 problems, got 2'):
    statistics.bootstrap_interval(values, groups=['a', 'b'])


def test_families_of_different_sizes_keep_the_mean_of_problems():
  values = np.array([[1.0] * 30 + [0.0] * 10])
  groups = ['large'] * 30 + [f'small{i}' for i in range(10)]
  low, high = statistics.bootstrap_interval(values, groups=groups)
  assert low < values.mean() < high and low == 0.0


def test_pass_hat_k_equals_share_of_all_draws_that_pass_throughout():
  trials = [True] * 4 + [False] * 3
  draws = list(itertools.combinations(trials, 3))
  expected = sum(all(draw) for draw in draws) / len(draws)
  assert statistics.pass_hat_k(7, 4, 3) == pytest.approx(expected, abs=1e-12)
  assert statistics.pass_hat_k(5, 1, 2) == 0.0
  assert statistics.pass_hat_k(5, 5, 5) == statistics.pass_hat_k(4, 4, 1) == 1.0
  with pytest.raises(ValueError, match='run at least k trials'):
    statistics.pass_hat_k(2, 1, 3)
