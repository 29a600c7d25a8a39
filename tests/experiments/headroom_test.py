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
    '--samples=4',
    '--templates=plain',
  )
  assert ended.returncode == 0, ended.stderr[-3000:]
  found = json.loads((workdir / 'headroom.json').read_text())
  return found, (workdir / 'headroom.md').read_text()


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


def test_samples_are_counted_up_to_half_of_them(result):
  found, table = result
  assert list(found['pass_at_k']) == ['1', '2']
  assert found['pass_at_k']['1'] <= found['pass_at_k']['2']
  assert '| pass@2 |' in table


def test_a_second_call_does_not_lose_what_the_first_solved(result):
  found, table = result
  assert found['second_call'].keys() == {
    'resample',
    'repair',
    '3 examples, then a sample',
  }
  assert '| greedy, then repair |' in table
