"""All strategies side by side at equal budgets: one table, one report.

  python -m experiments.compare --config=configs/compare.py:smoke --workdir=W

Plays every strategy at every budget, cell by cell, and writes report.html (all
figures, and every step of every episode), results.md, results.json,
results.csv, trace.jsonl, plots and curves for TensorBoard. A run that was
interrupted, or whose model could not be reached, goes on with the same command
and pays for nothing twice. `touch W/stop` ends it before the next cell, with a
report of what is there, or before the next step of a search. `W/events.jsonl`
says what has been done: the progress bar and the curves of `W/curves` follow
it.

  ... --gate=ppo:70

ends with status 1 if the interval of pass@1 of a strategy, at the largest
budget, begins below 70 %.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import time

from absl import app, flags
from ml_collections import config_flags

from configs.compare import Config
from experiments import (
  controllers,
  entrants,
  measures,
  remembering,
  searching,
  session,
)
from experiments import gates as gates_lib
from experiments.stopping import StopFile, Stopped
from experiments.trained import Trained
from promptrl_jax.evaluation import (
  costs,
  events,
  generated_tests,
  learning,
  output,
  portfolio,
  restarting,
  verifying,
)
from promptrl_jax.evaluation.store import CellStore
from promptrl_jax.files import write_atomically
from promptrl_jax.llm.backend import BackendError
from promptrl_jax.llm.ledger import CapExceeded
from promptrl_jax.operators.examples import make_library
from promptrl_jax.tasks import load
from promptrl_jax.tools import command
from promptrl_jax.training import workdir as workdir_lib

_CONFIG = config_flags.DEFINE_config_file(
  'config', 'configs/compare.py', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where results go.')
_GATES = flags.DEFINE_multi_string(
  'gate',
  [],
  'STRATEGY:MARK: fail if the interval of its pass@1 in %, at the largest '
  'budget, begins below the mark.',
)
flags.mark_flag_as_required('workdir')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line('interrupted: the same command goes on'):
    gates = [gates_lib.read(text) for text in _GATES.value]
    try:
      failed = run(_CONFIG.value, pathlib.Path(_WORKDIR.value), gates)
    except Stopped as stopped:
      print(stopped)
      failed = gates_lib.check(gates, [], _CONFIG.value.eval.budgets)
  if failed:
    raise SystemExit('\n'.join(failed))


def run(config, workdir, gates=()):
  """Plays and reports; returns what the gates have to say."""
  config = session.begin(Config, config)
  trained = None
  if config.controllers:
    trained = Trained.load(pathlib.Path(config.controllers))
    config = with_controllers(config, trained)
  session.check_templates(config, ('coder', 'rewriter'))
  further = *entrants.REWRITING, *portfolio.NAMES
  further += tuple(map(restarting.label, config.restarted))
  further += tuple(map(verifying.label, config.verified))
  entrants.check_left_out(config, further)
  costs = entrants.compared_costs(config, trained.folder if trained else None)
  entrants.check_members(config, costs)
  entrants.check_restarted(config, costs)
  entrants.check_verified(config, costs)
  check_played(costs, config.subject, gates)

  # --- Data -------------------------------------------------------------------
  tasks = load.load_tasks(config.data)
  session.check_programs(tasks)
  problems = tasks[config.split]
  library = make_library(config.examples, tasks['train'])
  played = remembering.played_in(config, tasks)
  memory = remembering.read(config.eval.reflections, played)

  # --- Models, pool, choices on validation ------------------------------------
  ledger = session.open_ledger(config, workdir, 'coder', 'rewriter')
  bought = entrants.candidates(config, costs, tasks, len(problems))
  coder, rewriter = session.load_models(config)
  models = {'coder': coder.name, 'rewriter': rewriter.name}
  if trained is not None:
    models['controllers of'] = trained.label(config)
  prepare(workdir, config, models, trained, memory)
  session.announce(config, tasks, problems, coder, rewriter)
  print(bought)
  config = session.keeping_answers(config, workdir, 'coder', 'rewriter')
  stop = StopFile(workdir)
  with session.pausing(), session.open_pool(config.pool) as pool:
    line_up = session.make_line_up(
      config, ledger, coder, rewriter, pool, library, memory.reflections
    )
    searched = searching.search(
      config, line_up, tasks['validation'], workdir, trained, 'eval', stop.bar
    )
    instructed = searching.instruct(config, line_up, tasks, workdir, stop.check)
    learned = read_learners(config, line_up, pool, tasks, searched, trained)
    players = entrants.make(config, searched, instructed, learned, memory)
    validation = tasks['validation']
    rewriting, chosen = entrants.with_rewriter(
      *(config, ledger, coder, pool, library, validation, workdir, players),
      stop.bar,
    )
    players = entrants.kept(config, players | rewriting)
    portfolios, shared = searching.choose_portfolio(
      config, players, line_up, validation, workdir, stop.bar
    )
    players |= entrants.kept(config, portfolios)
    players |= entrants.kept(config, entrants.restarted(config, players))
    verifiers = searching.fit_verifiers(
      config, players, line_up, tasks, workdir, stop.bar
    )
    verified = entrants.verified(config, players, verifiers)
    players |= entrants.kept(config, verified)
    entrants.check_costs(players, costs)

    # --- Cells ----------------------------------------------------------------
    plans = entrants.plans(config, problems, list(learned))
    store = CellStore(workdir / 'cells')
    cells = play(line_up, players, plans, store, workdir, stop, config.together)
    choices = [searched, *instructed.values(), *([shared] if shared else [])]
    of_run = trained and (trained.folder, trained.config.eval.budgets)
    found = []
    if config.split == 'test':  # On validation they were chosen.
      found = measures.selected(config, choices, of_run) + chosen
    rescored = measures.rescore(
      config, line_up, players, found, validation, cells
    )
    bounds, sampled = measures.measure_ceilings(
      config, line_up, plans, cells, store
    )
    as_often = measures.sample_as_often(config, line_up, plans, cells, store)
    written = store.rows(cells, 'write_tests')
    tests_written = generated_tests.of_trace(written, problems, pool)

  # --- Report -----------------------------------------------------------------
  stop.remove()  # It came too late, and is not meant for the next run.
  if not cells:
    return gates_lib.check(gates, [], config.eval.budgets)
  header = session.make_header(
    'compare',
    load.describe(config.data),
    models,
    list(learned),
    split=config.split,
    **session.about_programs(config.pool),
  )
  header |= searching.facts(*choices)
  table = report(
    workdir,
    store,
    cells,
    header,
    config,
    registers={task.task_id: task.register for task in problems},
    bounds=bounds,
    controls=as_often,
    sampled=sampled,
    rescored=rescored,
    verifiers=verifiers,
    searches={name: one.history for name, one in instructed.items()},
    tests=tests_written,
    learning=learning.read(trained.folder, list(learned)) if trained else (),
  )
  print(table)
  print(f'page         {workdir / "report.html"}')
  (summary,) = workdir_lib.results(workdir)['tables'].values()
  return gates_lib.check(gates, summary['cells'], config.eval.budgets)


# --- Stages -------------------------------------------------------------------


def with_controllers(config, trained):
  """The settings with the actions and observation of trained controllers."""
  if config.seeds > trained.config.seeds:
    raise ValueError(
      f'seeds={config.seeds}: {config.controllers} has '
      f'{trained.config.seeds} controllers, one for each seed'
    )
  theirs = trained.applied_to(config)
  return dataclasses.replace(theirs, seed=config.seed, seeds=config.seeds)


def prepare(workdir, config, models, trained, memory):
  """Creates the working directory.

  It goes on with the same models and the same reflections alone.
  """
  content = hashlib.sha256()
  for one in memory.reflections:
    content.update(repr(one).encode())
  if trained is not None:
    for path in sorted(trained.folder.glob('seed_*/*.npz')):
      content.update(path.read_bytes())
  workdir_lib.prepare(
    workdir, 'compare', config, models | {'learned': content.hexdigest()[:16]}
  )


def read_learners(config, line_up, pool, tasks, searched, trained):
  """What was learned, by seed and name; nothing without controllers."""
  seeds = range(config.seed, config.seed + config.seeds)
  if trained is None:
    return {seed: {} for seed in seeds}
  return {
    seed: controllers.learn(
      config,
      line_up,
      pool,
      tasks,
      searched,
      seed,
      trained.folder / f'seed_{seed}',
      'eval',
      'best',
    )
    for seed in seeds
  }


def check_played(names, subject, gates):
  """Raises ValueError for a subject or a gate that nobody plays for."""
  for name in (subject, *(gate.strategy for gate in gates)):
    if name not in names:
      raise ValueError(
        f'{name!r} is not played: expected one of {", ".join(names)}'
      )


def play(line_up, players, plans, store, workdir, stop, together):
  """Plays the cells that are not there yet; returns all that are, in order.

  Once it is told to stop it plays none; cells behind those are still read.

  Args:
    together: strategies that play a budget at once.

  Raises:
    BackendError: a model cannot be reached; what was played is kept.
  """
  names = list(players)
  parts = [
    (plan, names[start : start + together])
    for plan in plans
    for start in range(0, len(names), together)
  ]
  cells, stopped = [], None
  with events.open_stream(workdir) as stream:
    stream.add('start', cells=len(plans) * len(names))
    for plan, part in parts:
      found = {
        name: store.read(plan.protocol, name, plan.budget) for name in part
      }
      todo = {name: players[name] for name in part if found[name] is None}
      if todo and not stopped:
        try:
          stop.check()
        except Stopped as told:
          stopped = told
        else:
          found |= play_cells(line_up, todo, plan, store, stream)
      for name, cell in found.items():
        known = (plan.protocol, name, plan.budget) in stream.cells
        if cell is not None and not known:
          # A process was killed after it wrote the cell.
          stream.add_cell(cell, seconds=None, dollars=None)
      cells.extend(cell for cell in found.values() if cell is not None)
    stream.add('stopped' if stopped else 'done', cells=len(cells))
    if stopped:
      print(stopped)
  return cells


def play_cells(line_up, players, plan, store, stream):
  """Plays cells of one budget at once and writes them down; by name."""
  names, started = ', '.join(players), time.perf_counter()
  try:
    played = line_up.play_cells(players, plan)
  except BackendError as error:
    stream.add('paused', strategy=names, budget=plan.budget, reason=str(error))
    kind = CapExceeded if isinstance(error, CapExceeded) else BackendError
    raise kind(f'{names} with B={plan.budget}: {error}') from error
  # Nobody knows which of several took how long.
  seconds = time.perf_counter() - started if len(players) == 1 else None
  for name, (cell, trace) in played.items():
    store.write(cell, trace)
    stream.add_cell(
      cell,
      seconds=seconds,
      dollars=costs.dollars(
        trace,
        lambda seed, name=name: {
          **line_up.backends,
          **players[name].models(seed),
        },
      ),
    )
  return {name: cell for name, (cell, _) in played.items()}


def report(workdir, store, cells, header, config, **more):
  """Writes tables and figures; returns the headline table."""
  print('tables, figures and the page of every episode ...', flush=True)
  write_atomically(workdir / 'trace.jsonl', store.trace(cells))
  # What was stopped early may lack the subject.
  names = [cell.strategy for cell in cells]
  subject = config.subject if config.subject in names else names[0]
  budgets = {cell.budget for cell in cells if cell.strategy == subject}
  rivals = {cell.strategy for cell in cells if cell.budget in budgets}
  return output.write(
    workdir,
    {cells[0].protocol: cells},
    header,
    subject=subject,
    resamples=config.eval.resamples,
    planned=sorted(rivals - {subject}),
    costs=costs.of_events(events.read(events.path(workdir))),
    **more,
  )


if __name__ == '__main__':
  app.run(main)
