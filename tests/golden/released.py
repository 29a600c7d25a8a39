"""Decisions of the released code of Reflexion and EPiC, recorded.

  python -m tests.golden.released --reflexion=... --lazzzy=... --epic=...

writes tests/golden/strategies/released.json.

The folders are those of the released code: `programming_runs` of
github.com/noahshinn/reflexion (at 218cf0e), github.com/GammaTauAI/lazzzy (at
404c06a, the search that it imports) and github.com/HamedTaherkhani/EPiC (at
3d6c9bb). None of their code is here. Each runs on a model that says what a
script below says; their models, executors and libraries for words are replaced
by a few lines.

A program is a number n: it is right below n and so passes n - 1 of the five
tests of the problem.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import sys
import types
from unittest import mock

from absl import app, flags

PATH = pathlib.Path(__file__).parent / 'strategies' / 'released.json'
TESTS = tuple(f'assert add({x}) == {x + 3}' for x in range(1, 6))

# The programs that the model writes, in turn, the last one from then on.
LOOPS = {
  'right at first': (9,),
  'right at last': (2, 4, 3, 9),
  'never right': (2, 3, 4, 5, 4, 3, 2, 3, 4, 1),
  'the same again': (3, 3, 9),
}
SEARCHES = {
  'right at first': (9,),
  # Three programs for each that is expanded: of 1, of 4, of 5, and of 2, whose
  # path costs 4 in all, and not of 3, which fails fewer tests but costs 7.
  'the cheapest path': (1, 2, 2, 4, 3, 5, 4, 2, 3, 1, 4, 9, 9),
  # What passes the same tests as an expanded program is not expanded.
  'nothing new': (2, 1, 1, 1, 2, 1, 2),
  'right in the middle': (3, 1, 9, 2),
}
# For each problem the program of its statement and of five descriptions. A
# child has its parent's words; where one parent alone passes a test, no chance
# is left in who is drawn.
EVOLUTIONS = {
  'good enough at first': ((5, (1, 1, 1, 1, 1)),),
  'right in a generation': ((1, (2, 6, 4, 1, 1)),),
  'good enough in a generation': ((2, (1, 2, 4, 1, 2)),),
  'stalled': ((1, (1, 1, 3, 1, 1)),),
  'growth of one generation before': (
    *((1, (1, 1, 3, 1, 1)), (1, (1, 6, 1, 1, 1))),
  ),
}
# The same where the model has written no tests: a description would do better.
UNTESTED = ((2, (6, 6, 6, 6, 6)),)


def program(limit: int) -> str:
  return f'def add(x):\n  return x + 3 if x < {limit} else 0'


def limit_of(text: str) -> int:
  """The number of the last program of a text."""
  return int(re.findall(r'x < (\d+)', text)[-1])


def passed(limit: int) -> tuple[bool, ...]:
  return tuple(x < limit for x in range(1, 6))


class _InTurn:
  """Gives the numbers of a script, the last one from then on."""

  def __init__(self, script):
    self._script, self._given = script, 0

  def __call__(self):
    self._given += 1
    return self._script[min(self._given, len(self._script)) - 1]


@contextlib.contextmanager
def _modules(folder: str, **replaced):
  """Imports from a folder, with other modules in place of some."""
  before = dict(sys.modules)
  sys.path.insert(0, folder)
  sys.modules.update(replaced)
  try:
    yield
  finally:
    sys.path.remove(folder)
    for name in set(sys.modules) - set(before):
      del sys.modules[name]
    sys.modules.update(before)


def reflexion(folder: str, lazzzy: str, name: str, script) -> list:
  """What one of the loops of Reflexion asks for, and what it submits.

  Of the programs that are sampled at once, those after a right one are left
  out: they change nothing.
  """
  asked, judged, next_limit = [], [], _InTurn(script)

  def write(*args, **options):
    del args
    count = options.get('num_comps', 1)
    parent = options.get('prev_func_impl')
    kind = {
      'program': limit_of(parent) if parent else None,
      'temperature': options.get('temperature', 0.0),
      'reflected': 'Stops' in (options.get('self_reflection') or ''),
    }
    limits = []
    for _ in range(count):
      if not limits or not all(passed(limits[-1])):
        limits.append(next_limit())
        asked.append(kind)
    programs = [program(limit) for limit in limits]
    return programs if count > 1 else programs[0]

  def reflect(code, feedback, model):
    del feedback, model
    asked.append({'reflect': limit_of(code)})
    return f'Stops at {limit_of(code)}.'

  def write_tests(prompt, model, count):
    del prompt, model, count
    asked.append({'tests': len(TESTS)})
    return list(TESTS)

  def execute(code, tests):
    del tests
    state = passed(limit_of(code))
    return all(state), 'feedback', state

  def evaluate(name, code, test, timeout=0):
    del name, test, timeout
    judged.append(limit_of(code))
    return True

  generator = types.SimpleNamespace(
    func_impl=write, self_reflection=reflect, internal_tests=write_tests
  )
  executor = types.SimpleNamespace(execute=execute, evaluate=evaluate)
  replaced = {
    'generators': types.SimpleNamespace(
      generator_factory=lambda language: generator,
      model_factory=lambda name: None,
    ),
    'executors': types.SimpleNamespace(
      executor_factory=lambda language, is_leet=False: executor
    ),
    'utils': types.SimpleNamespace(
      enumerate_resume=lambda dataset, path: enumerate(dataset),
      make_printv=lambda verbose: lambda text: None,
      write_jsonl=lambda path, rows, append: None,
      resume_success_count=lambda dataset: 0,
    ),
    'lazzzy': types.ModuleType('lazzzy'),
  }
  with _modules(lazzzy):
    import ucs  # pyright: ignore[reportMissingImports]
  replaced['lazzzy.ucs'] = ucs
  item = {'prompt': '', 'entry_point': 'add', 'test': ''}
  options: dict = {'is_leetcode': False}
  if name == 'reflexion_ucs':
    options['expansion_factor'] = 3
  with _modules(folder, **replaced), mock.patch('builtins.print'):
    module = __import__(name)
    getattr(module, f'run_{name}')(
      *([item], 'model', 'py', 10, 1, 'log', False), **options
    )
  return [*asked, {'submits': judged[-1]}]


def epic(folder: str, script, tests=TESTS) -> list:
  """What each problem's generations pass, and the program that is submitted."""
  words = {f'statement-{p}-{k}': limit for p, k, limit in _statements(script)}
  scored, submitted = [[] for _ in script], []

  def say(messages, temperature, n=1, **options):
    del options
    asked = messages[-1]['content']
    (place,) = set(re.findall(r'statement-(\d)-', asked))
    if temperature:
      texts = [
        f'```python\ndef add(x):\n  """statement-{place}-{k}"""\n```'
        for k in range(1, n + 1)
      ]
    else:
      (name,) = set(re.findall(r'statement-\d-\d', asked))
      scored[int(place)].append(words[name])
      texts = [f'```python\n{program(words[name])}\n```']
    return types.SimpleNamespace(
      choices=[
        types.SimpleNamespace(message=types.SimpleNamespace(content=text))
        for text in texts
      ]
    )

  def compute(references, predictions, k):
    del k
    if len(predictions) == len(script) and references == FINAL:
      submitted.extend(limit_of(codes[0]) for codes in predictions)
      return {'pass@1': 0.0}, {}
    (test,), ((code,),) = references, predictions
    return {'pass@1': float(_holds(code, test))}, {}

  FINAL = ['final'] * len(script)
  create = types.SimpleNamespace(create=say)
  client = types.SimpleNamespace(chat=types.SimpleNamespace(completions=create))
  stub = mock.MagicMock
  replaced = {name: stub() for name in _WORDS_AND_WEIGHTS}
  replaced['evaluate'] = types.SimpleNamespace(
    load=lambda name: types.SimpleNamespace(compute=compute)
  )
  replaced['gensimutils'] = types.SimpleNamespace(
    mutate_prompt=lambda text: text, mutate_sentence=None
  )
  replaced['openai'] = types.SimpleNamespace(
    InternalServerError=RuntimeError, OpenAI=None
  )
  quote = '"""#SPECIAL_TOKEN'
  dataset = [
    f'def add(x):\n  {quote} statement-{p}-0 {quote}\n'
    for p in range(len(script))
  ]
  with _modules(folder, **replaced), mock.patch('builtins.print'):
    module = __import__('utils')
    module.tqdm = lambda rows: rows
    with contextlib.suppress(IndexError):  # Without results, after the end.
      module.run_genetic_algorithm_gensim_(
        *(None, None, None, FINAL, [list(tests)] * len(script), dataset),
        *(len(script), 2, client, 5, 3),
      )
  return [
    {'first': rows[0], 'generations': _generations(rows[1:]), 'submits': limit}
    for rows, limit in zip(scored, submitted, strict=True)
  ]


