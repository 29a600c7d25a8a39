"""Who plays in the line-up of a job, by name. No flags here."""

from __future__ import annotations

import dataclasses

import numpy as np

from experiments import searching, session
from promptrl_jax.evaluation import open_loop
from promptrl_jax.evaluation.play import Entrant, rivals
from promptrl_jax.llm import preflight
from promptrl_jax.llm.attempt import REWRITER
from promptrl_jax.llm.load import load_backend
from promptrl_jax.llm.preflight import CandidateCost
from promptrl_jax.operators import FALLBACK, OPERATORS
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.strategies.base import STRATEGIES, named


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
    entrants[name] = Entrant.of(named(name))
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


def with_rewriter(
  config, ledger, coder, pool, library, validation, workdir, players
):
  """The best list and the controllers with a rewriter that was trained.

  The list is searched with that rewriter, and kept in `WORKDIR/rewriter`. What
  was chosen by a score is returned, too.
  """
  if not config.trained_rewriter:
    return {}, []
  given = dataclasses.replace(config.rewriter, model=config.trained_rewriter)
  model = load_backend(given, mesh_lib.from_text(config.mesh))
  unwanted = set(open_loop.rival_names(config.editing)) - {'best_open_loop'}
  config = dataclasses.replace(
    config,
    rewriter=given,
    eval=dataclasses.replace(config.eval, without=tuple(sorted(unwanted))),
  )
  line_up = session.make_line_up(config, ledger, coder, model, pool, library)
  folder = workdir / 'rewriter'
  folder.mkdir(exist_ok=True)
  searched = searching.search(config, line_up, validation, folder, None, 'eval')
  found = {
    'rewriter': searched.entrants(config.editing, config.ask)['best_open_loop']
  }
  if 'ppo' in players:
    found['ppo_rewriter'] = players['ppo']
  models = {REWRITER: line_up.backends[REWRITER]}
  chosen = [
    dataclasses.replace(one, strategy='rewriter')
    for one in searched.selected(config.eval.budgets)
    if one.strategy == 'best_open_loop'
  ]
  return {
    name: dataclasses.replace(entrant, models=lambda seed: models)
    for name, entrant in found.items()
  }, chosen


def candidates(config, problems):
  """Says what the largest budget buys for each strategy.

  Raises:
    ValueError: there is a cap on calls that buys none of them enough.
  """
  names = [n for n in config.editing.actions if OPERATORS[n].rival]
  costs = {
    OPERATORS[n].rival: CandidateCost(
      OPERATORS[n].calls, most=1 if n == FALLBACK else None
    )
    for n in names
  }
  costs |= {name: STRATEGIES[name].cost for name in config.eval.strategies}
  costs = {n: c for n, c in costs.items() if n not in config.eval.without}
  budget, cap = max(config.eval.budgets), config.spend.calls // max(1, problems)
  # A table of small budgets is wanted; a cap that cuts its largest one is not.
  least = config.spend.least_candidates if 0 < cap < budget else 0
  if config.spend.calls:
    budget = min(budget, cap)
  return preflight.describe(preflight.check(costs, budget, least), budget)
