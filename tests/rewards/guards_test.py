"""Planted leaks are flagged, and honest statements are not."""

import ast
import dataclasses
import os
import pathlib
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptrl_jax.rewards import guards
from promptrl_jax.tasks import mbpp
from promptrl_jax.tasks.frozen import to_task
from promptrl_jax.tasks.minicode import generate, registers
from promptrl_jax.tasks.minicode.suite import SUITE
from promptrl_jax.testing import tiny
from promptrl_jax.types import Task, UnitTests

ROOT = pathlib.Path(__file__).parents[2]
MBPP = pathlib.Path(
  os.environ.get('PROMPTRL_MBPP', ROOT / '../shared/data/mbpp/mbpp.jsonl')
)
TASK = Task(
  task_id='planted/1',
  statement='List the big ones.',
  checker=UnitTests(
    entry_point='select',
    signature='def select(items):',
    tests=(
      'assert select([4, 12, 7, 31]) == [12, 31]',
      "assert select([10, 11, 2, 'Lima']) == [11, 'Lima']",
      'assert select([5, 6]) == 7419',
      'assert select(8) == "Kilo"',
    ),
  ),
  reference=(
    'def select(items):\n'
    '  kept = []\n'
    '  for x in items:\n'
    '    if x > 10:\n'
    '      kept.append(x)\n'
    '  return kept'
  ),
  split='train',
)
HONEST = 'Write a function to select from a list the numbers greater than 10.'


def flag(text, task=TASK, **bounds):
  return guards.flag(text, task, task.tests[:1], guards.GuardsConfig(**bounds))


def test_an_honest_rewrite_has_no_flag():
  assert flag(HONEST) == ''


FORTY_WORDS = ' '.join(a + b for a in 'abcdefgh' for b in 'ijklm')
# (setting, another value, a rewrite, its flag then)
BOUNDS = (
  ('min_words', 20, HONEST, 'empty'),
  ('max_words', 5, HONEST, 'overlong'),
  ('max_growth', 1.0, FORTY_WORDS, 'overlong'),
  ('free_words', 0, FORTY_WORDS, 'overlong'),
  ('max_run', 3, 'Write what what what is greater than ten.', 'repetition'),
  ('min_distinct', 1.0, 'Add one to it, and so add one to it.', 'repetition'),
  ('keep_values', True, 'Write a function that adds nine to x.', 'lost_value'),
)


def test_every_bound_has_a_row():
  fields = {field.name for field in dataclasses.fields(guards.GuardsConfig)}
  assert fields == {name for name, *_ in BOUNDS}


@pytest.mark.parametrize(
  ('name', 'value', 'rewrite', 'flagged'), BOUNDS, ids=[b[0] for b in BOUNDS]
)
def test_another_bound_flags_what_had_no_flag(name, value, rewrite, flagged):
  statement = 'Add 7 to x.' if flagged == 'lost_value' else TASK.statement
  task = dataclasses.replace(TASK, statement=statement)
  assert flag(rewrite, task) == ''
  assert flag(rewrite, task, **{name: value}) == flagged


@pytest.mark.parametrize(
  ('text', 'name'),
  [
    ('', 'empty'),
    (' \n ', 'empty'),
    ('... 12 ! 4', 'empty'),
    ('numbers above', 'empty'),
    (HONEST * 20, 'overlong'),
    ('the numbers numbers numbers numbers of a list', 'repetition'),
    (f'{HONEST} {"of the list " * 7}', 'repetition'),
    (f'{HONEST} {HONEST} {HONEST}', 'repetition'),
    ('Select the numbers =>=>=>=>=>=>=>', 'repetition'),
    ('Select the numbers ' + 'a1b2' * 20, 'repetition'),
    (f'{HONEST} {TASK.tests[1]}', 'assertion'),
    (f'{HONEST} assert x is not None', 'assertion'),
    (f'{HONEST} Here select([1, 2]) gives nothing.', 'assertion'),
    (f'{HONEST}\n{TASK.reference}', 'code'),
    (f'{HONEST} return [x for x in items if x > 10]', 'code'),
    (f'{HONEST} return x + 3', 'code'),
    (f'{HONEST} return len(items)', 'code'),
    (f'{HONEST} It is sorted(set(items))[-2].', 'code'),
    (f'{HONEST} for x in items: keep it', 'code'),
    (f'{HONEST} ```python```', 'code'),
    (f'{HONEST}\nkept = items', 'code'),
    (f'{HONEST} Use lambda x: x > 10.', 'code'),
    (f'{HONEST}\nimport math', 'code'),
    (f'{HONEST} def f(x): pass', 'code'),
    (f'{HONEST} It may be 7419.', 'test_data'),
    (f'{HONEST} It is called Kilo.', 'test_data'),
    (f'{HONEST} For 10, 11, 2 and "Lima" keep two.', 'test_data'),
    (f'{HONEST} From 5 and 6 make 7419.', 'test_data'),
  ],
)
def test_a_planted_rewrite_gets_its_flag(text, name):
  bounds = {} if name == 'overlong' else {'free_words': 60}
  assert flag(text, **bounds) == name


