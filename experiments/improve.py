"""Improves one programming task: code, prompt, and why.

  python -m experiments.improve --statement='Write a function that ...' \
    --tests=my_asserts.py [--config=configs/improve.py] [--workdir=W]

The file holds assertions. Strategies play the task under a budget of model
calls each and see the first assertion alone; the others are held out and say
afterwards what the chosen program is worth. With --visible=all strategies see
and run all of them, and nothing is held out. The program that passes most of
what is visible is chosen, of equals the one that took fewest calls. With
--workdir code.py, the prompt (--format=openai or promptfoo for other programs),
why.md and result.json are written, too.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib

from absl import app, flags
from ml_collections import config_flags

from configs.improve import Config
from experiments import best_program, session
from promptrl_jax.evaluation import episodes, markdown, open_loop
from promptrl_jax.evaluation.play import Entrant, Game, rivals
from promptrl_jax.evaluation.protocol import check_judged, hidden_programs
from promptrl_jax.files import write_atomically
from promptrl_jax.operators.examples import make_library
from promptrl_jax.prompts import export
from promptrl_jax.strategies.base import STRATEGIES, named
from promptrl_jax.tasks import load, own
from promptrl_jax.tools import command
from promptrl_jax.tools.export import best_messages
from promptrl_jax.tools.format_flag import FORMAT

_CONFIG = config_flags.DEFINE_config_file(
  'config', 'configs/improve.py', lock_config=True
)
_STATEMENT = flags.DEFINE_string('statement', None, 'What to write, in words.')
_TESTS = flags.DEFINE_string('tests', None, 'Python file with assertions.')
_SIGNATURE = flags.DEFINE_string(
  'signature', '', 'First line of the program; empty: as the tests call it.'
)
_VISIBLE = flags.DEFINE_enum(
  'visible', 'first', ['first', 'all'], 'Which assertions strategies see.'
)
_WORKDIR = flags.DEFINE_string('workdir', '', 'Where files go; empty: none.')
flags.mark_flags_as_required(['statement', 'tests'])


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line('interrupted'):
    run(
      _CONFIG.value,
      _STATEMENT.value,
      pathlib.Path(_TESTS.value),
      _SIGNATURE.value,
      'visible1' if _VISIBLE.value == 'first' else 'oracle',
      pathlib.Path(_WORKDIR.value) if _WORKDIR.value else None,
    )


def run(config, statement, tests, signature, protocol, workdir):
  config = session.begin(Config, config)
  session.check_templates(config, ('coder', 'rewriter'))
  entrants = choose_entrants(config)
  task = own.to_task(
    statement, tests.read_text(encoding='utf-8'), str(tests), signature
  )
  if protocol == 'visible1' and len(task.tests) < 2:
    raise ValueError(
      f'{tests} has one assertion: none would be held out; write another one, '
      'or give --visible=all'
    )
  if workdir is not None:  # A folder that cannot be made is found out now.
    workdir.mkdir(parents=True, exist_ok=True)
  library = None
  if config.examples:
    solved = load.load_tasks(config.data, only=('train',))['train']
    library = make_library(config.examples, solved)
  ledger = session.open_ledger(config, workdir, 'coder', 'rewriter')
  coder, rewriter = session.load_models(config)
  with session.open_pool(config.pool) as pool:
    line_up = session.make_line_up(
      config, ledger, coder, rewriter, pool, library
    )
    with line_up.counting() as paid:
      runs = line_up.run_all(
        [
          Game(entrant, [task], protocol, config.budget, config.seed)
          for entrant in entrants.values()
        ]
      )
      calls = paid()
    played = dict(zip(entrants, runs, strict=True))
    best = best_program.choose(played)
    steps = [dict(step) for step in played[best.strategy].trace]
    hidden, passed_hidden = judge(pool, task, best.code, protocol)
  found = {
    'task': dataclasses.asdict(task),
    'protocol': protocol,
    'strategy': best.strategy,
    'calls': calls,
    'code': best.code,
    'visible': best.visible,
    'held_out': [] if protocol == 'oracle' else passed_hidden,
    'strategies': {
      name: {
        'calls': int(one.calls[0]),
        'visible': max((sum(s['visible']) for s in one.trace), default=0),
        'solved': bool(one.passed[0]),
        'error': one.details[0].error,
      }
      for name, one in played.items()
    },
  }
  prompt = best_messages([steps[best.step]]) or best_messages(steps)
  why = to_markdown(found, steps[: best.step + 1], hidden)
  print(why)
  if workdir is not None:
    export.write(workdir, {'prompt': prompt}, FORMAT.value)
    files = {
      'code.py': f'{best.code.rstrip()}\n',
      'why.md': f'{why}\n',
      'result.json': json.dumps(found, indent=2) + '\n',
    }
    for name, text in files.items():
      write_atomically(workdir / name, text.encode())
    print(f'\nfiles        {workdir}')


def choose_entrants(config):
  """The strategies of the config by name.

  Known are those that repeat an operator, the rule written by hand and the
  registered ones.
  """
  editing = config.editing
  known = rivals(editing)
  if set(open_loop.HAND_RULE) <= set(editing.actions):
    rule = open_loop.strategy(open_loop.HAND_RULE, editing)
    known['hand_rule'] = Entrant.of(rule)
  for name in STRATEGIES:
    known[name] = Entrant.of(named(name))
  if unknown := [name for name in config.strategies if name not in known]:
    raise ValueError(
      f'strategies={config.strategies}: {", ".join(unknown)} is not known, '
      f'expected some of {", ".join(known)}'
    )
  return {name: known[name] for name in config.strategies}


def judge(pool, task, code, protocol):
  """Each hidden test that ran with its result, and which of all passed."""
  (program,) = hidden_programs([code], [task], protocol)
  (result,) = pool.run([program])
  check_judged('programs', [task], [result.score is not None])
  ran = list(zip(program.tests, result.tests, strict=False))
  passed = [test.status == 'passed' for _, test in ran]
  # A program that does not even load runs no test and passes none.
  return ran, passed + [False] * (len(program.tests) - len(ran))


def to_markdown(found, steps, hidden):
  """Code, what it is worth, and how it came about."""
  passed = f'{sum(found["visible"])} of {len(found["visible"])}'
  held_out = found['held_out']
  worth = 'none was held out, so that nothing says what it does on other inputs'
  if held_out:
    worth = f'{sum(held_out)} of {len(held_out)} that were held out'
  verdict = f'{found["strategy"]} passes {passed} visible assertions'
  rows = []
  for name, row in found['strategies'].items():
    solved = 'yes' if row['solved'] else row['error'] or 'no'
    rows.append(
      {
        'strategy': name,
        'calls': row['calls'],
        'visible assertions passed': row['visible'],
        'all others passed': solved if held_out else '-',
      }
    )
  lines = [
    f'# {found["task"]["task_id"]}',
    '',
    f'```python\n{found["code"].strip()}\n```',
    '',
    f'Chosen: {verdict}; {worth}. All strategies: {found["calls"]} calls.',
    '',
    markdown.table(rows, 'lrrl'),
    '',
    episodes.to_markdown(steps, verdict, hidden),
  ]
  return '\n'.join(lines)


if __name__ == '__main__':
  app.run(main)
