"""The trace in chunks: nothing is lost, split or invented."""

import base64
import gzip
import json

import pytest

from promptrl_jax.evaluation import trace_chunks, verdicts
from tests.evaluation.html_run import CELLS, HOSTILE_TASK, SEEDS, make_run


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  return make_run(tmp_path_factory.mktemp('run'))


def unpack(chunk):
  return json.loads(gzip.decompress(base64.b64decode(chunk)))


def episodes(packed):
  """All that the viewer can reach, by game and problem."""
  chunks = [unpack(chunk) for chunk in packed.chunks]
  return {
    (game['strategy'], game['budget'], game['seed'], task['id']): chunks[chunk][
      place
    ]
    for game in packed.index['games']
    for chunk, place, task in zip(
      game['chunks'],
      game['places'],
      [packed.index['tasks'][i] for i in game['tasks']],
      strict=True,
    )
  }


def game_of(packed, strategy, budget, seed):
  (game,) = (
    g
    for g in packed.index['games']
    if (g['strategy'], g['budget'], g['seed']) == (strategy, budget, seed)
  )
  return game


@pytest.mark.parametrize('size', [1, 3000, 400_000])
def test_every_row_is_found_again_in_order_of_its_steps(run, monkeypatch, size):
  monkeypatch.setattr(trace_chunks, 'CHUNK_BYTES', size)
  packed = trace_chunks.pack(run.trace, run.cells, SEEDS)
  expected = {}
  for line in run.trace.read_text().splitlines():
    row = json.loads(line)
    key = (row['strategy'], row['budget'], row['seed'], row['task_id'])
    expected.setdefault(key, []).append(row)
  found = {key: each['rows'] for key, each in episodes(packed).items()}
  assert found == expected
  assert max(map(len, expected.values())) == 2
  for game in packed.index['games']:
    assert game['chunks'] == sorted(game['chunks'])  # Neighbours stay so.
  if size == 1:
    assert len(packed.chunks) == len(expected)
  if size == 400_000:
    assert len(packed.chunks) == len(packed.index['games']) == 8


def test_the_index_says_how_episodes_ended(run):
  packed = trace_chunks.pack(run.trace, run.cells, SEEDS)
  # Solved; visible tests passed but hidden ones not; neither.
  assert game_of(packed, 'direct', 1, 7)['outcomes'] == 'smmumm'
  assert game_of(packed, 'ppo', 4, 8)['outcomes'] == 'ssmusm'
  assert game_of(packed, 'ppo', 4, 8)['calls'] == [1, 3, 3, 1, 3, 3]
  assert game_of(packed, 'ppo', 4, 8)['steps'] == [1, 2, 2, 1, 2, 2]
  task = packed.index['tasks'][3]
  assert task['id'] == HOSTILE_TASK and task['family'] == 'sorts'
  assert task['statement'] == 'Write a function to add the first numbers.'


def test_an_episode_ends_with_the_hidden_result_of_its_own_seed(run):
  found = episodes(trace_chunks.pack(run.trace, run.cells, SEEDS))
  assert found['ppo', 4, 7, 'mini/2']['end']['passed']
  end = found['ppo', 4, 8, 'mini/2']['end']
  assert end == {
    'passed': False,
    'soft': 0.75,
    'mask': '1101',
    'error': '',
    'calls': 1,
    'attempts': 1,
    'prompt_tokens': 9,
    'completion_tokens': 5,
  }


def test_without_results_the_end_is_not_known(run):
  for cells, seeds in (
    ({}, SEEDS),
    ({'visible1': CELLS[:2]}, SEEDS),
    (run.cells, (1, 2)),
  ):
    packed = trace_chunks.pack(run.trace, cells, seeds)
    assert game_of(packed, 'ppo', 4, 8)['outcomes'] == '??????'
    assert episodes(packed)['ppo', 4, 8, 'mini/2']['end'] is None


def test_problems_are_classed_by_the_first_failure_of_one_strategy(run):
  packed = trace_chunks.pack(run.trace, run.cells, SEEDS)
  strategy, classes = packed.failures['visible1']
  assert strategy == 'direct'
  assert classes.pop(HOSTILE_TASK) == 'NameError'
  assert set(classes.values()) == {verdicts.NO_FAILURE}


def test_without_a_direct_call_the_first_strategy_classes_them(run, tmp_path):
  rows = [json.loads(line) for line in run.trace.open()]
  rows = [row for row in rows if row['strategy'] == 'bandit']
  for row in rows:
    if row['task_id'] == 'mini/1':
      row |= {'visible_passed': False, 'status': 'failed', 'error_type': ''}
    if row['task_id'] == 'mini/2':
      row['code'] = None
  path = tmp_path / 'trace.jsonl'
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  strategy, classes = trace_chunks.pack(path, {}, SEEDS).failures['visible1']
  assert strategy == 'bandit'
  assert classes['mini/1'] == 'wrong value'
  assert classes['mini/2'] == 'no program'
  assert classes['mini/4'] == 'NameError'  # It passed later.


def test_the_same_trace_makes_the_same_chunks(run):
  one, two = (trace_chunks.pack(run.trace, run.cells, SEEDS) for _ in range(2))
  assert one == two


@pytest.mark.parametrize(
  ('line', 'expected'),
  [
    ('{"task_id": ', 'expected one JSON object per line'),
    ('{"reward": NaN}', 'NaN is no JSON'),
    ('{"task_id": "a", "step": 0}', r"lacks \['protocol', 'strategy'"),
    ('[1]', 'lacks'),
  ],
)
def test_a_line_that_is_no_row_is_named(tmp_path, run, line, expected):
  path = tmp_path / 'trace.jsonl'
  path.write_text(run.trace.open().readline() + line + '\n')
  with pytest.raises(ValueError, match=expected) as error:
    trace_chunks.pack(path, {}, SEEDS)
  assert str(error.value).startswith(f'{path}:2: ')


def test_an_empty_trace_has_no_games(tmp_path):
  path = tmp_path / 'trace.jsonl'
  path.touch()
  packed = trace_chunks.pack(path, {}, SEEDS)
  assert packed.index == {'tasks': [], 'games': []}
  assert not packed.chunks
