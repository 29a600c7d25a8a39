"""The main job: PPO over prompt edits for a frozen code model.

  python -m experiments.mbpp_ppo --config=configs/mbpp_ppo.py:minicode2 \
    --workdir=runs/minicode2

Trains the controllers, then runs every strategy on the test split at each
budget and writes, in the workdir: results.json, results.md, results.csv,
report.html, trace.jsonl, plots, metrics.jsonl and TensorBoard events per
controller, and checkpoints. A run that was interrupted goes on where it
stopped.

  ... --mode=eval --controllers=runs/minicode2 --workdir=runs/transfer \
    --config.coder.model=FOLDER

plays the controllers of a finished run with other models, or on other tasks,
and leaves both results in one table, transfer.md. What belongs to controllers
(seeds, actions, observation, network) is read from their run.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time

import tqdm
from absl import app, flags
from ml_collections import config_flags

from configs.mbpp_ppo import Config
from experiments import (
  controllers,
  entrants,
  measures,
  remembering,
  searching,
  session,
)
from experiments.trained import Trained
from promptrl_jax.evaluation import (
  allocation,
  critic,
  learning,
  output,
  reliability,
  selection,
)
from promptrl_jax.files import write_atomically
from promptrl_jax.operators.examples import make_library
from promptrl_jax.tasks import load
from promptrl_jax.tasks.task_set import SPLITS
from promptrl_jax.tools import command, compare_models
from promptrl_jax.training import workdir as workdir_lib

_CONFIG = config_flags.DEFINE_config_file(
  'config', 'configs/mbpp_ppo.py', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where results go.')
_MODE = flags.DEFINE_enum(
  'mode',
  'train',
  ['train', 'eval'],
  'train: train, then evaluate; eval: evaluate the best checkpoints.',
)
_CONTROLLERS = flags.DEFINE_string(
  'controllers',
  '',
  'Workdir of a finished run whose controllers are evaluated, with --mode=eval;'
  ' models and tasks may be others than its own.',
)
_SPLIT = flags.DEFINE_string(
  'split',
  'test',
  'With --mode=eval: the split that is played, `ood` of minicode2, say.',
)
_CHECKPOINT = flags.DEFINE_enum(
  'checkpoint',
  'best',
  ['best', 'last'],
  'With --mode=eval: the checkpoint of each controller.',
)
_PROBLEMS = flags.DEFINE_integer(
  'problems',
  0,
  'With --mode=eval: the first N problems of the split, 0 for all.',
  lower_bound=0,
)
_FIRST = flags.DEFINE_integer(
  'first',
  0,
  'With --mode=eval: the controllers of the first N seeds, 0 for all.',
  lower_bound=0,
)
flags.mark_flag_as_required('workdir')

_BEST_FIXED = 'best_fixed'  # the row that `LineUp.best_fixed` makes


@dataclasses.dataclass(frozen=True)
class Selection:
  """What is evaluated.

  Attributes:
    split: split of the data set.
    checkpoint: `best` on validation, or `last`.
    problems: first N problems of the split; 0 for all.
    first: controllers of the first N seeds; 0 for all.
  """

  split: str = 'test'
  checkpoint: str = 'best'
  problems: int = 0
  first: int = 0

  def folder(self, workdir):
    """Where results go: the working directory, or a folder for this choice."""
    if self == Selection():
      return workdir
    name = f'{self.split}_{self.checkpoint}_{self.problems or "all"}'
    if self.first:
      name += f'_first_{self.first}'
    return workdir / 'eval' / name

  def applied_to(self, config):
    """The settings with as many seeds as are played."""
    if self.first > config.seeds:
      raise ValueError(
        f'--first={self.first}: there are {config.seeds} controllers'
      )
    return dataclasses.replace(config, seeds=self.first or config.seeds)


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line():
    run(
      _CONFIG.value,
      pathlib.Path(_WORKDIR.value),
      _MODE.value,
      pathlib.Path(_CONTROLLERS.value) if _CONTROLLERS.value else None,
      Selection(_SPLIT.value, _CHECKPOINT.value, _PROBLEMS.value, _FIRST.value),
    )


def check_mode(mode, controllers_of, chosen):
  """Raises ValueError for flags that have no effect in this mode."""
  if mode == 'eval':
    return
  if controllers_of is not None:
    raise ValueError(
      f'--controllers={controllers_of} takes --mode=eval: they are trained'
    )
  if chosen != Selection():
    raise ValueError(
      f'--split={chosen.split} --checkpoint={chosen.checkpoint} '
      f'--problems={chosen.problems} --first={chosen.first} take --mode=eval: '
      'a training run reports all its best checkpoints on the whole test split'
    )


def run(config, workdir, mode, controllers_of=None, chosen=Selection()):
  check_mode(mode, controllers_of, chosen)
  config = session.begin(Config, config)
  trained = None
  if controllers_of is not None:
    trained = Trained.load(controllers_of)
    config = trained.applied_to(config)
  trained_in = trained.folder if trained else workdir
  played_config = chosen.applied_to(config)  # Refused before any work.
  session.check_templates(config, ('coder', 'rewriter'))
  entrants.check_left_out(config, (_BEST_FIXED,))

  # --- Data -------------------------------------------------------------------
  only = dict.fromkeys((*SPLITS, chosen.split))
  tasks = load.load_tasks(config.data, only)
  session.check_programs(tasks)
  played = tasks[chosen.split][: chosen.problems or None]
  memory = remembering.read(config.eval.reflections, tasks[chosen.split])
  library = make_library(config.examples, tasks['train'])

  # --- Models and pool --------------------------------------------------------
  ledger = session.open_ledger(config, workdir, 'coder', 'rewriter')
  costs = entrants.costs(config, learned_names(played_config, mode, trained_in))
  bought = entrants.candidates(played_config, costs, tasks, len(played))
  coder, rewriter = session.load_models(config)
  models = prepare(config, workdir, trained, coder, rewriter)
  config = played_config
  session.announce(config, tasks, played, coder, rewriter)
  print(bought)
  with session.open_pool(config.pool) as pool:
    line_up = session.make_line_up(
      config, ledger, coder, rewriter, pool, library, memory.reflections
    )
    # --- Lists, temperatures and words, chosen on validation ------------------
    searched = searching.search(
      config, line_up, tasks['validation'], workdir, trained, mode
    )
    instructed = searching.instruct(config, line_up, tasks, workdir)

    # --- Training -------------------------------------------------------------
    learned = {}
    for seed in range(config.seed, config.seed + config.seeds):
      folder = trained_in / f'seed_{seed}'
      learned[seed] = controllers.learn(
        config,
        line_up,
        pool,
        tasks,
        searched,
        seed,
        folder,
        mode,
        chosen.checkpoint,
      )

    # --- Evaluation -----------------------------------------------------------
    started = time.perf_counter()
    results = chosen.folder(workdir)
    results.mkdir(parents=True, exist_ok=True)
    players = entrants.make(config, searched, instructed, learned, memory)
    players = entrants.kept(config, players)
    entrants.check_costs(players, costs)
    cells = evaluate(
      config,
      line_up,
      played,
      tasks['validation'],
      players,
      list(learned),
      results,
    )
    if config.eval.allocation:
      allocate(
        config, line_up, played, tasks['validation'], searched, learned, results
      )
    seconds = time.perf_counter() - started

  # --- Report -----------------------------------------------------------------
  choices = searched, *instructed.values()
  rescored = ()
  if chosen == Selection():
    budgets = trained.config.eval.budgets if trained else config.eval.budgets
    found = measures.selected(config, choices, (trained_in, budgets))
    rescored = selection.beside_test(found, cells[config.data.protocol])
  table = output.write(
    results,
    cells,
    make_header(config, models, chosen) | searching.facts(*choices),
    subject='ppo',
    resamples=config.eval.resamples,
    registers={task.task_id: task.register for task in played},
    rescored=rescored,
    searches={name: one.history for name, one in instructed.items()},
    learning=learning.read(trained_in, list(learned)),
  )
  folder = trained_in / f'seed_{config.seed}'
  output.draw_training(folder, results)
  show(results, table, folder, seconds)
  if trained and trained.is_comparable(config) and chosen == Selection():
    both = compare_models.table([trained.folder, workdir])
    write_atomically(workdir / 'transfer.md', f'{both}\n'.encode())
    print(f'transfer     {workdir / "transfer.md"}\n\n{both}')


# --- Stages -------------------------------------------------------------------


def learned_names(config, mode, folder):
  """Names of the policies that are trained, or read from a finished run."""
  if mode == 'train':
    return controllers.names(config)
  return controllers.played_names(config, folder)


def prepare(config, workdir, trained, coder, rewriter):
  """Creates the working directory; returns the names of the models by role."""
  models = {'coder': coder.name, 'rewriter': rewriter.name}
  if trained is not None:
    models['controllers of'] = trained.label(config)
  workdir_lib.prepare(workdir, 'mbpp_ppo', config)
  return models


def evaluate(config, line_up, played, validation, players, seeds, workdir):
  """Plays the whole line-up; returns cells by protocol."""
  plans = entrants.plans(config, played, seeds)
  cells = line_up.play(
    players,
    plans + entrants.parity_plans(config, played, seeds),
    workdir / 'trace.jsonl',
    lambda todo: tqdm.tqdm(todo, desc='evaluate', unit='strategy'),
  )
  is_wanted = _BEST_FIXED not in config.eval.without
  if is_wanted and sum(each.fixed for each in players.values()) > 1:
    for plan in plans:
      mine = cells[plan.protocol]
      mine.append(line_up.best_fixed(players, plan, validation, mine))
  return cells


def allocate(config, line_up, played, validation, searched, learned, workdir):
  """One budget for all problems against equal caps; writes what came out."""
  rivals_of = searched.entrants(config.editing, config.ask)
  trained = {seed: named['ppo'][0].policy for seed, named in learned.items()}
  protocol = config.data.protocol
  rows = allocation.compare(
    line_up,
    played,
    validation,
    trained,
    rivals_of['best_open_loop'].make(config.seed),
    config.editing,
    protocol=protocol,
    budgets=[b for b in config.eval.budgets if b > 1],
    resamples=config.eval.resamples,
  )
  found = critic.measure(
    line_up,
    played,
    validation,
    trained[config.seed],
    config.editing,
    protocol=protocol,
    seed=config.seed,
  )
  reliability.of_critic(workdir / 'reliability.png', found)
  content = json.dumps({'rows': rows, 'reliability': found}, indent=2)
  write_atomically(workdir / 'allocation.json', f'{content}\n'.encode())
  table = allocation.to_markdown(rows)
  write_atomically(workdir / 'allocation.md', table.encode())
  print(table)


def make_header(config, models, chosen):
  """Where the numbers come from."""
  return session.make_header(
    'mbpp_ppo',
    load.describe(config.data),
    models,
    range(config.seed, config.seed + config.seeds),
    **session.about_programs(config.pool),
    **({} if chosen == Selection() else dataclasses.asdict(chosen)),
  )


def show(workdir, table, folder, seconds):
  """Prints the result, where the time went and where everything lies."""
  spent = output.time_spent(folder)
  parts = ', '.join(f'{name} {value:.0f} s' for name, value in spent.items())
  print(table)
  print(f'training     {sum(spent.values()):.0f} s: {parts}')
  print(f'evaluation   {seconds:.0f} s')
  print(f'report       {workdir / "results.md"}')
  print(f'page         {workdir / "report.html"}')
  print(f'plots        {workdir}/*.png')
  print(f'trace        {workdir / "trace.jsonl"}')
  print(f'TensorBoard  tensorboard --logdir {workdir}')


if __name__ == '__main__':
  app.run(main)
