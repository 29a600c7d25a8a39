"""Learning curves as data, with means worked out by hand."""

import json
import math

from promptrl_jax.evaluation import learning


def write(path, returns, validated=()):
  """One row per update, each of 10 calls; `validated` by update, from 1."""
  rows = [
    {'step': i, 'budget/calls': 10.0, 'rollout/return': value}
    for i, value in enumerate(returns)
  ]
  for update, value in dict(validated).items():
    rows[update - 1]['eval/validation_pass'] = value
  path.mkdir(parents=True)
  lines = ''.join(json.dumps(row) + '\n' for row in rows)
  (path / 'metrics.jsonl').write_text(lines)


def test_each_seed_and_their_mean_with_its_spread(tmp_path):
  write(tmp_path / 'seed_3', [0.0, 2.0, 4.0], {1: 0.5, 3: 0.7})
  write(tmp_path / 'seed_4', [2.0, 2.0], {1: 0.7, 2: 0.9})  # It ended early.
  returns, validation = learning.read(tmp_path, [3, 4, 5])  # No fifth seed.
  assert (returns['metric'], returns['is_share']) == ('rollout/return', False)
  (ppo,) = returns['learners']
  assert ppo['name'] == 'ppo'
  assert [one['seed'] for one in ppo['seeds']] == [3, 4]
  assert ppo['seeds'][0]['y'] == [0, 2, 4]
  assert ppo['seeds'][0]['calls'] == [10, 20, 30]
  assert ppo['mean'] == {
    **{'updates': [1, 2], 'calls': [10, 20]},
    **{'y': [1, 2], 'sd': [math.sqrt(2), 0]},
  }
  # Where the others validated another update, the mean is between the two.
  (ppo,) = validation['learners']
  assert validation['is_share'] and ppo['mean']['updates'] == [1, 2.5]
  assert ppo['mean']['calls'] == [10, 25]


def test_a_long_curve_is_averaged_over_neighbours(tmp_path):
  write(tmp_path / 'seed_0', [1.0, 3.0, 5.0, 7.0, 8.0])
  ((ppo,),) = (p['learners'] for p in learning.read(tmp_path, [0], points=3))
  assert ppo['seeds'][0]['updates'] == [1.5, 3.5, 5]
  assert ppo['seeds'][0]['calls'] == [15, 35, 50]
  assert ppo['seeds'][0]['y'] == [2, 6, 8]
  assert ppo['mean']['sd'] is None  # of a single seed


def test_other_controllers_of_a_seed_have_their_own_curves(tmp_path):
  write(tmp_path / 'seed_0', [1.0], {1: 0.5})
  write(tmp_path / 'seed_0' / 'ppo_shuffled', [0.0])
  returns, validation = learning.read(tmp_path, [0])
  names = [
    [one['name'] for one in p['learners']] for p in (returns, validation)
  ]
  assert names == [['ppo', 'ppo_shuffled'], ['ppo']]
  assert learning.read(tmp_path, [1]) == []
