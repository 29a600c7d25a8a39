"""What a better prompt, more samples or a repair can gain."""

import json

import pytest

from tests.experiments import commands

PROBLEMS = 8


@pytest.fixture(scope='module')
def result(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('headroom')
  ended = commands.run(
    'experiments.headroom',
    '--config=configs/mbpp_ppo.py:smoke',
    f'--config.data.validation_limit={PROBLEMS}',
    f'--workdir={workdir}',
    *('--samples=4', '--runs=1'),
    '--templates=plain',
  )
  assert ended.returncode == 0, ended.stderr[-3000:]
  found = json.loads((workdir / 'headroom.json').read_text())
  return found, (workdir / 'headroom.md').read_text()


@pytest.mark.slow
def test_every_instruction_is_tried_with_and_without_examples(result):
  found, table = result
  names = dict.fromkeys(row['instruction'] for row in found['grid'])
  cells = {(row['instruction'], row['examples']) for row in found['grid']}
  assert cells == {(n, k) for n in names for k in range(4)}
  assert len(names) == 6
  assert found['problems'] == PROBLEMS
  for row in found['grid']:
    assert 0 <= row['passed'] <= row['soft'] <= 1
  by_examples = [
    {r['prompt_tokens'] for r in found['grid'] if r['examples'] == k}
    for k in range(4)
  ]
  assert max(by_examples[0]) < min(by_examples[1])
  for name in names:
    assert f'| {name} |' in table


@pytest.mark.slow
def test_samples_are_counted_up_to_half_of_them(result):
  found, table = result
  assert list(found['pass_at_k']) == ['1', '2']
  assert found['pass_at_k']['1'] <= found['pass_at_k']['2']
  assert '| pass@2 |' in table


@pytest.mark.slow
def test_each_operator_mends_a_share_of_each_kind_of_failure(result):
  found, table = result
  kinds = found['mending']['kinds']
  whole = kinds.pop('all')
  assert whole['tasks'] == PROBLEMS
  assert {'resample', 'lexical', 'repair'} <= whole['solved'].keys()
  # Each problem is of one register, and its first program came to one end.
  assert sum(kind['tasks'] for kind in kinds.values()) == 2 * PROBLEMS
  failures = sum(
    kind['failures'] * (kind['solved']['resample'] or 0)
    for kind in kinds.values()
  )
  assert failures == pytest.approx(
    2 * whole['failures'] * whole['solved']['resample']
  )
  assert '| kind | tasks | greedy | failures |' in table


def ask_words(workdir, words):
  path = workdir / 'words.json'
  path.write_text(words)
  return ask(workdir, path)


def ask(workdir, instructions, *flags):
  return commands.run(
    'experiments.headroom',
    '--config=configs/mbpp_ppo.py:smoke',
    '--config.data.validation_limit=4',
    f'--workdir={workdir}',
    '--templates=plain',
    f'--instructions={instructions}',
    *('--examples=0', '--samples=0', '--runs=0'),
    *flags,
  )


@pytest.mark.slow
def test_other_instructions_are_compared_alone(tmp_path):
  result = ask_words(tmp_path, '{"mine": "Write a function.", "none": ""}')
  assert result.returncode == 0, result.stderr[-3000:]
  found = json.loads((tmp_path / 'headroom.json').read_text())
  rows = {(row['instruction'], row['examples']) for row in found['grid']}
  assert rows == {('mine', 0), ('none', 0)}
  assert 'pass_at_k' not in found and 'mending' not in found
  assert '| plain | mine |' in (tmp_path / 'headroom.md').read_text()


@pytest.mark.slow
def test_ways_to_find_examples_are_compared(tmp_path):
  flags = ('--examples=1', '--retrievals=words,shipped')
  result = ask(tmp_path, '', *flags)
  assert result.returncode == 0, result.stderr[-3000:]
  grid = json.loads((tmp_path / 'headroom.json').read_text())['grid']
  assert [row['retrieval'] for row in grid] == ['', 'words', 'shipped']
  for row in grid[1:]:
    low, high = row['gain']
    assert low <= row['passed'] - grid[0]['passed'] <= high
  table = (tmp_path / 'headroom.md').read_text()
  assert '| plain | configured | shipped |' in table


def test_an_unknown_way_to_find_examples_is_refused(tmp_path):
  result = ask(tmp_path, '', '--retrievals=wrods')
  assert result.returncode != 0 and 'Traceback' not in result.stderr
  assert "'wrods'" in result.stderr and 'words' in result.stderr


def test_the_instruction_of_the_config_may_be_asked_alone(tmp_path):
  result = ask(tmp_path, '', '--config.ask.instruction=Be brief.')
  assert result.returncode == 0, result.stderr[-3000:]
  (row,) = json.loads((tmp_path / 'headroom.json').read_text())['grid']
  assert row['instruction'] == 'configured'


@pytest.mark.parametrize('words', ['[]', '{}', '{"a": 1}', 'nothing'])
def test_a_file_that_holds_no_instructions_is_refused(tmp_path, words):
  result = ask_words(tmp_path, words)
  assert result.returncode != 0 and 'Traceback' not in result.stderr
  assert '--instructions=' in result.stderr