def test_every_flag_is_planted_above_and_documented():
  for name in guards.FLAGS:
    assert re.search(rf'^  {name}\s', guards.__doc__ or '', re.MULTILINE)


def test_a_rewrite_that_loses_a_value_is_flagged_where_that_is_asked():
  task = dataclasses.replace(TASK, statement='List those above 10.')
  assert flag(HONEST, task, keep_values=True) == ''
  for lossy in (HONEST.replace('10', '12'), HONEST.replace('10', 'ten')):
    assert flag(lossy, task, keep_values=True) == 'lost_value'
    assert flag(lossy, task) == ''


def test_what_a_solver_may_see_is_no_secret():
  text = f'{HONEST} Of 4, 12, 7 and 31 keep 12 and 31.'
  assert guards.flag(text, TASK, TASK.tests[:1]) == ''
  assert guards.flag(text, TASK) == 'test_data'


def test_what_the_statement_says_is_no_leak():
  said = dataclasses.replace(
    TASK, statement=f'{HONEST} E.g. 7419. Or return 7 - n.'
  )
  assert flag(said.statement, said) == ''
  assert flag(f'{HONEST} Or return 7 - n.') == 'code'


def test_a_constant_of_the_reference_belongs_to_the_task():
  text = 'Write a function to return "even" or "oddly" for a number.'
  tests = 'assert select(4) == "even"', 'assert select(3) == "oddly"'
  task = tiny.with_tests(TASK, tests)
  assert flag(text, task) == 'test_data'
  reference = 'def select(n):\n  return "oddly" if n % 2 else "even"'
  assert flag(text, dataclasses.replace(task, reference=reference)) == ''


def test_copied_code_is_found_with_its_names_changed():
  renamed = 'acc = [] for y in data: if y > 10: acc.append(y)'
  assert flag(f'{HONEST} {renamed}') == 'code'


@pytest.mark.parametrize(
  'text',
  [
    'Given n, return the number n * (n - 1) // 2 of pairs.',
    'Check that the number is of the form (2^n) - 1 for a positive n.',
    "Return those in which the list's first item isn't a list's last.",
    'Return the sum (not the product) of the numbers, i.e. their total.',
    'Find the non-negative numbers: return them in order, else None.',
    'Select rows (at least 3) and, if there are any, count "x: 1".',
    'Return true if all of them are equal, or else return false.',
  ],
)
def test_prose_that_looks_like_code_has_no_flag(text):
  assert flag(text) == ''


def test_a_statement_may_grow_but_not_without_end():
  words = [f'word{chr(97 + i % 26)}{chr(97 + i // 26)}' for i in range(120)]
  assert flag(' '.join(words[:46])) == ''  # 4 * 4 words + 30
  assert flag(' '.join(words[:47])) == 'overlong'
  long = dataclasses.replace(TASK, statement=' '.join(words))
  assert flag(long.statement, long) == ''


def test_bounds_that_make_no_sense_are_refused():
  with pytest.raises(ValueError, match='min_words=9, max_words=4'):
    guards.GuardsConfig(min_words=9, max_words=4)
  with pytest.raises(ValueError, match='max_run=1'):
    guards.GuardsConfig(max_run=1)