_WORDS_AND_WEIGHTS = (
  *('requests', 'tqdm', 'torch', 'numpy', 'dotenv', 'transformers'),
  *('chat_gpt_prompts_distilled_ten_generation', 'results'),
  'results.gpt_humaneval_code_completion',
)


def _statements(script):
  for place, (original, others) in enumerate(script):
    for k, limit in enumerate((original, *others)):
      yield place, k, limit


def _generations(limits: list[int]) -> list[list[int]]:
  """Splits what was scored: six in the first generation, then five each.

  A program that is written after generations that ended in full is the one of
  the statement, to be submitted, and is left out.
  """
  first, rest = limits[:6], limits[6:]
  later = [rest[i : i + 5] for i in range(0, len(rest), 5)]
  if later and len(later[-1]) == 1 and not all(passed(later[-1][0])):
    later.pop()
  return [part for part in (first, *later) if part]


def _holds(code: str, test: str) -> bool:
  names: dict = {}
  try:
    exec(f'{code}\n{test}', names)  # Of the scripts above.
  except AssertionError:
    return False
  return True


def main(argv):
  del argv
  loops = ('reflexion', 'immediate_reflexion', 'immediate_refinement')
  folders = FLAGS.reflexion, FLAGS.lazzzy
  recorded = {
    **{
      name: {s: reflexion(*folders, name, LOOPS[s]) for s in LOOPS}
      for name in loops
    },
    'reflexion_ucs': {
      s: reflexion(*folders, 'reflexion_ucs', SEARCHES[s]) for s in SEARCHES
    },
    'epic': {s: epic(FLAGS.epic, EVOLUTIONS[s]) for s in EVOLUTIONS},
    'epic_untested': epic(FLAGS.epic, UNTESTED, tests=()),
  }
  PATH.write_text(json.dumps(recorded, indent=1) + '\n')


if __name__ == '__main__':
  FLAGS = flags.FLAGS
  for name in ('reflexion', 'lazzzy', 'epic'):
    flags.DEFINE_string(name, None, 'Folder of the released code.')
  flags.mark_flags_as_required(['reflexion', 'lazzzy', 'epic'])
  app.run(main)
