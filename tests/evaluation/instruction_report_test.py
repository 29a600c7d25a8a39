import numpy as np
import pytest

from promptrl_jax.evaluation import instruction_report
from promptrl_jax.evaluation.instruction_report import Scores


def rows(*values):
  return [np.array(v, float) for v in values]


def test_units_are_tasks_or_the_examples_of_one_task():
  np.testing.assert_allclose(
    instruction_report.units(rows([1, 0], [1, 1, 0, 1])), [0.5, 0.75]
  )
  np.testing.assert_allclose(instruction_report.units(rows([1, 0])), [1, 0])


def test_gains_are_paired_with_the_initial_instructions():
  base = rows(*[[0, 0, 1, 0]] * 12)
  better = rows(*[[1, 1, 1, 0]] * 12)
  table = instruction_report.summarise(
    {
      'initial': Scores(base, base),
      'same': Scores(base, base),
      'better': Scores(better, better),
    },
    resamples=200,
    seed=0,
  )
  assert table['better']['gain'] == pytest.approx(
    {'mean': 0.5, 'low': 0.5, 'high': 0.5}
  )
  assert table['same']['p'] == 1.0
  # All twelve differences of one sign: 2 / 2**12, times two comparisons.
  assert table['better']['p'] == pytest.approx(4 / 2**12)
  text = instruction_report.to_markdown(table)
  assert '| better | 75.0 | 75.0 [75.0, 75.0] | +50.0 [+50.0, +50.0] |' in text


def test_without_a_test_split_there_is_dev_alone():
  table = instruction_report.summarise(
    {'initial': Scores(rows([1, 0])), 'x': Scores(rows([1, 1]))}, 10, 0
  )
  assert table == {'initial': {'dev': 0.5}, 'x': {'dev': 1.0}}
  assert '| x | 100.0 | - | - | - |' in instruction_report.to_markdown(table)


def test_groups_are_means_over_their_tasks():
  scores = Scores([], rows([1, 0], [1, 1], [0, 0]))
  table = instruction_report.by_group({'initial': scores}, ['b', 'a', 'b'])
  assert table == {'initial': {'a': 1.0, 'b': 0.25}}
  assert '| initial | 100.0 | 25.0 |' in (
    instruction_report.group_markdown(table)
  )


def test_choices_are_compared_in_pairs():
  base = rows(*[[0, 0, 1, 0]] * 12)
  better = rows(*[[1, 1, 1, 0]] * 12)
  choices = {
    'initial': Scores(base, base),
    'before': Scores(base, base),
    'after': Scores(better, better),
  }
  found = instruction_report.compare(
    choices, [('after', 'before'), ('before', 'initial')], 200, 0
  )
  assert [(row['of'], row['over']) for row in found] == [
    ('after', 'before'),
    ('before', 'initial'),
  ]
  assert found[0]['gain'] == pytest.approx(
    {'mean': 0.5, 'low': 0.5, 'high': 0.5}
  )
  assert found[0]['p'] == pytest.approx(4 / 2**12)
  assert found[1]['p'] == 1.0
  # As the table has it: one is the same comparison as the other.
  table = instruction_report.summarise(choices, 200, 0)
  assert table['after']['gain'] == found[0]['gain']
  text = instruction_report.compared_markdown(found)
  assert '| after | before | +50.0 [+50.0, +50.0] | 0.00098 |' in text


def test_seeds_are_averaged_example_by_example():
  first = Scores(rows([1, 0], [1]), rows([0, 0, 1], [1]))
  second = Scores(rows([1, 1], [0]), rows([0, 1, 1], [1]))
  found = instruction_report.over_seeds([first, second])
  assert [row.tolist() for row in found.dev] == [[1.0, 0.5], [0.5]]
  assert [row.tolist() for row in found.test] == [[0.0, 0.5, 1.0], [1.0]]
  alone = instruction_report.over_seeds([Scores(rows([1, 0]))])
  assert list(alone.test) == []
