"""The rivals of the main job that are chosen on validation.

No flags here.
"""

from __future__ import annotations

import dataclasses
import json

import tqdm

from promptrl_jax.evaluation import (
  candidate_costs,
  instruction_search,
  open_loop,
  open_loop_search,
  portfolio,
  verifying,
)
from promptrl_jax.files import write_atomically


def search(config, line_up, validation, workdir, trained, mode, bar=tqdm.tqdm):
  """What is chosen on validation, searched once and kept in `searched.json`.

  The run of the controllers has searched before, if it asked the same. What
  nobody plays and no controller starts from is not searched. `bar` is that of
  `StopFile` where a run can be stopped.
  """
  own = path = workdir / 'searched.json'
  if not path.exists() and trained and trained.is_searched(config):
    path = trained.folder / path.name
  found = open_loop.Found()
  if path.exists():
    found = open_loop.Found.from_json(json.loads(path.read_text()))

  def keep(found):
    content = json.dumps(dataclasses.asdict(found), indent=2)
    write_atomically(own, f'{content}\n'.encode())

  chosen_on = open_loop_search.Validation(
    line_up,
    validation,
    config.editing,
    config.search,
    config.data.protocol,
  )
  if not found.best and needs_lists(config, mode):
    lists = open_loop_search.search(
      chosen_on,
      config.eval.budgets,
      lambda calls: bar(calls, desc='search', unit='call'),
    )
    found = found.with_lists(lists)
    keep(found)
  tuned = open_loop_search.tune(
    found,
    chosen_on,
    config.eval.budgets,
    config.ask,
    config.eval.without,
    lambda settings: bar(settings, desc='tune', unit='setting'),
  )
  if tuned != found:
    keep(tuned)
  return tuned


def instruct(config, line_up, tasks, workdir, check=lambda: None):
  """The instruction that is searched on validation, by the name that it plays.

  None, unless `config.eval.instruction_search` has calls for it. What was
  answered is kept in a journal, so that no run pays for it twice. `check` is
  that of `StopFile` where a run can be stopped.
  """
  name = instruction_search.NAME
  search_config = config.eval.instruction_search
  if not search_config.calls or name in config.eval.without:
    return {}
  with tqdm.tqdm(total=search_config.calls, desc=name, unit='call') as bar:

    def show(calls, best):
      bar.set_postfix(best_validation=f'{best:.3f}', refresh=False)
      bar.update(calls - bar.n)

    def watch(calls, best):
      check()
      show(calls, best)

    found = instruction_search.find(
      line_up,
      tasks['train'],
      tasks['validation'],
      config.ask,
      search_config,
      protocol=config.data.protocol,
      seed=config.seed,
      journal=workdir / 'instruction_journal.json',
      watch=watch,
    )
    show(found.calls, found.score)
  content = json.dumps(dataclasses.asdict(found), indent=2)
  write_atomically(workdir / 'instruction.json', f'{content}\n'.encode())
  return {name: found}


def choose_portfolio(
  config, players, line_up, validation, workdir, bar=tqdm.tqdm
):
  """The portfolio of `config.portfolio` and its control, and what was chosen.

  Chosen once and kept in `portfolio.json`; nothing without members. What
  `eval.without` leaves out is not chosen.
  """
  if not config.portfolio or set(portfolio.NAMES) <= set(config.eval.without):
    return {}, None
  members = portfolio.members(config.portfolio, players, config.seed)
  control = {portfolio.CONTROL: portfolio.control(members)}
  if portfolio.NAME in config.eval.without:
    return control, None
  path = workdir / 'portfolio.json'
  if path.exists():
    chosen = portfolio.Chosen.from_json(json.loads(path.read_text()))
  else:
    chosen = portfolio.choose(
      line_up,
      members,
      validation[: config.search.problems or None],
      protocol=config.data.protocol,
      budgets=config.eval.budgets,
      seeds=range(config.seed, config.seed + config.seeds),
      progress=lambda of: bar(of, desc='portfolio', unit='step'),
    )
    content = json.dumps(dataclasses.asdict(chosen), indent=2)
    write_atomically(path, f'{content}\n'.encode())
  return {portfolio.NAME: chosen.entrant(members)} | control, chosen


def fit_verifiers(config, players, line_up, tasks, workdir, bar=tqdm.tqdm):
  """A verifier for each strategy of `config.verified`.

  Fitted once at the largest budget, and kept in `verifiers.json`.
  """
  path = workdir / 'verifiers.json'
  if path.exists():
    saved = json.loads(path.read_text())
    return [verifying.Fitted.from_json(one) for one in saved]
  without = config.eval.without
  wanted = [n for n in config.verified if verifying.label(n) not in without]
  found = [
    verifying.fit(
      line_up,
      name,
      players[name],
      tasks['train'][: config.verifier_problems],
      tasks['validation'],
      protocol=config.data.protocol,
      budget=max(config.eval.budgets),
      seed=config.seed,
    )
    for name in bar(
      wanted, desc='verifier', unit='strategy', disable=not wanted
    )
  ]
  if found:
    content = json.dumps([dataclasses.asdict(one) for one in found], indent=1)
    write_atomically(path, f'{content}\n'.encode())
  return found


def facts(*choices):
  """What was chosen in words, for the header of a report."""
  found = {}
  for choice in choices:
    found |= choice.facts()
  return found


def needs_lists(config, mode):
  """Whether a list is played, or a controller starts from one."""
  played = not set(open_loop.LISTS) <= set(config.eval.without)
  cloned = mode == 'train' and config.controller.clone
  return played or cloned or config.eval.allocation


def costs(config):
  """What a candidate costs of what `search` and `instruct` find, by name."""
  absent = set()
  if not set(open_loop.HAND_RULE) <= set(config.editing.actions):
    absent.add('hand_rule')
  if not config.examples:
    absent.add('fewshot_tuned')
  rivals = candidate_costs.of_chosen(config.editing)
  found = {name: cost for name, cost in rivals.items() if name not in absent}
  if config.eval.instruction_search.calls:
    found[instruction_search.NAME] = instruction_search.COST
  return found


def asks_otherwise(config):
  """Names of those that have a temperature or an instruction of their own."""
  same = {*open_loop.LISTS, 'hand_rule'}
  rivals = open_loop.rival_names(config.editing)
  return {*rivals, instruction_search.NAME} - same
