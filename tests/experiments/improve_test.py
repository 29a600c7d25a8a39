"""One task of a user's own, from the command line."""

import json
import types

import pytest

from configs.improve import Config
from experiments import best_program
from tests.experiments import commands

STATEMENT = (
  'Write a function to find the first of the words among the first 2 in a '
  'sentence.'
)
TESTS = """
assert helper('cloud autumn ear pen apple') == 'cloud'
assert helper('winter fern uncle') == 'winter'
assert helper('moon bee tiger') == '{last}'
"""


def run(folder, *flags, last='moon', tests=TESTS):
  path = folder / 'asserts.py'
  path.write_text(tests.format(last=last))
  return commands.run(
    'experiments.improve',
    *(f'--statement={STATEMENT}', f'--tests={path}'),
    '--signature=def helper(text):',
    *flags,
  )


def test_code_prompt_and_reasons_are_printed_and_written(tmp_path):
  result = run(tmp_path, f'--workdir={tmp_path / "out"}')
  assert result.returncode == 0, result.stderr[-3000:]
  found = json.loads((tmp_path / 'out' / 'result.json').read_text())
  assert found['visible'] == [True] and found['held_out'] == [True, True]
  assert list(found['strategies']) == [
    *('direct', 'greedy_first', 'repair', 'hand_rule'),
  ]
  # The greedy program of all of them is one call.
  assert found['calls'] == 1 and found['strategy'] == 'direct'
  code = (tmp_path / 'out' / 'code.py').read_text()
  assert code.startswith('def helper(text):')
  assert code.rstrip() in result.stdout
  prompt = (tmp_path / 'out' / 'prompt.txt').read_text()
  assert prompt.startswith(STATEMENT) and prompt in result.stdout
  assert "== 'cloud'" in prompt and "== 'winter'" not in prompt
  assert '2 of 2 that were held out' in result.stdout
  scope = {}
  exec(code, scope)  # What is handed over is a program.
  assert scope['helper']('a b c') == 'a'


@pytest.mark.slow
def test_all_assertions_may_be_visible(tmp_path):
  result = run(
    tmp_path,
    *('--visible=all', "--config.strategies=('greedy_first',)"),
    *('--config.budget=3', f'--workdir={tmp_path}', '--format=openai'),
    last='sun',  # which no program of this statement returns
  )
  assert result.returncode == 0, result.stderr[-3000:]
  found = json.loads((tmp_path / 'result.json').read_text())
  assert found['held_out'] == [] and 'none was held out' in result.stdout
  assert found['visible'] == [True, True, False] and found['calls'] == 3
  (message,) = json.loads((tmp_path / 'prompt.json').read_text())
  assert message['role'] == 'user' and "== 'sun'" in message['content']


def test_one_assertion_alone_cannot_be_held_out(tmp_path):
  result = run(tmp_path, tests="assert helper('a b') == 'a'")
  assert result.returncode == 1
  assert 'has one assertion' in result.stderr
  assert 'Traceback' not in result.stderr


def test_an_unknown_strategy_is_refused_with_the_known_ones(tmp_path):
  result = run(tmp_path, "--config.strategies=('reflect',)")
  assert result.returncode == 1
  assert 'reflect is not known, expected some of direct' in result.stderr


@pytest.mark.parametrize(
  ('fields', 'reason'),
  [
    ({'strategies': ('fewshot',)}, 'needs worked examples'),
    ({'strategies': ()}, 'expected at least one'),
    ({'budget': 0}, 'budget=0'),
  ],
)
def test_settings_without_sense_are_refused(fields, reason):
  with pytest.raises(ValueError, match=reason):
    Config(**fields)


def test_a_strategy_that_chooses_among_programs_is_believed():
  def step(code, **more):
    return {'code': code, 'cost': 1, 'visible': [True]} | more

  steps = [step('a'), step('b'), step(None, submission='b')]
  of = lambda trace: best_program.choose(
    {'codet': types.SimpleNamespace(trace=trace)}
  )
  assert of(steps[:2]).code == 'a'
  assert (of(steps).code, of(steps).step) == ('b', 1)