_PIECES = st.sampled_from(
  [
    'return ',
    'def f(',
    'select(',
    '(',
    '[',
    '{',
    ')',
    ']',
    '}',
    '"',
    "'",
    'for x in ',
    ':',
    '=',
    '-',
    '1e999',
    '9' * 5000,
    'assert ',
    ' ',
    '\n',
    '\x00',
    '\ud800',
    'lambda',
    '\\',
    'the ',
    '12',
    '#',
    'f"{',
  ]
)


@given(st.lists(st.one_of(_PIECES, st.text(max_size=8)), max_size=60))
def test_no_text_breaks_the_guards(parts):
  assert guards.flag(''.join(parts), TASK, TASK.tests[:1]) in (
    '',
    *guards.FLAGS,
  )


@given(st.sampled_from([HONEST, *(t.statement for t in tiny.tasks(9))]))
def test_a_flag_stays_when_honest_words_are_added(statement):
  leak = f'{statement} return [x for x in items if x > 10]'
  assert flag(leak, free_words=60) == 'code'
  assert flag(f'{leak} {HONEST}', free_words=60) == 'code'


# --- Rates on whole data sets -------------------------------------------------

LONG = guards.GuardsConfig(free_words=200)


def share_flagged(pairs):
  flags = [guards.flag(x, t, t.tests[:1], LONG) for x, t in pairs]
  return sum(map(bool, flags)) / len(flags)


def minicode_tasks(every):
  return [(row, to_task(row)) for row in SUITE.rows[::every]]


@pytest.mark.parametrize('register', registers.REGISTERS)
def test_statements_of_minicode_are_not_flagged(register):
  """As rewrites of a task that says nothing itself: nothing is excused."""
  rng = random.Random(register)
  pairs = []
  for row, task in minicode_tasks(3):
    family = generate.FAMILIES[row['family']]
    text = registers.render(family, row['params'], register, rng)
    pairs.append((text, dataclasses.replace(task, statement='')))
  assert share_flagged(pairs) < 0.01


@pytest.mark.skipif(not MBPP.is_file(), reason='no MBPP file: PROMPTRL_MBPP')
def test_statements_of_mbpp_are_not_flagged():
  tasks = [t for split in mbpp.SPLITS for t in mbpp.load(split, str(MBPP))]
  assert len(tasks) == 974
  pairs = [(t.statement, dataclasses.replace(t, statement='')) for t in tasks]
  assert share_flagged(pairs) < 0.01


def body(code):
  return ' '.join(line.strip() for line in code.strip().splitlines()[1:])


def renamed(code):
  names = {n.id for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Name)}
  for name in names - set(dir(__builtins__)):
    code = re.sub(rf'\b{name}\b', f'{name}_other', code)
  return code


@pytest.mark.parametrize(
  ('plant', 'least'),
  [
    (lambda t: t.reference, 1.0),
    (lambda t: body(t.reference), 1.0),
    (lambda t: body(renamed(t.reference)), 1.0),
    (lambda t: t.tests[-1], 1.0),
    (lambda t: t.tests[-1].removeprefix('assert '), 1.0),
    # What is left are values such as 7 of arguments such as 3.
    (lambda t: t.tests[-1].split('(', 1)[1].replace(') ==', ' ->'), 0.85),
  ],
  ids=['program', 'body', 'renamed', 'assertion', 'call', 'example'],
)
def test_leaks_in_canonical_statements_are_flagged(plant, least):
  pairs = [(f'{t.canonical} {plant(t)}', t) for _, t in minicode_tasks(9)]
  assert share_flagged(pairs) >= least


def test_tiny_tasks_have_honest_statements():
  assert not any(flag(t.statement, t) for t in tiny.tasks(20))


def test_an_instruction_that_is_repeated_is_found():
  instruction = 'Keep the meaning and every number, and write no code.'
  assert guards.quotes('KEEP the meaning -- and every number!', instruction)
  assert not guards.quotes('Keep the meaning and each number.', instruction)
  assert not guards.quotes('', instruction)
  # Words that the parent has as well are no quotation.
  parent = 'Keep the meaning and every number of the text.'
  assert not guards.quotes(f'{parent} Sort it.', instruction, [parent])
