"""Who plays in the line-up of a job, by name, and what. No flags here."""

from __future__ import annotations

import dataclasses

import numpy as np

from experiments import controllers, searching, session
from experiments.remembering import Memory
from promptrl_jax.evaluation import (
  candidate_costs,
  instruction_search,
  open_loop,
  portfolio,
  restarting,
  verifying,
)
from promptrl_jax.evaluation.play import Entrant, Plan, rivals
from promptrl_jax.evaluation.training_cost import training_calls
from promptrl_jax.llm import preflight
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.llm.load import load_backend
from promptrl_jax.llm.preflight import CandidateCost
from promptrl_jax.operators import OPERATORS
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.strategies.base import STRATEGIES, named

# The best list and the controllers with a rewriter that was trained.
REWRITING = _LIST, _PPO = 'rewriter', 'ppo_rewriter'
_PARITY = 'oracle', 10  # protocol and calls of the parity table


def make(config, searched, instructed, learned, memory=Memory()):
  """Rivals, what was chosen on validation, registered strategies, learners.

  Args:
    config: settings of the job.
    searched: lists and temperatures that were chosen on validation.
    instructed: instructions that were searched there, by name.
    learned: seed -> name -> (strategy, calls of its training); perhaps empty.
    memory: reflections on other problems, which the line-up was given.
  """
  entrants = rivals(config.editing)
  entrants |= searched.entrants(config.editing, config.ask)
  for name, instruction in instructed.items():
    entrants[name] = instruction.entrant(config.ask)
  for name in config.eval.strategies:
    paid = memory.calls if STRATEGIES[name].remembers else 0.0
    entrants[name] = Entrant.of(named(name), optimisation_calls=paid)
  for name in next(iter(learned.values()), ()):
    by_seed = {seed: by_name[name][0] for seed, by_name in learned.items()}
    calls = [by_name[name][1] for by_name in learned.values()]
    entrants[name] = Entrant(
      by_seed.__getitem__, optimisation_calls=float(np.mean(calls))
    )
  return entrants


def kept(config, entrants):
  """The entrants without those that `eval.without` names."""
  return {
    name: entrant
    for name, entrant in entrants.items()
    if name not in config.eval.without
  }


def costs(config, learned):
  """What a candidate costs each strategy, by the names that a run plays.

  They are known before any call, and nothing plays whose cost is not here.

  Args:
    config: settings of the job.
    learned: names of the policies that are trained or read.
  """
  found = candidate_costs.of_rivals(config.editing) | searching.costs(config)
  found |= {name: STRATEGIES[name].cost for name in config.eval.strategies}
  found |= dict.fromkeys(learned, candidate_costs.of_operators(config.editing))
  return kept(config, found)


def compared_costs(config, controllers_of):
  """The same of a comparison, with what only a comparison plays.

  Args:
    config: settings of the comparison.
    controllers_of: workdir of the run that trained its controllers, or None.
  """
  learned = ()
  if controllers_of is not None:
    learned = controllers.played_names(config, controllers_of)
  found = costs(config, learned)
  if config.trained_rewriter:
    played = [_LIST, _PPO] if 'ppo' in learned else [_LIST]
    found |= dict.fromkeys(played, candidate_costs.of_operators(config.editing))
  # Names that are not played are refused by `check_members` and the like.
  if config.portfolio:
    members = [found[n] for n in config.portfolio if n in found]
    found |= dict.fromkeys(portfolio.NAMES, preflight.dearest(members))
  for name in config.restarted:
    cost = found.get(name, CandidateCost())
    # Each start begins with what would be the only candidate.
    found[restarting.label(name)] = dataclasses.replace(cost, most=None)
  for name in config.verified:
    # All calls are spent, by those that would stop after one as well.
    cost = found.get(name, CandidateCost())
    found[verifying.label(name)] = dataclasses.replace(cost, most=None)
  return kept(config, found)


def plans(config, tasks, seeds):
  """What all play: these problems at each budget."""
  return [
    Plan(config.data.protocol, budget, tasks, seeds)
    for budget in sorted(config.eval.budgets)
  ]


def parity_plans(config, tasks, seeds):
  """What all play for the parity table, once, if it is wanted."""
  if not config.eval.oracle:
    return []
  protocol, calls = _PARITY
  first = tasks[: config.eval.oracle_limit or None]
  return [Plan(protocol, calls, first, seeds[:1])]


def check_costs(players, costs):
  """Raises ValueError for a player that the line before a run left out."""
  if missing := [name for name in players if name not in costs]:
    raise ValueError(
      f'no cost of a candidate is known for {", ".join(missing)}: expected one '
      'for each strategy that plays, in experiments/entrants.py'
    )


def check_left_out(config, further):
  """Raises ValueError for a strategy that is left out and not known.

  Rivals of operators that are not among the actions are known: a sweep over
  actions may leave them out in all of its cells.

  Args:
    config: settings of the job.
    further: names that only this job plays.
  """
  with_all = dataclasses.replace(config.editing, actions=tuple(OPERATORS))
  known = {
    *rivals(with_all),
    *open_loop.rival_names(with_all),
    instruction_search.NAME,
    *config.eval.strategies,
    *controllers.names(config),
    *further,
  }
  if unknown := set(config.eval.without) - known:
    raise ValueError(
      f'eval.without names {", ".join(sorted(unknown))}: expected some of '
      f'{", ".join(sorted(known))}'
    )


