"""What a critic says against what comes true.

A critic learns what its policy earns while it explores, on training problems.
The greedy policy earns more there, and less elsewhere: validation says by how
much, and what it says is checked on other problems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.rollout import Policy
from promptrl_jax.evaluation.play import Entrant, LineUp
from promptrl_jax.strategies.base import OverOperators
from promptrl_jax.types import Task


def measure(
  line_up: LineUp,
  tasks: Sequence[Task],
  validation: Sequence[Task],
  policy: Policy,
  editing: EditingConfig,
  *,
  protocol: str,
  seed: int,
) -> dict[str, dict[str, Any]]:
  """Returns reliability of the critic, as it is and calibrated on validation.

  Returns:
    For `critic` and `calibrated`: `bins` of `reliability` on `tasks`, and
    `error`, their mean distance.
  """
  where = {'protocol': protocol, 'seed': seed}
  given = values_and_returns(line_up, validation, policy, editing, **where)
  said, happened = values_and_returns(line_up, tasks, policy, editing, **where)
  found = {}
  for name, values in (
    ('critic', said),
    ('calibrated', calibration(*given)(said)),
  ):
    bins = reliability(values, happened)
    found[name] = {'bins': bins, 'error': mean_error(bins)}
  return found


def values_and_returns(
  line_up: LineUp,
  tasks: Sequence[Task],
  policy: Policy,
  editing: EditingConfig,
  *,
  protocol: str,
  seed: int,
) -> tuple[np.ndarray, np.ndarray]:
  """Plays a policy; returns what its critic said and what came true.

  Arrays are `[steps]`, over all steps of all tasks. A return is that of the
  training: the bonus if the submission passes the hidden tests, minus the cost
  of the calls from that step on.
  """
  said: list[np.ndarray] = []

  def recorded(observations, masks, step):
    decision = policy(observations, masks, step)
    said.append(decision.values)
    return decision

  strategy = OverOperators(recorded, editing)
  run = line_up.run(
    Entrant.of(strategy),
    tasks,
    protocol=protocol,
    budget=editing.budget,
    seed=seed,
  )
  reward = editing.step_reward
  left = run.calls.astype(float)
  predicted, happened = [], []
  for row in run.trace:  # step by step, so that `left` is what is still spent
    task = row['row']
    predicted.append(said[row['step']][task])
    solved = reward.solved_bonus * run.passed[task]
    happened.append(reward.scale * (solved - reward.call_cost * left[task]))
    left[task] -= row['cost']
  return np.array(predicted, float), np.array(happened, float)


def reliability(
  predicted: np.ndarray, happened: np.ndarray, bins: int = 10
) -> list[dict[str, float]]:
  """Returns a row per bin of equal counts: what was said, what came true."""
  order = np.argsort(predicted)
  return [
    {
      'predicted': float(predicted[part].mean()),
      'happened': float(happened[part].mean()),
      'count': len(part),
    }
    for part in np.array_split(order, bins)
    if len(part)
  ]


def calibration(
  predicted: np.ndarray, happened: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
  """Returns the rising function that maps what was said to what came true.

  Isotonic regression by least squares, linear between its points: Zadrozny and
  Elkan, 2002, "Transforming Classifier Scores into Accurate Multiclass
  Probability Estimates".
  """
  order = np.argsort(predicted)
  # Imported here, since it takes half a second that few need.
  from scipy import optimize

  fitted = optimize.isotonic_regression(happened[order]).x
  return lambda values: np.interp(values, predicted[order], fitted)


def mean_error(bins: Sequence[Mapping[str, float]]) -> float:
  """Mean distance of what was said from what came true, over the bins."""
  errors = [abs(row['predicted'] - row['happened']) for row in bins]
  return float(np.average(errors, weights=[row['count'] for row in bins]))
