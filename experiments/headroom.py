"""How much a better prompt, more samples or a repair can gain, before a run.

  python -m experiments.headroom --config=configs/mbpp_ppo.py:mbpp_real \
    --config.data.path=mbpp.jsonl --workdir=runs/headroom

Asks the coder of a config for one greedy program in each of some message
formats, under each of several instructions and with up to three worked
examples; then, under the best of them, for samples (pass@k), and for one more
program by each operator where the first failed. Choices are made on the split
that is played, validation by default, and are optimistic by that much. Writes
headroom.md and headroom.json; completions are kept in the cache of the config,
so that a run that was interrupted goes on where it stopped.

  ... --instructions=words.json --split=train --examples=0 --samples=0 --runs=0

compares other instructions, {"name": "text", ...}, by their greedy programs
alone;

  ... --retrievals=words,minilm --instructions= --samples=0 --runs=0

ways to find worked examples.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping

import numpy as np
import tqdm
from absl import app, flags
from ml_collections import config_flags

from configs.mbpp_ppo import Config
from experiments import session
from promptrl_jax.evaluation import markdown, mending, statistics
from promptrl_jax.evaluation import samples as samples_lib
from promptrl_jax.evaluation.play import Entrant, Game, LineUp
from promptrl_jax.evaluation.protocol import to_cell
from promptrl_jax.files import write_atomically
from promptrl_jax.operators import MOST_EXAMPLES
from promptrl_jax.operators.examples import make_library
from promptrl_jax.prompts.templates import CODER_INSTRUCTION
from promptrl_jax.strategies import base
from promptrl_jax.strategies.fewshot import few_shots
from promptrl_jax.tasks import load
from promptrl_jax.tools import command

_CONFIG = config_flags.DEFINE_config_file(
  'config', 'configs/mbpp_ppo.py:mbpp_real', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where the tables go.')
_SPLIT = flags.DEFINE_string(
  'split', 'validation', 'Which problems are played.'
)
_SAMPLES = flags.DEFINE_integer(
  'samples',
  16,
  'Samples per problem, of which pass@k takes half at most; 0: no pass@k.',
  lower_bound=0,
)
_RUNS = flags.DEFINE_integer(
  'runs',
  4,
  'Programs by each operator where the first one failed; 0: none.',
  lower_bound=0,
)
_EXAMPLES = flags.DEFINE_integer(
  'examples',
  MOST_EXAMPLES,
  'Most worked examples.',
  lower_bound=0,
  upper_bound=MOST_EXAMPLES,
)
_INSTRUCTIONS = flags.DEFINE_string(
  'instructions',
  None,
  'A JSON file of instructions by name; empty: that of the config alone.',
)
_TEMPLATES = flags.DEFINE_list(
  'templates', ['code', 'chat'], 'Message formats that are tried.'
)
_RETRIEVALS = flags.DEFINE_list(
  'retrievals',
  None,
  'How worked examples are found, as config.examples; none: as that says.',
)
flags.mark_flag_as_required('workdir')

INSTRUCTIONS = {
  'expert': CODER_INSTRUCTION,
  'short': 'Write a Python function.',
  'helpful': 'You are a helpful assistant that writes correct Python code.',
  'only code': 'Answer with Python code only, without any explanation.',
  'steps': (
    'Think about what the function must return for the given test. Then write '
    'the function in a ```python code block.'
  ),
  'tests': (
    'Write one Python function with the given name. It is checked by running '
    'the given assert and others like it.'
  ),
}


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line():
    run(
      _CONFIG.value,
      pathlib.Path(_WORKDIR.value),
      _TEMPLATES.value,
      _SPLIT.value,
      _SAMPLES.value,
      _RUNS.value,
      read_instructions(_INSTRUCTIONS.value, _CONFIG.value.ask.instruction),
      _EXAMPLES.value,
      _RETRIEVALS.value,
    )


def read_instructions(path, configured):
  """Instructions by name: those of a file, if any."""
  if path is None:
    return INSTRUCTIONS
  if not path:
    return {'configured': configured}
  try:
    found = json.loads(pathlib.Path(path).read_text(encoding='utf-8'))
  except ValueError as error:
    raise ValueError(f'--instructions={path}: no JSON ({error})') from error
  if not (
    isinstance(found, dict)
    and found
    and all(isinstance(text, str) for text in found.values())
  ):
    raise ValueError(
      f'--instructions={path}: expected an object of instructions by name, '
      f'got {found!r:.80}'
    )
  return found


def run(
  config,
  workdir,
  templates,
  split='validation',
  samples=16,
  runs=4,
  instructions=INSTRUCTIONS,
  examples=MOST_EXAMPLES,
  retrievals=None,
):
  config = session.begin(Config, config)
  session.check_templates(config, ('coder', 'rewriter'))
  tasks = load.load_tasks(config.data, dict.fromkeys(('train', split)))
  session.check_programs(tasks)
  libraries = {
    kind: make_library(kind, tasks['train'])
    for kind in retrievals or [config.examples or 'words']
  }
  ledger = session.open_ledger(config, workdir, 'coder', 'rewriter')
  coder, rewriter = session.load_models(config)
  with session.open_pool(config.pool) as pool:
    line_ups = {
      kind: session.make_line_up(config, ledger, coder, rewriter, pool, library)
      for kind, library in libraries.items()
    }
    played = Played(config, line_ups, tasks[split], instructions)
    grid = played.grid(templates, examples)
    best = max(grid, key=lambda key: grid[key]['passed'])
    found = {
      'model': coder.name,
      'split': split,
      'problems': len(tasks[split]),
      'grid': [
        {**dataclasses.asdict(cell), **row} for cell, row in grid.items()
      ],
      'best': dataclasses.asdict(best),
    }
    if samples:
      found['pass_at_k'] = played.pass_at_k(best, samples)
    if runs:
      found['mending'] = played.mending(best, runs)
  content = json.dumps(found, indent=2)
  write_atomically(workdir / 'headroom.json', f'{content}\n'.encode())
  table = to_markdown(found)
  write_atomically(workdir / 'headroom.md', table.encode())
  print(table)


@dataclasses.dataclass(frozen=True)
class Cell:
  """How a program is asked for; without examples nothing is retrieved."""

  template: str
  instruction: str
  examples: int
  retrieval: str


@dataclasses.dataclass(frozen=True)
class Played:
  """What is measured, with a line-up for each retrieval, on one split."""

  config: Config
  line_ups: Mapping[str, LineUp]
  tasks: tuple
  instructions: Mapping[str, str]

  def line_up(self, cell):
    return self.line_ups[cell.retrieval or next(iter(self.line_ups))]

  def ask(self, cell, **ask):
    return dataclasses.replace(
      self.config.ask,
      template=cell.template,
      instruction=self.instructions[cell.instruction],
      **ask,
    )

  def game(self, entrant, seed=0):
    """One call for each problem."""
    return Game(entrant, self.tasks, self.config.data.protocol, 1, seed)

  def grid(self, templates, examples):
    """One greedy program by `Cell`, and what examples gain, paired."""
    cells = [
      Cell(template, name, k, kind)
      for template in templates
      for k in range(examples + 1)
      for name in self.instructions
      for kind in (self.line_ups if k else ('',))
    ]
    rows, solved = {}, {}
    for cell in tqdm.tqdm(cells, desc='one greedy program', unit='prompt'):
      strategy = base.TextStrategy(few_shots(cell.examples))
      entrant = Entrant.of(strategy, ask=self.ask(cell))
      (run,) = self.line_up(cell).run_all([self.game(entrant)])
      solved[cell] = run.passed[None]  # one run
      rows[cell] = {
        'passed': float(run.passed.mean()),
        'soft': float(run.soft.mean()),
        'without_code': float(np.mean([not d.mask for d in run.details])),
        'prompt_tokens': float(run.prompt_tokens.mean()),
        'completion_tokens': float(run.completion_tokens.mean()),
      }
      if cell.examples:
        without = solved[dataclasses.replace(cell, examples=0, retrieval='')]
        gain = statistics.bootstrap_difference(solved[cell], without)
        rows[cell]['gain'] = list(gain)  # an interval of 95 %
    return rows

  def pass_at_k(self, cell, samples):
    """pass@k of independent samples, by k."""
    strategy = base.TextStrategy(few_shots(cell.examples))
    temperature = self.config.ask.sample_temperature
    ask = self.ask(cell, first_temperature=temperature)
    # At once, so that the prompt of a problem is read once for all of them.
    runs = self.line_up(cell).run_all(
      [
        self.game(Entrant.of(strategy, ask=ask), seed=seed)
        for seed in range(samples)
      ]
    )
    drawn = to_cell('samples', 1, self.config.data.protocol, self.tasks, runs)
    return {
      k: float(samples_lib.pass_at_k(drawn, k).mean())
      for k in (1, 2, 4, 8, 16)
      if 2 * k <= samples
    }

  def mending(self, cell, seeds):
    """What a second call solves, by operator and by end of the first."""
    return mending.measure(
      self.line_up(cell),
      self.tasks,
      self.config.editing,
      protocol=self.config.data.protocol,
      seeds=range(seeds),
      ask=self.ask(cell),
    )


def to_markdown(found):
  """The tables, in percent."""
  counts = sorted({row['examples'] for row in found['grid']})
  shown = {
    (
      row['template'],
      row['instruction'],
      row['retrieval'],
      row['examples'],
    ): row
    for row in found['grid']
  }
  # A row of the table has the cell without examples, too.
  kinds = dict.fromkeys(r['retrieval'] for r in found['grid'] if r['examples'])
  rows = []
  for template, name in dict.fromkeys((t, i) for t, i, *_ in shown):
    for kind in kinds or ('',):
      row = {'format': template, 'instruction': name, 'found by': kind or '-'}
      for k in counts:
        cell = shown[template, name, kind if k else '', k]
        row[str(k)] = markdown.points(cell['passed'])
      rows.append(row)
  lines = [
    f'# Headroom of {found["model"]} on {found["split"]}, '
    f'{found["problems"]} problems',
    '',
    'One greedy program, solved in %, by format, instruction and number of '
    'worked examples:',
    '',
    markdown.table(rows, 'lllr'),
  ]
  best = found['best']
  if 'pass_at_k' in found:
    lines += [
      '',
      f'With "{best["instruction"]}" and {best["examples"]} examples in the '
      f'format {best["template"]}:',
      '',
      markdown.table(
        [
          {'': f'pass@{k}', 'solved in %': markdown.points(value)}
          for k, value in found['pass_at_k'].items()
        ]
      ),
    ]
  if 'mending' in found:
    lines += [
      '',
      f'After a greedy program with "{best["instruction"]}", without an '
      'example, that fails its visible tests, what one operator solves:',
      '',
      mending.to_markdown(found['split'], found['mending']),
    ]
  return '\n'.join((*lines, ''))


if __name__ == '__main__':
  app.run(main)
