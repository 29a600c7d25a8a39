"""A verifier: the probability that a program is right, without hidden tests.

  visible and generated tests, agreement on mutated inputs, log-probs
    --features--> logistic regression --> P(hidden tests pass)

As LEVER (Ni et al. 2023, arXiv 2302.08468) does, it reranks samples by what
their execution shows and by the model's own probability. The features are few
and cost no call, so that a few hundred problems are enough to fit it. It judges
programs that pass the visible tests: others are wrong wherever these are part
of the truth.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from promptrl_jax.execution import CallResult
from promptrl_jax.rewards import agreement

_OF_PROBLEM = (
  'programs so far',  # log of their number n
  'share that passes',  # m of n pass the visible tests
  'groups',  # log of how many different outcomes the m have
)
_OF_PROGRAM = (
  'agreeing',  # log of 1 + how many of the m have equal outcomes
  'generated tests',  # share of the tests written by the model that it passes
  'no outcome',
  'raises',  # share of the mutated inputs on which it does
  'mean log-prob',
  'least log-prob',
  'entropy',
  'tokens',  # log
  'greedy',
  'place',  # log, among those that pass
)
# Of each feature of a program: its mean over the m programs, which says how
# hard the problem is, and the distance from that mean, by which one program is
# preferred to another. They have weights of their own, since what goes with an
# easy problem need not go with the better program (Mundlak 1978, On the Pooling
# of Time Series and Cross Section Data, Econometrica 46).
FEATURES = (
  *_OF_PROBLEM,
  *(f'{name}, mean' for name in _OF_PROGRAM),
  *(f'{name}, above mean' for name in _OF_PROGRAM),
)


@dataclasses.dataclass(frozen=True)
class Candidate:
  """A program that passes the visible tests.

  Attributes:
    code: the program.
    outcomes: what it computes on inputs that are the same for all programs.
    certainty: mean log-prob, least log-prob and mean entropy of the tokens of
      its completion, in nats; None if they are not known.
    tokens: of the completion that it was taken from.
    greedy: whether that was decoded greedily.
    generated: share of the tests that the model wrote which it passes; None if
      there are none.
  """

  code: str
  outcomes: CallResult | None = None
  certainty: tuple[float, float, float] | None = None
  tokens: int = 0
  greedy: bool = False
  generated: float | None = None


def features(passing: Sequence[Candidate], programs: int) -> np.ndarray:
  """Features [m, len(FEATURES)], float64, of m candidates of one problem.

  Args:
    passing: programs that pass the visible tests, repeats included.
    programs: how many were written so far, n of at least m.
  """
  if not passing:
    return np.zeros((0, len(FEATURES)))
  agreeing = np.zeros(len(passing))
  known = [(i, c.outcomes) for i, c in enumerate(passing) if c.outcomes]
  groups = agreement.outcome_groups([outcomes for _, outcomes in known])
  for group in groups:
    agreeing[[known[i][0] for i in group]] = len(group)
  of_program = np.array(
    [
      [
        np.log1p(count),
        np.nan if candidate.generated is None else candidate.generated,
        count == 0,
        _raises(candidate.outcomes),
        *(candidate.certainty or (np.nan,) * 3),
        np.log1p(candidate.tokens),
        candidate.greedy,
        np.log1p(place),
      ]
      for place, (candidate, count) in enumerate(
        zip(passing, agreeing, strict=True)
      )
    ],
    np.float64,
  )
  share = len(passing) / programs
  of_problem = [np.log(programs), share, np.log1p(len(groups))]
  is_known = ~np.isnan(of_program)
  count = is_known.sum(axis=0)
  total = np.where(is_known, of_program, 0.0).sum(axis=0)
  mean = np.where(count, total / np.maximum(count, 1), np.nan)
  wide = lambda row: np.broadcast_to(row, (len(passing), len(row)))
  return np.concatenate(
    [wide(of_problem), wide(mean), of_program - mean], axis=1
  )


def _raises(outcomes: CallResult | None) -> float:
  if outcomes is None or not outcomes.expressions:
    return 0.0
  return float(np.mean([e.status != 'ok' for e in outcomes.expressions]))


@dataclasses.dataclass(frozen=True)
class Verifier:
  """A fitted logistic regression on standardised features.

  Attributes:
    mean, scale: of each feature where it is known.
    weights: of the standardised features; an unknown one is at its mean.
    bias: the logit of a candidate at the mean of all features.
  """

  mean: tuple[float, ...]
  scale: tuple[float, ...]
  weights: tuple[float, ...]
  bias: float

  def probabilities(self, rows: np.ndarray) -> np.ndarray:
    """P(hidden tests pass) [N] of features [N, F]."""
    standard = (rows - np.array(self.mean)) / np.array(self.scale)
    logits = np.nan_to_num(standard) @ np.array(self.weights) + self.bias
    return special.expit(logits)

  @classmethod
  def from_json(cls, saved: Mapping[str, Any]) -> Verifier:
    """Reads what `dataclasses.asdict` wrote.

    Raises:
      ValueError: it was fitted to other features than these.
    """
    verifier = cls(
      tuple(saved['mean']),
      tuple(saved['scale']),
      tuple(saved['weights']),
      saved['bias'],
    )
    if len(verifier.weights) != len(FEATURES):
      raise ValueError(
        f'a verifier of {len(verifier.weights)} features: expected '
        f'{len(FEATURES)}, {", ".join(FEATURES)}; fit it again'
      )
    return verifier


def fit(
  rows: np.ndarray, solved: np.ndarray, shares: np.ndarray, penalty: float = 1.0
) -> Verifier:
  """Fits by the penalised log-likelihood.

  Args:
    rows: features [N, F]; NaN where one is not known.
    solved: bool [N], whether the hidden tests pass.
    shares: [N], weights of the rows, such as 1 / candidates of a problem, so
      that each problem counts as much.
    penalty: of the squared standardised weights; one unit of it weighs as much
      as the log-likelihood of one problem.

  Raises:
    ValueError: there is no row.
  """
  if not len(rows):
    raise ValueError(
      'no program passes its visible tests: expected some to fit a verifier to'
    )
  # Imported here, since it takes half a second that few need.
  from scipy import optimize

  known = ~np.isnan(rows)
  count = np.maximum(known.sum(axis=0), 1)
  mean = np.where(known, rows, 0.0).sum(axis=0) / count
  scale = np.sqrt(np.where(known, (rows - mean) ** 2, 0.0).sum(axis=0) / count)
  scale = np.where(scale > 1e-9, scale, 1.0)
  standard = np.nan_to_num((rows - mean) / scale)
  signs = np.where(solved, 1.0, -1.0)

  def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
    margins = signs * (standard @ point[1:] + point[0])
    value = shares @ np.logaddexp(0.0, -margins)
    slopes = -shares * signs * special.expit(-margins)
    gradient = np.concatenate(([slopes.sum()], slopes @ standard))
    value += 0.5 * penalty * point[1:] @ point[1:]
    gradient[1:] += penalty * point[1:]
    return float(value), gradient

  start = np.zeros(1 + rows.shape[1])
  found = optimize.minimize(loss, start, jac=True, method='L-BFGS-B')
  return Verifier(
    tuple(mean.tolist()),
    tuple(scale.tolist()),
    tuple(found.x[1:].tolist()),
    float(found.x[0]),
  )
