"""The matrix of controllers on each other's models and tasks."""

import pytest

from promptrl_jax.tools import transfer


def result(coder, data, passed, controllers_of=None, budget=8):
  models = {'coder': f'{coder}@12', 'rewriter': 'r@34'}
  if controllers_of is not None:
    models['controllers of'] = controllers_of
  cells = [
    {
      'strategy': name,
      'budget': budget,
      'pass': {'mean': mean, 'low': mean - 0.01, 'high': mean + 0.01},
    }
    for name, mean in passed.items()
  ]
  return {
    'header': {'model_hashes': models, 'data_hash': f'{data} 56'},
    'tables': {'oracle': {'cells': []}, 'visible1': {'cells': cells}},
  }


A = result('a', 'x', {'direct': 0.1, 'ppo': 0.5})
B = result('b', 'y', {'direct': 0.2, 'ppo': 0.6})
A_ON_B = result('b', 'y', {'direct': 0.3, 'ppo': 0.55}, 'a@12 on x 56')


def test_rows_are_where_controllers_learnt_and_columns_where_they_play():
  lines = transfer.table([A_ON_B, A, B], 8).splitlines()
  rows = {
    cells[0]: cells[1:]
    for cells in (
      [cell.strip() for cell in line.strip('|').split('|')]
      for line in lines[2:]
    )
  }
  assert rows['controllers of'] == ['on b on y', 'on a on x']
  assert rows['a on x'] == ['55.0 [54.0, 56.0]', '50.0 [49.0, 51.0]']
  assert rows['b on y'] == ['60.0 [59.0, 61.0]', '-']
  # Rivals are those of the run that learnt where it plays.
  assert rows['direct'] == ['20.0 [19.0, 21.0]', '10.0 [9.0, 11.0]']
  assert 'fewshot_tuned' not in rows  # It was not played.


def test_another_coder_on_the_same_tasks_is_a_row_of_its_own():
  other = result('b', 'x', {'ppo': 0.4}, 'a@12')
  assert '| a on x | 50.0 [49.0, 51.0] | 40.0' in transfer.table([A, other], 8)


def test_what_cannot_stand_in_the_table_is_refused():
  with pytest.raises(ValueError, match='budget=4: no controller of a on x'):
    transfer.table([A, B], 4)
  with pytest.raises(ValueError, match='two runs of controllers of a on x'):
    transfer.table([A, A], 8)
