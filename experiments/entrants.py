"""Who plays in the line-up of a job, by name. No flags here."""

from __future__ import annotations

import numpy as np

from promptrl_jax.evaluation.play import Entrant, rivals
from promptrl_jax.strategies.base import STRATEGIES, TextStrategy


def make(config, searched, instructed, learned):
  """Rivals, what was chosen on validation, registered strategies, learners.

  Args:
    config: settings of the job.
    searched: lists and temperatures that were chosen on validation.
    instructed: instructions that were searched there, by name.
    learned: seed -> name -> (strategy, calls of its training); perhaps empty.
  """
  entrants = rivals(config.editing)
  entrants |= searched.entrants(config.editing, config.ask)
  for name, instruction in instructed.items():
    entrants[name] = instruction.entrant(config.ask)
  for name in config.eval.strategies:
    entrants[name] = Entrant.of(TextStrategy(STRATEGIES[name]))
  for name in next(iter(learned.values()), ()):
    by_seed = {seed: by_name[name][0] for seed, by_name in learned.items()}
    calls = [by_name[name][1] for by_name in learned.values()]
    entrants[name] = Entrant(
      by_seed.__getitem__, optimisation_calls=float(np.mean(calls))
    )
  return {
    name: entrant
    for name, entrant in entrants.items()
    if name not in config.eval.without
  }
