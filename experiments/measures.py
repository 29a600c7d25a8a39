"""What a comparison measures beside its strategies; no flags here.

A perfect choice among samples, samples at equal calls, and once more what was
chosen by a score.
"""

from __future__ import annotations

import dataclasses

import tqdm

from experiments import trained as trained_lib
from promptrl_jax.evaluation import coverage, equal_calls, samples, selection


def measure_ceilings(config, line_up, plans, cells, store):
  """What a perfect choice among B samples solves, and the samples.

  Returns:
    The cells of the choice, for the budgets played, and that of the samples at
    the largest of them; None where there are no samples.
  """
  if not config.oracle_of_n:
    return [], None
  played = {cell.budget for cell in cells}
  bounds, sampled = [], None
  shown = [plan for plan in plans if plan.budget in played]
  for plan in tqdm.tqdm(shown, desc=coverage.NAME, unit='budget'):
    bound = store.read(plan.protocol, coverage.NAME, plan.budget)
    name = f'{samples.NAME}_of_{plan.budget}'
    sampled = store.read(plan.protocol, name, 1)
    if bound is None or (sampled is None and plan.budget == max(played)):
      bound, sampled = coverage.measure(line_up, plan)
      store.write(bound, [])
      if sampled is not None:
        store.write(dataclasses.replace(sampled, strategy=name), [])
    bounds.append(bound)
  return bounds, sampled


def sample_as_often(config, line_up, plans, cells, store):
  """The controls of equal calls of the subject, by budget.

  They ask for what `greedy_first` or the ceilings have asked for. Where neither
  was played there are none: nothing is paid for them.
  """
  played = {(cell.strategy, cell.budget): cell for cell in cells}
  name, controls = equal_calls.label(config.subject), []
  for plan in plans:
    mine = played.get((config.subject, plan.budget))
    is_asked = config.oracle_of_n or ('greedy_first', plan.budget) in played
    if mine is None or not is_asked:
      continue
    control = store.read(plan.protocol, name, plan.budget)
    if control is None:
      control = equal_calls.measure(line_up, plan, mine)
      store.write(control, [])
    controls.append(control)
  return controls


def selected(config, choices, trained):
  """All that was chosen by a score on validation.

  Args:
    choices: what the searches have found.
    trained: folder and budgets of the run that trained the controllers; None:
      there are none.
  """
  found = [one for c in choices for one in c.selected(config.eval.budgets)]
  if trained is not None:
    seeds = range(config.seed, config.seed + config.seeds)
    found += trained_lib.selected(*trained, seeds)
  return found


def rescore(config, line_up, players, found, validation, cells):
  """Selection scores beside test scores of all that was chosen by one.

  Without `config.rescore` nothing is played for them.
  """
  if not config.rescore:
    return selection.beside_test(found, cells)
  return selection.rescore(
    line_up,
    players,
    found,
    validation,
    cells,
    protocol=config.data.protocol,
    seeds=range(config.seed, config.seed + config.seeds),
    progress=lambda todo: tqdm.tqdm(todo, desc='score again', unit='choice'),
  )
