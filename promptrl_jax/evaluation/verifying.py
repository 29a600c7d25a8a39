"""Fits the verifier of a strategy on training problems; checks it on others.

strategy --training problems--> programs --hidden tests--> right or wrong
    └─ features after 1, 2, 4, ... programs ──fit──> verifier
                                     validation ──> its reliability
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.envs.runner import Pool
from promptrl_jax.evaluation import critic, markdown, protocol, statistics
from promptrl_jax.evaluation.play import Entrant, Game, LineUp
from promptrl_jax.llm.attempt import Attempt
from promptrl_jax.rewards import verifier as verifier_lib
from promptrl_jax.rewards.verifier import Verifier
from promptrl_jax.strategies.verified import Verified, Watched, Written
from promptrl_jax.types import Task


def label(strategy: str) -> str:
  """Name of a strategy that plays with a verifier."""
  return f'{strategy}_verified'


@dataclasses.dataclass(frozen=True)
class Judged:
  """Programs that pass the visible tests, and whether they are right.

  Attributes:
    rows: features [N, F].
    solved: bool [N], the hidden tests pass.
    shares: [N]; those of a problem after as many programs add up to 1 / sizes.
  """

  rows: np.ndarray
  solved: np.ndarray
  shares: np.ndarray


@dataclasses.dataclass(frozen=True)
class Fitted:
  """A verifier and what is known of it.

  Attributes:
    strategy: whose programs it judges.
    verifier: the model.
    calls: that the fit paid for.
    quality: by split, what `quality` says.
  """

  strategy: str
  verifier: Verifier
  calls: int
  quality: Mapping[str, Mapping[str, Any]]

  @property
  def name(self) -> str:
    return label(self.strategy)

  @classmethod
  def from_json(cls, saved: Mapping[str, Any]) -> Fitted:
    """Reads what `dataclasses.asdict` wrote."""
    model = Verifier.from_json(saved['verifier'])
    return cls(saved['strategy'], model, saved['calls'], saved['quality'])

  def entrant(self, entrant: Entrant, stop_at: float = 1.0) -> Entrant:
    """The strategy with this verifier, which ends it where it is so sure."""
    return dataclasses.replace(
      entrant,
      make=lambda seed: Verified(entrant.make(seed), self.verifier, stop_at),
      single=False,
      fixed=False,
      optimisation_calls=entrant.optimisation_calls + self.calls,
    )


def fit(
  line_up: LineUp,
  name: str,
  entrant: Entrant,
  train: Sequence[Task],
  validation: Sequence[Task],
  **where: Any,
) -> Fitted:
  """Fits on training problems, measures on both; `where` as of `judge`."""
  with line_up.counting() as calls:
    seen = judge(line_up, entrant, train, **where)
    paid = calls()
  model = verifier_lib.fit(seen.rows, seen.solved, seen.shares)
  others = judge(line_up, entrant, validation, **where)
  found = {'train': quality(model, seen), 'validation': quality(model, others)}
  return Fitted(name, model, paid, found)


def judge(
  line_up: LineUp,
  entrant: Entrant,
  tasks: Sequence[Task],
  *,
  protocol: str,
  budget: int,
  seed: int,
) -> Judged:
  """Plays all calls of each problem and looks the programs' verdicts up.

  Raises:
    SystemFailure: the pool failed where a result was due.
    BackendError: a model cannot be reached.
  """
  found: dict[int, Written] = {}

  def keep(attempt: Attempt, returned: str, written: Written) -> str:
    found[attempt.row] = written
    return returned

  watched = Watched(entrant.make(seed), keep)
  playing = dataclasses.replace(entrant, make=lambda seed: watched)
  line_up.run_all([Game(playing, tasks, protocol, budget, seed)])
  right = _verdicts(found, tasks, protocol, line_up.pool)
  sizes = [2**k for k in range(budget.bit_length()) if 2**k <= budget]
  columns: list[tuple[np.ndarray, ...]] = []
  for row, written in found.items():
    for size in sizes:
      passing = [c for place, c in written.passing if place < size]
      if size > len(written.codes) or not passing:
        continue
      columns.append(
        (
          verifier_lib.features(passing, size),
          np.array([right[row, c.code] for c in passing]),
          np.full(len(passing), 1 / len(passing) / len(sizes)),
        )
      )
  if not columns:
    nothing = np.zeros(0)
    none = np.zeros((0, len(verifier_lib.FEATURES)))
    return Judged(none, nothing.astype(bool), nothing)
  return Judged(*(np.concatenate(each) for each in zip(*columns, strict=True)))


def _verdicts(
  found: Mapping[int, Written],
  tasks: Sequence[Task],
  name: str,
  pool: Pool,
) -> dict[tuple[int, str], bool]:
  """Whether each passing program passes the hidden tests, by row and code."""
  keys = list(
    dict.fromkeys(
      (row, candidate.code)
      for row, written in found.items()
      for _, candidate in written.passing
    )
  )
  soft, _ = protocol.score(
    [code for _, code in keys], [tasks[row] for row, _ in keys], name, pool
  )
  return dict(zip(keys, (soft == 1.0).tolist(), strict=True))


def quality(model: Verifier, seen: Judged) -> dict[str, Any]:
  """How well probabilities agree with what is true.

  Returns:
    `programs`, `right` (their share), `brier` and that of the `share` alone,
    `auroc` (a right program is above a wrong one), `error` (mean distance in
    bins of equal counts, as of `critic.mean_error`) and these `bins`.
  """
  if not len(seen.rows):
    return {'programs': 0}
  said = model.probabilities(seen.rows)
  true = seen.solved.astype(float)
  bins = critic.reliability(said, true)
  for row in bins:
    right = round(row['happened'] * row['count'])
    interval = statistics.wilson_interval(right, int(row['count']))
    row['low'], row['high'] = interval
  return {
    'programs': len(true),
    'right': float(true.mean()),
    'brier': float(np.mean((said - true) ** 2)),
    'brier_of_share': float(np.mean((true.mean() - true) ** 2)),
    'auroc': _auroc(said, seen.solved),
    'error': critic.mean_error(bins),
    'bins': bins,
  }


def to_markdown(verifiers: Sequence[Fitted]) -> str:
  """How good the verifiers are, and what they look at."""
  quality = [
    {
      'strategy': fitted.strategy,
      'split': split,
      'programs': row['programs'],
      'right': f'{markdown.points(row["right"])} %',
      'AUROC': '-' if row['auroc'] is None else f'{row["auroc"]:.2f}',
      'Brier': f'{row["brier"]:.3f}',
      'of the share': f'{row["brier_of_share"]:.3f}',
      'error': f'{row["error"]:.3f}',
    }
    for fitted in verifiers
    for split, row in fitted.quality.items()
    if row['programs']
  ]
  weights = [
    {'weight of a standardised feature': feature}
    | {of.strategy: f'{of.verifier.weights[i]:+.2f}' for of in verifiers}
    for i, feature in enumerate(verifier_lib.FEATURES)
  ]
  return (
    '### Verifiers\n\n'
    'Of programs that pass the visible tests: the share that is right, and how '
    'well the verifier tells these from the others. AUROC: P(a right program '
    'is above a wrong one). Brier score: mean squared error of the '
    'probabilities, beside that of the share alone. Error: distance from the '
    'diagonal of the reliability diagram.\n\n'
    f'{markdown.table(quality, "llr")}\n\n{markdown.table(weights)}\n'
  )


def _auroc(said: np.ndarray, solved: np.ndarray) -> float | None:
  """P(a right program is above a wrong one); ties count half."""
  right, wrong = said[solved], np.sort(said[~solved])
  if not len(right) or not len(wrong):
    return None
  below = np.searchsorted(wrong, right, 'left')
  not_above = np.searchsorted(wrong, right, 'right')
  return float(np.mean((below + not_above) / 2) / len(wrong))
