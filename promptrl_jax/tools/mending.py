"""Prints which operator solves what one greedy call did not.

  python -m promptrl_jax.tools.mending --data=minicode2 --splits=validation
  ... --coder=runs/coder/model --rewriter=runs/rewriter/model --out=mending.json

With --budgets=1,2,4,8,16 it also searches the best list of each kind of problem
on validation, and plays them beside the best list for all: what it would be
worth to know the kind. With --operators the best lists without each operator
are played, too: what it adds to the others. `evaluation.mending` says more.
"""

from __future__ import annotations

import json
import pathlib

from absl import app, flags

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation import mending
from promptrl_jax.evaluation.open_loop_search import SearchConfig, Validation
from promptrl_jax.files import write_atomically
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.llm.cache import IN_MEMORY
from promptrl_jax.operators import FALLBACK, OPERATORS
from promptrl_jax.tasks import load as load_lib
from promptrl_jax.tasks.task_set import DataConfig
from promptrl_jax.tools import command
from promptrl_jax.tools.line_up import open_line_up

_DATA = flags.DEFINE_string('data', 'minicode2', 'Task set.')
_SPLITS = flags.DEFINE_list('splits', ['validation'], 'Splits.')
_CODER = flags.DEFINE_string('coder', 'minicode2_coder', 'Name or folder.')
_REWRITER = flags.DEFINE_string(
  'rewriter', 'minicode2_rewriter', 'Name or folder.'
)
_PROTOCOL = flags.DEFINE_string('protocol', 'visible1', 'See tasks.splits.')
_SEEDS = flags.DEFINE_integer('seeds', 3, 'Runs of each operator.')
_LIMIT = flags.DEFINE_integer('limit', 0, 'First N tasks; 0 for all.')
_BUDGETS = flags.DEFINE_list(
  'budgets', [], 'Budgets of the lists; none are searched without.'
)
_OPERATORS = flags.DEFINE_bool(
  'operators', False, 'Also the best list without each operator.'
)
_CACHE = flags.DEFINE_string('cache', IN_MEMORY, 'File of completions.')
_OUT = flags.DEFINE_string('out', '', 'JSON file of the figures.')


def run() -> None:
  budgets = [int(budget) for budget in _BUDGETS.value]
  needed = {*_SPLITS.value, *(['validation'] if budgets else [])}
  tasks = load_lib.load_tasks(DataConfig(_DATA.value), only=sorted(needed))
  models = {REWRITER: _REWRITER.value, CODER: _CODER.value}
  figures = {}
  with open_line_up(models, _CACHE.value) as line_up:
    editing = EditingConfig(budget=max([8, *budgets]), max_steps=16)
    where = {'protocol': _PROTOCOL.value, 'budgets': budgets}
    if budgets:
      search = SearchConfig(seeds=_SEEDS.value)
      kinds = tasks['validation']
      together = mending.as_one_kind(kinds)
      searched = {
        'best list': (together, editing),
        'best list of each kind': (kinds, editing),
      }
      if _OPERATORS.value:
        searched |= {
          f'best list without {name}': (together, editing.without(name))
          for name in editing.actions
          if OPERATORS[name].calls and name != FALLBACK
        }
      lists = {
        name: mending.lists_by_kind(
          Validation(line_up, part, actions, search, _PROTOCOL.value), budgets
        )
        for name, (part, actions) in searched.items()
      }
    for split in _SPLITS.value:
      part = tasks[split][: _LIMIT.value or None]
      figures[split] = mending.measure(
        line_up,
        part,
        editing,
        protocol=_PROTOCOL.value,
        seeds=range(_SEEDS.value),
      )
      print(mending.to_markdown(split, figures[split]), end='\n\n')
      if budgets:
        figures[split]['lists'] = mending.worth_of_kinds(
          line_up, part, lists, editing, seeds=range(_SEEDS.value), **where
        )
        print(mending.worth_to_markdown(figures[split]['lists']))
  if _OUT.value:
    content = json.dumps(figures, indent=2) + '\n'
    write_atomically(pathlib.Path(_OUT.value), content.encode())


if __name__ == '__main__':
  app.run(command.without_arguments(run))
