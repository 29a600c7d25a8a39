from __future__ import annotations

import pytest

from promptrl_jax.evaluation import actions


def _row(task_id, step, action, status, **more):
  passed = status == 'passed'
  return {
    'strategy': 'ppo',
    'seed': 0,
    'task_id': task_id,
    'step': step,
    'action': action,
    'reward': 1.0 if passed else -0.1,
    'status': status,
    'visible_passed': passed,
    'cost': 1 if action == 'keep' else 2,
  } | more


ROWS = [
  _row('a', 1, 'rewrite', 'passed'),
  _row('a', 0, 'keep', 'syntax_error'),
  _row('b', 0, 'keep', 'timeout'),
  _row('b', 1, 'rewrite', 'timeout'),
  _row('b', 2, 'keep', 'passed'),
]


def test_counts_by_action_golden_values():
  result = actions.action_statistics(ROWS)
  assert result['steps'] == 5
  assert result['by_action']['keep'] == {
    'count': 3,
    'share': pytest.approx(0.6),
    'success_rate': pytest.approx(1 / 3),
    'mean_reward': pytest.approx(0.8 / 3),
    'mean_cost': 1.0,
  }
  assert result['by_action']['rewrite']['mean_cost'] == 2.0


def test_error_before_is_the_status_of_the_step_before_in_the_episode():
  by_error = actions.action_statistics(ROWS)['by_error']
  assert by_error['start']['keep']['count'] == 2
  assert by_error['syntax_error'] == {
    'rewrite': {'count': 1, 'share': 1.0, 'success_rate': 1.0}
  }
  assert by_error['timeout']['keep']['success_rate'] == 1.0
  assert by_error['timeout']['rewrite']['share'] == 0.5


def test_counts_of_both_tables_sum_to_the_steps():
  result = actions.action_statistics(ROWS)
  by_action = sum(x['count'] for x in result['by_action'].values())
  by_error = sum(
    x['count'] for row in result['by_error'].values() for x in row.values()
  )
  assert by_action == by_error == result['steps'] == len(ROWS)


def test_order_of_the_rows_does_not_matter():
  assert actions.action_statistics(ROWS[::-1]) == actions.action_statistics(
    ROWS
  )


@pytest.mark.parametrize('field', ['budget', 'row', 'episode'])
def test_repeated_visits_need_a_field_that_tells_them_apart(field):
  visits = [_row('a', 0, 'keep', 'timeout') for _ in range(2)]
  with pytest.raises(ValueError, match='a step twice'):
    actions.action_statistics(visits)
  apart = [row | {field: i} for i, row in enumerate(visits)]
  result = actions.action_statistics(apart)
  assert result['by_error']['start']['keep']['count'] == 2


def test_rows_without_a_key_or_with_numbered_actions_are_refused():
  lacking = {k: v for k, v in ROWS[0].items() if k != 'reward'}
  with pytest.raises(ValueError, match=r"lacks \['reward'\]"):
    actions.action_statistics([lacking])
  with pytest.raises(ValueError, match='action must be a name, got 1'):
    actions.action_statistics([_row('a', 0, 1, 'passed')])


def test_no_steps_are_no_error():
  assert actions.action_statistics([]) == {
    'steps': 0,
    'by_action': {},
    'by_error': {},
  }


def test_markdown_has_a_line_for_each_count():
  text = actions.actions_markdown(actions.action_statistics(ROWS))
  assert '### Actions (5 steps)' in text
  assert '| keep | 3 | 60.0 % | 33.3 % | +0.267 | 1.00 |' in text
  assert '| timeout | rewrite | 1 | 50.0 % | 0.0 % |' in text
