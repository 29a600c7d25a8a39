"""Estimates, intervals and paired tests for pass / fail results.

Arrays are `[seeds, problems]`: row s is a full run over all problems. Every
comparison of two strategies is paired by problem. Intervals cover 95 %.

Problems of one family resemble each other. Where `groups` names the family of
each problem, families are the units that are resampled and whose signs are
flipped, and the problems of one go together.

Exact McNemar is defined for a single pair of runs. For several seeds there are
two tests, and a report needs both:

- `mcnemar_by_seed` is the exact test for each seed. A seed of one strategy has
  no natural partner in another, so pairing row s with row s is arbitrary. The
  p-values describe single runs and must not be combined.
- `permutation_test` is the pooled test, on the per-problem mean difference over
  seeds. Problems are its units, so five seeds do not count as five times as
  many problems, as they would in one pooled 2x2 table. It is conditional on
  these seeds. The interval of `bootstrap_difference` also covers the variance
  over training seeds, so a claim about a strategy needs a small p and an
  interval without 0. In a simulation with two equal strategies, 5 seeds and
  100 problems, the sign-flip test alone was wrong in 4 % of 400 runs without a
  seed effect and in 28 % with a strong one (0.4 on the logit); together with
  the interval it was wrong in 0 % and 4.5 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from promptrl_jax.evaluation import resamples as resamples_lib

RESAMPLES = 10_000  # Of the bootstrap, and of permutation tests.

# Resamples are drawn in blocks of this many counts: 2,000 resamples of 500
# problems.
_BLOCK_ELEMENTS = 1_000_000
_CONFIDENCE = 0.95


class Interval(NamedTuple):
  """Lower and upper end of an interval, in the unit of the estimate."""

  low: float
  high: float


class McNemar(NamedTuple):
  """Discordant counts of a paired 2x2 table, and the exact two-sided p-value.

  Attributes:
    b: number of problems that only the first run solved.
    c: number of problems that only the second run solved.
  """

  b: int
  c: int
  p: float


def _quantile(probability: float) -> float:
  return statistics.NormalDist().inv_cdf(probability)


def _check_count(name: str, value: int) -> None:
  if value < 1:
    raise ValueError(f'{name} must be at least 1, got {value}.')


def _as_runs(name: str, values: np.ndarray) -> np.ndarray:
  values = np.asarray(values, dtype=np.float64)
  if values.ndim != 2 or 0 in values.shape:
    raise ValueError(
      f'{name} must have shape [seeds, problems] with at least one of each, '
      f'got {values.shape}. For a single run pass run[None, :].'
    )
  if not np.isfinite(values).all():
    raise ValueError(
      f'{name} holds values that are not finite. A result that the system '
      'lost is run again or left out, never scored.'
    )
  return values


def _as_paired_runs(
  first: np.ndarray, second: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  first, second = _as_runs('first', first), _as_runs('second', second)
  if first.shape[1] != second.shape[1]:
    raise ValueError(
      f'paired arrays need the same problems, got {first.shape[1]} and '
      f'{second.shape[1]}.'
    )
  seeds = first.shape[0], second.shape[0]
  if seeds[0] != seeds[1] and 1 not in seeds:
    raise ValueError(
      f'paired arrays need equally many seeds, or one seed for a '
      f'deterministic strategy, got {seeds[0]} and {seeds[1]}.'
    )
  return first, second


def _units(problems: int, groups: Sequence[str] | None) -> np.ndarray:
  """Returns the number of each problem's group, int `[problems]`, from 0 on.

  Without groups, and where a name is empty, a problem stands for itself.
  """
  if groups is None:
    return np.arange(problems)
  if len(groups) != problems:
    raise ValueError(
      f'groups must name the group of each of {problems} problems, got '
      f'{len(groups)}.'
    )
  numbers: dict[str | int, int] = {}
  return np.array(
    [
      numbers.setdefault(name or place, len(numbers))
      for place, name in enumerate(groups)
    ]
  )


def pass_at_k(n: int, c: int, k: int) -> float:
  """Returns the unbiased estimate `1 - C(n-c, k) / C(n, k)` of one problem.

  Source: Chen et al. 2021, Evaluating Large Language Models Trained on Code,
  equation 1 (arXiv 2107.03374). The estimate holds for n independent samples of
  a frozen policy (n >= 2k is advisable), of which c passed, but not for the
  steps of a search. The score of a data set is the mean over its problems.
  """
  if not 0 <= c <= n:
    raise ValueError(f'c must lie in 0..n = 0..{n}, got {c}.')
  if not 1 <= k <= n:
    raise ValueError(
      f'k must lie in 1..n = 1..{n}, got {k}: draw at least k samples.'
    )
  return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
  """Returns the unbiased estimate `C(c, k) / C(n, k)` of one problem.

  The probability that k independent trials all pass: what a user may rely on.
  Source: Yao et al. 2024, tau-bench, section 4.3 (arXiv 2406.12045), pass^k. A
  trial may be a whole search, since trials do not see one another. The score of
  a data set is the mean over its problems.
  """
  if not 0 <= c <= n:
    raise ValueError(f'c must lie in 0..n = 0..{n}, got {c}.')
  if not 1 <= k <= n:
    raise ValueError(
      f'k must lie in 1..n = 1..{n}, got {k}: run at least k trials.'
    )
  return math.comb(c, k) / math.comb(n, k)


def wilson_interval(successes: int, trials: int) -> Interval:
  """Returns the score interval of a proportion, without continuity correction.

  `(p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)`; Wilson 1927,
  Probable Inference, the Law of Succession, and Statistical Inference. Unlike
  the bootstrap interval it has a width when nothing or everything passes.
  """
  _check_count('trials', trials)
  if not 0 <= successes <= trials:
    raise ValueError(f'successes must lie in 0..{trials}, got {successes}.')
  z = _quantile(0.5 + _CONFIDENCE / 2.0)
  p = successes / trials
  scale = 1.0 + z * z / trials
  centre = (p + z * z / (2 * trials)) / scale
  half = z / scale * math.sqrt(p * (1 - p) / trials + (z / (2 * trials)) ** 2)
  # Rounding would give 1e-18 where the formula is exactly 0 (or 1).
  low = 0.0 if successes == 0 else centre - half
  high = 1.0 if successes == trials else centre + half
  return Interval(low, high)


def mcnemar_exact(first: np.ndarray, second: np.ndarray) -> McNemar:
  """Returns the exact two-sided McNemar test of one run against another.

  Runs are bool `[problems]`: which problems they passed. Under the null
  hypothesis each of the `n = b + c` problems that only one run solved falls to
  either side with probability 1/2, so that
  `p = min(1, 2 P(Bin(n, 1/2) <= min(b, c)))`. McNemar 1947, Note on the
  sampling error of the difference between correlated proportions; exact form
  with the binomial.
  """
  first, second = np.asarray(first), np.asarray(second)
  if first.dtype != np.bool_ or second.dtype != np.bool_:
    raise ValueError(
      f'McNemar needs bool arrays, got {first.dtype} and {second.dtype}.'
    )
  if first.ndim != 1 or first.shape != second.shape or first.size == 0:
    raise ValueError(
      'McNemar needs two runs of shape [problems], got '
      f'{first.shape} and {second.shape}.'
    )
  b = int(np.sum(first & ~second))
  c = int(np.sum(~first & second))
  tail = sum(math.comb(b + c, i) for i in range(min(b, c) + 1))
  return McNemar(b, c, min(1.0, 2 * tail / 2 ** (b + c)))


def mcnemar_by_seed(first: np.ndarray, second: np.ndarray) -> list[McNemar]:
  """Returns `mcnemar_exact` of each row of `[seeds, problems]` bool arrays.

  An array of one row (a deterministic strategy) is broadcast.
  """
  _as_paired_runs(first, second)
  first, second = np.broadcast_arrays(first, second)
  return [mcnemar_exact(x, y) for x, y in zip(first, second, strict=True)]


def permutation_test(
  first: np.ndarray,
  second: np.ndarray,
  *,
  groups: Sequence[str] | None = None,
  permutations: int = RESAMPLES,
  seed: int = 0,
) -> float:
  """Returns the two-sided p-value of the paired sign-flip test over problems.

  Let `d_p` be the mean over seeds of `first - second` on problem p. Under the
  null hypothesis the labels of the strategies are exchangeable within a
  problem, so the statistic `|sum d|` is compared with its value under random
  sign patterns. If there are at most `permutations` patterns, all are
  enumerated and p is exact. Otherwise `permutations` of them are drawn and
  `p = (1 + hits) / (1 + permutations)`, which is never 0 (Phipson and Smyth
  2010, Permutation P-values should never be zero, equation 2). Scores are
  `[seeds, problems]`; an array of one row is broadcast.

  Args:
    groups: name of the family of each problem.
    permutations: maximal number of sign patterns, which bounds time and memory.
  """
  _check_count('permutations', permutations)
  first, second = _as_paired_runs(first, second)
  difference = first.mean(axis=0) - second.mean(axis=0)
  difference = np.bincount(_units(difference.size, groups), difference)
  # Rounding of the mean over seeds gives 1e-17 where the difference is 0, and
  # sums that differ in the last bit where they are equal. Both are ties.
  slack = 1e-9
  difference = difference[np.abs(difference) > slack]
  units = difference.size
  if units == 0:
    return 1.0
  threshold = abs(difference.sum()) - slack * units
  if 2**units <= permutations:
    patterns = np.arange(2**units)[:, None] >> np.arange(units) & 1
    return float(np.mean(np.abs((1 - 2 * patterns) @ difference) >= threshold))
  rng = np.random.default_rng(seed)
  hits, done = 0, 0
  while done < permutations:
    block = min(permutations - done, max(1, _BLOCK_ELEMENTS // units))
    flipped = rng.integers(0, 2, size=(block, units), dtype=np.int8)
    sums = difference.sum() - 2.0 * (flipped @ difference)
    hits += int(np.sum(np.abs(sums) >= threshold))
    done += block
  return (1 + hits) / (1 + permutations)


def _bootstrap(
  arrays: tuple[np.ndarray, ...],
  signs: tuple[float, ...],
  groups: Sequence[str] | None,
  resamples: int,
  seed: int,
) -> Interval:
  """Returns the percentile interval of the signed sum of the arrays' means."""
  _check_count('resamples', resamples)
  problems = arrays[0].shape[1]
  numbers = _units(problems, groups)
  sizes = np.bincount(numbers)
  # [units, seeds] of each array, so that draws of both give its sum of means.
  totals = [
    np.stack([np.bincount(numbers, row) for row in values], axis=1)
    / len(values)
    for values in arrays
  ]
  estimates = []
  for draws in resamples_lib.draw(
    tuple(map(len, arrays)),
    sizes.size,
    resamples,
    max(1, _BLOCK_ELEMENTS // problems),
    seed,
  ):
    units = draws.units.astype(float)
    sums = sum(
      sign * np.einsum('rs,rs->r', units @ total, counts)
      for sign, total, counts in zip(signs, totals, draws.seeds, strict=True)
    )
    estimates.append(sums / (units @ sizes))
  tail = (1.0 - _CONFIDENCE) / 2.0
  low, high = np.quantile(np.concatenate(estimates), [tail, 1.0 - tail])
  return Interval(float(low), float(high))


def bootstrap_interval(
  values: np.ndarray,
  *,
  groups: Sequence[str] | None = None,
  resamples: int = RESAMPLES,
  seed: int = 0,
) -> Interval:
  """Returns the percentile interval of the mean over problems and seeds.

  Every resample draws seeds with replacement and, independently, problems with
  replacement. All seeds have the same problems, so the two levels are crossed
  (Owen 2007, The pigeonhole bootstrap; its variance is conservative). With a
  single row the interval is over problems only. With `groups`, families are
  drawn in the place of problems.
  """
  values = _as_runs('values', values)
  return _bootstrap((values,), (1.0,), groups, resamples, seed)


def bootstrap_difference(
  first: np.ndarray,
  second: np.ndarray,
  *,
  groups: Sequence[str] | None = None,
  resamples: int = RESAMPLES,
  seed: int = 0,
) -> Interval:
  """Returns the interval of `mean(first) - mean(second)`, paired by problem.

  It is a percentile interval. Each resample draws one set of problems for both
  arrays. Seeds are drawn independently for each array, because run s of one
  strategy is not paired with run s of the other. An array of one row stands for
  a deterministic strategy without variance over seeds.
  """
  arrays = _as_paired_runs(first, second)
  return _bootstrap(arrays, (1.0, -1.0), groups, resamples, seed)


def holm(p_values: np.ndarray) -> np.ndarray:
  """Returns p-values adjusted for multiple comparisons, in the given order.

  The i-th smallest of m becomes `max over j <= i of min(1, (m - j + 1) p_j)`.
  Holm 1979, A Simple Sequentially Rejective Multiple Test Procedure.
  """
  p_values = np.asarray(p_values, dtype=np.float64)
  if p_values.ndim != 1 or not np.all((p_values >= 0) & (p_values <= 1)):
    raise ValueError(f'p-values must be a flat array in 0..1, got {p_values}.')
  order = np.argsort(p_values, kind='stable')
  factors = np.arange(p_values.size, 0, -1)
  stepped = np.minimum(1.0, factors * p_values[order])
  adjusted = np.empty_like(p_values)
  adjusted[order] = np.maximum.accumulate(stepped)
  return adjusted


def minimum_detectable_difference(problems: int, discordant: float) -> float:
  """Returns the smallest paired difference of pass rates that can be shown.

  The function solves `sqrt(n) d = z_a sqrt(psi) + z_b sqrt(psi - d^2)` for d,
  where psi is the share of problems that exactly one strategy solves, and `z_a`
  and `z_b` are the normal quantiles of half the error rate, 5 %, and of the
  power, 80 %. Source: Connor 1987, Sample Size for Testing Differences in
  Proportions for the Paired-Sample Design, equation for n. It is meant to be
  printed before a run.

  Args:
    problems: number of paired problems n.
    discordant: psi, from a pilot run or an estimate.

  Returns:
    A share (0.05 is five points), or `inf` if no difference can be shown,
    because a difference cannot exceed psi.
  """
  _check_count('problems', problems)
  if not 0.0 < discordant <= 1.0:
    raise ValueError(f'discordant must lie in (0, 1], got {discordant}.')
  z_a, z_b = _quantile(1.0 - 0.05 / 2.0), _quantile(0.8)
  # The equation squared once is quadratic in d; the larger root solves it.
  a = problems + z_b**2
  b = z_a * math.sqrt(discordant * problems)
  c = (z_a**2 - z_b**2) * discordant
  discriminant = b * b - a * c
  if discriminant < 0:
    return math.inf
  root = (b + math.sqrt(discriminant)) / a
  return root if root <= discordant else math.inf