def check_members(config, played):
  """Raises ValueError for a portfolio that `portfolio.members` would refuse.

  Args:
    config: settings of the comparison.
    played: names of all that plays.
  """
  no_members = {*portfolio.NAMES, *searching.asks_otherwise(config)}
  no_members |= set(map(restarting.label, config.restarted))
  possible = [name for name in played if name not in no_members]
  if wrong := [name for name in config.portfolio if name not in possible]:
    raise ValueError(
      f'portfolio={config.portfolio}: {", ".join(wrong)} is not played, or '
      'asked in a way of its own: expected some of '
      f'{", ".join(possible)}'
    )


def check_restarted(config, played):
  """Raises ValueError for a strategy that is to be restarted and not played.

  Args:
    config: settings of the comparison.
    played: names of all that plays.
  """
  possible = set(played) - set(portfolio.NAMES)
  possible -= {restarting.label(name) for name in config.restarted}
  possible -= {verifying.label(name) for name in config.verified}
  _check_named('restarted', config.restarted, possible)


def check_verified(config, played):
  """Raises ValueError for a strategy that is to be verified and not played.

  Also for a probability at which nothing is submitted.

  Args:
    config: settings of the comparison.
    played: names of all that plays.
  """
  if not 0 < config.verified_at <= 1:
    raise ValueError(
      f'verified_at={config.verified_at}: expected a probability above 0, or 1 '
      'to make all calls'
    )
  possible = set(played) - {verifying.label(name) for name in config.verified}
  _check_named('verified', config.verified, possible)


def _check_named(setting, names, possible):
  if wrong := [name for name in names if name not in possible]:
    raise ValueError(
      f'{setting}={names}: {", ".join(wrong)} is not played: expected some of '
      f'{", ".join(sorted(possible))}'
    )


def restarted(config, players):
  """Strategies that start anew after so many calls."""
  return {
    restarting.label(name): restarting.entrant(
      name, players[name], config.restarted_after
    )
    for name in config.restarted
  }


def verified(config, players, verifiers):
  """Strategies with the verifiers that were fitted to them."""
  return {
    fitted.name: fitted.entrant(players[fitted.strategy], config.verified_at)
    for fitted in verifiers
  }


def with_rewriter(
  config, ledger, coder, pool, library, validation, workdir, players, bar
):
  """The best list and the controllers with a rewriter that was trained.

  The list is searched with that rewriter, and kept in `WORKDIR/rewriter`. What
  was chosen by a score is returned, too. What `eval.without` leaves out is not
  searched.
  """
  wanted = {_LIST, _PPO} - set(config.eval.without)
  if 'ppo' not in players:
    wanted.discard(_PPO)
  if not (config.trained_rewriter and wanted):
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
  found, chosen = {}, []
  if _LIST in wanted:
    folder = workdir / 'rewriter'
    folder.mkdir(exist_ok=True)
    searched = searching.search(
      config, line_up, validation, folder, None, 'eval', bar
    )
    lists = searched.entrants(config.editing, config.ask)
    found[_LIST] = lists['best_open_loop']
    chosen = [
      dataclasses.replace(one, strategy=_LIST)
      for one in searched.selected(config.eval.budgets)
      if one.strategy == 'best_open_loop'
    ]
  if _PPO in wanted:
    found[_PPO] = players['ppo']
  models = {REWRITER: line_up.backends[REWRITER]}
  paid = training_calls(config.trained_rewriter)
  return {
    name: dataclasses.replace(
      entrant, models=lambda seed: models, training_calls=paid
    )
    for name, entrant in found.items()
  }, chosen


def candidates(config, costs, tasks, played):
  """Says what the largest budget buys for each strategy, and what all cost.

  Args:
    config: settings of the job.
    costs: of `costs` or `compared_costs`.
    tasks: by split.
    played: number of problems that are played.

  Raises:
    ValueError: a cap on calls does not pay for a single strategy at the
      largest budget, and buys one of them too few candidates; or the search of
      an instruction has too few calls.
  """
  if instruction_search.NAME in costs:
    instruction_search.check_calls(
      len(tasks['train']),
      len(tasks['validation']),
      config.eval.instruction_search,
    )
  most = preflight.most_calls(
    costs.values(), config.eval.budgets, played * config.seeds
  )
  # A table of small budgets is wanted; a cap that cuts its largest one is not.
  budget, least, cap = max(config.eval.budgets), 0, config.spend.calls
  for_one = cap // max(1, played * config.seeds)
  if cap and for_one < budget:
    budget, least = for_one, config.spend.least_candidates
  bought = preflight.check(costs, budget, least)
  tokens = max(config.ask.max_tokens, config.ask.rewrite_max_tokens)
  prices = session.prices(config, CODER, REWRITER)
  dollars = preflight.describe_dollars(most, tokens, prices)
  return (
    f'{preflight.describe(bought, budget)}\nthe table takes at most {most:,} '
    f'model calls{f", {dollars}" if dollars else ""}, fewer where strategies '
    'ask alike or stop early; what is chosen on validation or measured beside '
    'the table comes to that'
    f'{f"; the run ends at {cap:,}" if 0 < cap < most else ""}'
  )
